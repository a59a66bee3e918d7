"""Several seeds in one program end where each of them ends alone."""

import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import pytest
from experiment import small

from calib_jax import experiment, train

SEEDS = [0, 5, 2]
SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("randaug_autolabel", "mmce", "mixup", "lcl")
]
METHODS = ("adafocal", "aum_mixup", *SLOW)


def assert_close(a: Any, b: Any) -> None:
    leaves_a, leaves_b = (jax.tree_util.tree_leaves_with_path(tree) for tree in (a, b))
    for (path, x), (_, y) in zip(leaves_a, leaves_b, strict=True):
        name = jax.tree_util.keystr(path)
        if isinstance(x, str):  # the name of a bucket
            assert x == y, name
        else:
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_seeds_end_as_they_do_alone(method: str, tmp_path: pathlib.Path) -> None:
    color = {"width": 8} if method == "randaug_autolabel" else {}
    made = small.trainer(method, epochs=2, steps_per_call=2, **color)
    together = small.fit_seeds(made, tmp_path / "together", SEEDS)
    for i, seed in enumerate(SEEDS):
        alone = small.fit_seeds(made, tmp_path / f"alone_{seed}", [seed])[0]
        assert_close(together[i], alone)
        place = tmp_path / "together" / (str(seed) if i else "")
        for row, expected in zip(
            small.rows(place), small.rows(tmp_path / f"alone_{seed}"), strict=True
        ):
            assert_close(row, expected)


def test_batch_statistics_are_each_seed_s_own(tmp_path: pathlib.Path) -> None:
    options = {"stages": (1,), "widths": (4,), "stem_width": 4}
    made = small.trainer("cross_entropy", "resnet20", options, epochs=1, width=8)
    together = small.fit_seeds(made, tmp_path / "together", [0, 1])
    for seed in (0, 1):
        alone = small.fit_seeds(made, tmp_path / str(seed), [seed])[0]
        assert_close(together[seed], alone)


@pytest.mark.parametrize("lost", [None, 5])
def test_they_go_on_from_a_step_that_all_have(lost: int | None, tmp_path: pathlib.Path) -> None:
    made = small.shared_trainer("adafocal")
    whole = small.fit_seeds(made, tmp_path / "whole", SEEDS, save_seconds=0, save_best=True)
    folder = tmp_path / "parts"
    with pytest.raises(train.Stopped):
        small.fit_seeds(made, folder, SEEDS, calls=9, save_seconds=0)
    if lost is not None:  # killed when this seed was not saved yet
        newest = max((folder / str(lost) / "checkpoints").glob("[0-9]*"), key=lambda p: int(p.name))
        shutil.rmtree(newest)
    for state, expected in zip(small.fit_seeds(made, folder, SEEDS), whole, strict=True):
        small.assert_same(state, expected)
    for place in ("", "5", "2"):
        assert small.rows(folder / place) == small.rows(tmp_path / "whole" / place)


def test_what_differs_in_shape_is_refused(tmp_path: pathlib.Path) -> None:
    made = small.trainer("cross_entropy", sharding="fsdp")
    with pytest.raises(ValueError, match=r"^seeds_in_parallel=True: sharding='fsdp' .* False here"):
        small.fit_seeds(made, tmp_path, [0, 1])


def test_a_dry_run_counts_all_seeds_and_refuses() -> None:
    def megabytes(**changes: Any) -> float:
        config = small.config(seeds=(0, 1, 2), model__options__widths=(2000, 2000), **changes)
        shown = experiment.describe(config)
        return float(shown.partition("; state ")[2].split()[0])

    assert megabytes() > 30
    assert megabytes(seeds_in_parallel=True) == pytest.approx(3 * megabytes(), abs=0.2)
    with pytest.raises(ValueError, match="seeds_in_parallel=True"):
        megabytes(seeds_in_parallel=True, train__sharding="fsdp")


@pytest.mark.parametrize("method", ["aum_mixup", pytest.param("csd", marks=pytest.mark.slow)])
def test_an_experiment_with_phases(method: str, tmp_path: pathlib.Path) -> None:
    changes: dict[str, Any] = {"seeds": (0, 1), "method__name": method}
    for parallel in (False, True):
        config = small.config(**changes, seeds_in_parallel=parallel)
        lines: list[str] = []
        experiment.run(config, tmp_path / str(parallel), log=lines.append)
    for seed in (0, 1):
        alone, together = (
            small.arrays(tmp_path / str(parallel) / method / f"seed_{seed}" / "logits" / "test.npz")
            for parallel in (False, True)
        )
        np.testing.assert_array_equal(alone["ids"], together["ids"])
        np.testing.assert_allclose(alone["logits"], together["logits"], rtol=1e-3, atol=1e-4)
