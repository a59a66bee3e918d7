"""Runs in two phases, with arrays handed from the first to the second."""

import pathlib

import numpy as np
import pytest
from experiment import small
from experiment.conftest import Command, NoFigure, assert_same_run

from calib_jax import experiment, methods, report
from calib_jax.experiment import _evaluate, _run

DIGITS = ("--config", "configs/smoke/digits.py", "--config.train.epochs=2")


def test_killed_within_and_between_phases(command: Command, tmp_path: pathlib.Path) -> None:
    """The phases are nursery.py's: a map of the data, then training on its easy half."""
    options = {"patch": ["two_phases"], "light": True}
    done = command(*DIGITS, "--workdir", tmp_path / "whole", **options)
    assert done.code == 0, done.err
    assert "cross_entropy, seed 0, map: step 10/10" in done.err
    assert "cross_entropy, seed 0, train: step 10/10" in done.err
    whole = tmp_path / "whole" / "cross_entropy" / "seed_0"

    assert not (whole / "map").exists()  # it belongs to all methods of the workdir
    with np.load(tmp_path / "whole" / "phases" / "map" / "seed_0" / "artifacts.npz") as handed:
        assert sorted(handed) == ["confidence", "correctness", "seen", "variability"]
        np.testing.assert_array_equal(handed["seen"], np.full(100, 2.0))  # once in every epoch
        confidence = handed["confidence"]
    with np.load(whole / "state.npz") as state:
        easy = state[".method_state"]
    assert easy.sum() == 50
    assert confidence[easy == 1].min() >= confidence[easy == 0].max()

    parts = ("--workdir", tmp_path / "parts", "--config.checkpoint.seconds=0")
    run = tmp_path / "parts" / "cross_entropy" / "seed_0"
    for moment, number, finished in [
        ("writing_arrays", 1, False),  # when it hands over
        ("training", 4, True),  # in the second
    ]:
        done = command(*DIGITS, *parts, interrupt=[(moment, number, "SIGKILL")], **options)
        assert done.code == -9, (moment, done)
        artifacts = tmp_path / "parts" / "phases" / "map" / "seed_0" / "artifacts.npz"
        assert artifacts.exists() == finished
    done = command(*DIGITS, *parts, **options)
    assert done.code == 0, done.err
    assert "map" not in done.err  # is not done again
    assert "train: resumed at step" in done.err
    assert_same_run(run, whole)


@pytest.fixture
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that only train: no judgements, plots and reports."""
    monkeypatch.setattr(_evaluate, "evaluate", lambda *_, **__: [])
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())


@pytest.mark.usefixtures("unjudged")
def test_variants_share_the_recording_and_differ_in_what_they_say(tmp_path: pathlib.Path) -> None:
    config = small.config(
        method__name="cross_entropy,aum_mixup,no_mix", data__options__num_train=61
    )
    # With no weight on mixtures, what is left is cross entropy on a batch of each half.
    config.method.variants = {"no_mix": {"of": "aum_mixup", "similar": 0.0, "dissimilar": 0.0}}
    said: list[str] = []
    experiment.run(config, tmp_path, log=said.append)
    assert [path.name for path in (tmp_path / "phases").iterdir()] == ["records"]
    with np.load(tmp_path / "phases/records/seed_0/artifacts.npz", allow_pickle=False) as handed:
        records = dict(handed)
    assert {len(array) for array in records.values()} == {61}
    assert np.isfinite(records["aum"]).all()
    logits = {}
    for name in ("cross_entropy", "aum_mixup", "no_mix"):
        with np.load(tmp_path / name / "seed_0" / "logits" / "val.npz") as found:
            logits[name] = found["logits"]
    assert not np.allclose(logits["aum_mixup"], logits["no_mix"], atol=1e-3)
    # The recording is ordinary training: the same seed, the same network.
    plain, recorded = (
        small.rows(path)[-1]["val/nll"]
        for path in (tmp_path / "cross_entropy" / "seed_0", tmp_path / "phases/records/seed_0")
    )
    assert plain == pytest.approx(recorded, rel=1e-5)


@pytest.mark.usefixtures("unjudged")
def test_records_are_of_all_epochs_where_the_best_is_selected(tmp_path: pathlib.Path) -> None:
    # So fast that the second epoch is worse than the first.
    options = {"optimizer__learning_rate": 3.0, "train__epochs": 3, "method__name": "aum_mixup"}
    experiment.run(small.config(**options, checkpoint__select="best"), tmp_path)
    records = tmp_path / "phases/records/seed_0"
    losses = [row["val/nll"] for row in small.rows(records) if "val/nll" in row]
    assert int(np.argmin(losses)) < len(losses) - 1
    with np.load(records / "artifacts.npz", allow_pickle=False) as handed:
        thirds = handed["correctness"] * 3
    np.testing.assert_allclose(thirds, np.round(thirds), atol=1e-5)
    assert {1.0, 2.0} & set(np.round(thirds).tolist())  # one or two epochs of three


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"mixup": {"of": "mixup"}}, "variants.mixup: expected a name that no method has"),
        ({"a": {"of": "mixxup"}}, "variants.a.of='mixxup': expected one of .*'mixup'"),
        ({"a": {"of": "mixup", "plaec": "x"}}, "variants.a.plaec: expected .*'place'"),
        ({"a b": {"of": "mixup"}}, "variants.a b: expected a name that no method has"),
    ],
)
def test_mistakes_in_variants(variants: dict, message: str, tmp_path: pathlib.Path) -> None:
    config = small.config()
    config.method.variants = variants
    with pytest.raises(ValueError, match=message):
        experiment.run(config, tmp_path)


@pytest.mark.usefixtures("unjudged")
def test_a_phase_may_hand_nothing_over(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [
        methods.Phase("first", methods.create("cross_entropy")),
        methods.Phase("train", methods.create("adafocal"), owner="cross_entropy"),
    ]
    monkeypatch.setattr(_run, "phases", lambda *_: two)
    experiment.run(small.config(train__epochs=1), tmp_path)
    run = tmp_path / "cross_entropy" / "seed_0"
    assert "method/gamma" not in small.rows(tmp_path / "phases" / "first" / "seed_0")[-1]
    assert "method/gamma" in small.rows(run)[-1]
