"""From a config to its data."""

import pathlib

import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small

from calib_jax import losses, targets
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


def test_objectives_inside_objectives_have_the_options_of_the_config() -> None:
    config = small.config(
        method__mixup__objective="label_smoothing",
        method__label_smoothing__objective="focal",
        method__focal__gamma=7.0,
    )
    logits, labels = jnp.array([[1.0, 0.0, -1.0]]), jnp.array([0])
    options = _build._with_objective(config, "mixup", dict(config.method.mixup), ("mixup",))
    found = options["objective"].loss(logits, labels, ())
    smooth = targets.smooth(labels, 3, config.method.label_smoothing.smoothing, "others")
    np.testing.assert_allclose(found, losses.focal(logits, smooth, 7.0), rtol=1e-6)
    assert _build.build_recipe(config, "mixup")
    config.method.label_smoothing.objective = "label_smoothing"
    message = r"config\.method\.label_smoothing\.objective='label_smoothing': expected one of cross"
    with pytest.raises(ValueError, match=message):
        _build.build_recipe(config, "mixup")


def test_a_network_that_is_nowhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small.config(model__pretrained="models/some-network")
    sets = _build.load_data(config)
    monkeypatch.delenv("CALIB_JAX_DATA", raising=False)
    message = r"config\.model\.pretrained='models/some-network': there is no such path here or in "
    with pytest.raises(ValueError, match=message + "the folder CALIB_JAX_DATA, which is not set"):
        _build.build_network(config, sets)
    monkeypatch.setenv("CALIB_JAX_DATA", str(tmp_path))
    with pytest.raises(
        ValueError, match=message + rf"{tmp_path}; a network or tokenizer is a folder"
    ):
        _build.build_network(config, sets)
