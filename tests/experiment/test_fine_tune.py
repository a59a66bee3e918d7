"""Every trained network may be adapted to a shifted set, and is judged there before and after."""

import json
import pathlib

import numpy as np
import pytest
from experiment import small
from experiment.conftest import Command, NoFigure, assert_same_run

from calib_jax import experiment, report
from calib_jax.experiment import _build, _fine_tune

TUNED = """
from calib_jax import experiment

def get_config():
    config = experiment.default_config()
    config.data.options.num_train = 48
    config.model.options.widths = (8,)
    config.train.batch_size = 24
    config.train.epochs = 2
    config.calibrate = ()
    config.data.shift = ("digits",)
    config.fine_tune.data = "digits"
    config.fine_tune.shares = (0.02, 0.04)
    config.fine_tune.epochs = 2
    return config
"""


def test_killed_while_fine_tuning(command: Command, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.py").write_text(TUNED)
    tuned = ("--config", tmp_path / "config.py", "--config.checkpoint.seconds=0")
    done = command(*tuned, "--workdir", tmp_path / "whole", light=True)
    assert done.code == 0, done.err
    assert "cross_entropy, seed 0, train, tuned_10: step 4/4" in done.err
    assert "cross_entropy, seed 0, train, tuned_20: step 6/6" in done.err
    parts = (*tuned, "--workdir", tmp_path / "parts")
    # Eight steps of training before; then within the first, and at the third step of the second.
    for number in (10, 7):
        done = command(*parts, interrupt=[("training", number, "SIGKILL")], light=True)
        assert done.code == -9, done
    done = command(*parts, light=True)
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "parts", tmp_path / "whole")

    run = tmp_path / "whole" / "cross_entropy" / "seed_0"
    found = json.loads((run / "results.json").read_text())
    assert list(found["splits"]) == ["test", "digits", "digits_tuned_10", "digits_tuned_20"]
    with np.load(run / "state.npz") as before, np.load(run / "tuned_10" / "state.npz") as after:
        kernels = [key for key in before if key.startswith(".params") and "kernel" in key]
        moved = [np.abs(before[key] - after[key]).max() for key in kernels]
        assert min(moved) > 0
    assert (run / "checkpoints").exists()
    assert (run / "tuned_10" / "checkpoints").exists()


def test_judged_as_it_is_and_fine_tuned(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())
    config = small.config(
        train__epochs=1,
        data__shift=("digits",),
        fine_tune__data="digits",
        fine_tune__shares=(0.02,),
        fine_tune__epochs=1,
        checkpoint__keep=False,
    )
    experiment.run(config, tmp_path)
    run = tmp_path / "cross_entropy" / "seed_0"
    splits = json.loads((run / "results.json").read_text())["splits"]
    assert list(splits) == ["test", "digits", "digits_tuned_10"]
    before, after = (splits[s][0]["metrics"]["nll"] for s in ("digits", "digits_tuned_10"))
    assert before != after
    assert (run / "checkpoints").exists()  # it may have to teach
    assert not (run / "tuned_10" / "checkpoints").exists()
    assert not (tmp_path / "phases" / "records" / "seed_0" / "checkpoints").exists()


def test_begins_where_training_ended_and_with_the_unsure_half() -> None:
    config = small.config(fine_tune__data="digits", data__shift=("digits",))
    sets = _build.load_data(config)
    trainer = _build.build_trainer(config, sets, _plain(config), {})
    state = trainer.init(0)
    handed = {"confidence": np.linspace(0, 1, 60)[::-1]}
    made = {
        share: _fine_tune.tuning_trainer(config, sets, (trainer, state), handed, share, 0)
        for share in (0.02, 0.04)
    }
    small.assert_same(made[0.02].init(5).params, state.params)
    few, more = (made[share].train for share in (0.02, 0.04))
    assert [len(group) for group in few.groups] == [10, 30]
    assert len(more.groups[0]) == 20
    assert set(few.dataset.ids[:10]) < set(more.dataset.ids[:20])
    np.testing.assert_array_equal(few.dataset.ids[10:], sets.train.ids[30:])
    assert few.steps == 2
    assert few.batch_size == 16


def _plain(config):
    return _build.build_recipe(config, "cross_entropy").phases[-1]


def test_texts_of_two_lengths() -> None:
    def texts(n: int, width: int) -> dict[str, np.ndarray]:
        return {"input_ids": np.full((n, width), 7), "mask": np.ones((n, width), np.int32)}

    template = small.images(2, 0)
    first, second = (
        _fine_tune.dataclasses.replace(template, inputs=texts(2, width)) for width in (3, 5)
    )
    both = _fine_tune._one_after_the_other(first, second)
    np.testing.assert_array_equal(both.inputs["mask"].sum(1), [3, 3, 5, 5])
    assert both.inputs["input_ids"].shape == (4, 5)


def test_what_cannot_be(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for changes, message in [
        ({"fine_tune__data": "svhn"}, r"config.fine_tune.data='svhn': expected one of config.data"),
        ({"fine_tune__shares": (0.1, 3.0)}, r"config.fine_tune.shares=\(0.1, 3.0\): expected"),
        ({"fine_tune__mixed": 1.5}, r"config.fine_tune.mixed=1.5: expected 0 to 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            experiment.run(small.config(**changes), tmp_path)
