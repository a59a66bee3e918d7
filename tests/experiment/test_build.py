"""From a config to its data."""

import numpy as np
import pytest
from experiment import small

from calib_jax.experiment import _build


def test_parts_of_the_sets_are_random_and_always_the_same() -> None:
    whole = _build.load_data(small.config())
    config = small.config(data__num_train=20, data__num_eval=7, data__shift=("digits",))
    sets = _build.load_data(config)
    parts = (sets.train, sets.val, sets.test, sets.shift["digits"])
    assert [len(part) for part in parts] == [20, 7, 7, 7]
    assert set(sets.test.ids) < set(whole.test.ids)
    assert sets.test.ids.tolist() != whole.test.ids[:7].tolist()
    again = _build.load_data(config)
    np.testing.assert_array_equal(again.test.ids, sets.test.ids)
    np.testing.assert_array_equal(again.test.inputs["image"], sets.test.inputs["image"])
    everything = _build.load_data(small.config(data__num_eval=10**6))
    assert len(everything.test) == len(whole.test)


def test_more_training_examples_than_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"config\.data\.num_train=61: expected at most 60, the train"
    ):
        _build.load_data(small.config(data__num_train=61))
