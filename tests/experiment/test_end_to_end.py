"""From a config to a report, with every method there is."""

import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest
from experiment import small
from experiment.conftest import NoFigure

from calib_jax import experiment, methods, metrics, report
from calib_jax.experiment import _build

METHODS, SEEDS = ("cross_entropy", "adafocal"), (3,)


def _config(**changes: Any) -> Any:
    comparison = {"method__name": ",".join(METHODS), "seeds": SEEDS, "calibrate": ("temperature",)}
    return small.config(**comparison | changes)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, str]:
    """A comparison of two methods: its workdir and what is printed."""
    workdir = tmp_path_factory.mktemp("compared")
    said: list[str] = []
    text = experiment.run(_config(), workdir, log=said.append)
    assert said == []
    return workdir, text


def _runs(workdir: pathlib.Path) -> list[pathlib.Path]:
    return [workdir / name / f"seed_{seed}" for name in METHODS for seed in SEEDS]


def test_what_a_workdir_holds(compared: tuple[pathlib.Path, str]) -> None:
    workdir, _ = compared
    here = {path.name for path in workdir.iterdir() if not path.name.startswith(".")}
    assert here == {*METHODS, "config.json", "summary.json", "summary.md", "report.html", "plots"}
    for run in _runs(workdir):
        here = {path.name for path in run.iterdir()}
        expected = {"config.json", "metrics.jsonl", "results.json", "logits", "plots"}
        assert here >= expected | {"checkpoints"}, run
        assert {path.name for path in (run / "logits").iterdir()} == {"val.npz", "test.npz"}
        plots = {path.name for path in (run / "plots").iterdir()}
        assert plots >= {"reliability_test.png", "risk_coverage_test.png"}
    assert not list(workdir.rglob("*.tmp"))


def test_lines_of_the_log(compared: tuple[pathlib.Path, str]) -> None:
    workdir, _ = compared
    keys = {"step", "epoch", "train/loss", "train/accuracy", "val/nll", "val/accuracy", "val/ece"}
    keys |= {"val/ece_mass", "perf/examples_per_second", "perf/seconds"}
    for run in _runs(workdir):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [(line["step"], line["epoch"]) for line in lines] == [(3, 1.0), (6, 2.0)]
        for line in lines:
            assert keys <= line.keys()
            if run.parent.name == "adafocal":
                lengths = {k: len(line[f"method/{k}"]) for k in ("gamma", "edges", "gap")}
                assert lengths == {"gamma": 15, "edges": 14, "gap": 15}


def test_results_are_those_of_the_logits(compared: tuple[pathlib.Path, str]) -> None:
    workdir, _ = compared
    for run in _runs(workdir):
        results = json.loads((run / "results.json").read_text())
        assert results["method"] == run.parent.name
        assert f"seed_{results['seed']}" == run.name
        assert results["num_parameters"] == 64 * 8 + 8 + 8 * 10 + 10
        assert results["train_seconds"] >= 0
        assert list(results["splits"]) == ["test"]
        plain, scaled = results["splits"]["test"]
        assert (plain["name"], scaled["name"]) == ("uncalibrated", "temperature")
        found = {}
        for split, number in (("val", 500), ("test", 797)):
            with np.load(run / "logits" / f"{split}.npz", allow_pickle=False) as arrays:
                assert sorted(arrays) == ["ids", "labels", "logits"]
                found[split] = dict(arrays)
            assert found[split]["logits"].shape == (number, 10)
            assert len(set(found[split]["ids"].tolist())) == number
        assert not set(found["val"]["ids"]) & set(found["test"]["ids"])
        logits, labels = found["test"]["logits"], found["test"]["labels"]
        assert plain["metrics"]["accuracy"] == pytest.approx(np.mean(logits.argmax(1) == labels))
        expected = metrics.summary(logits, labels)
        assert plain["metrics"].keys() == expected.keys()
        for key, value in expected.items():
            assert plain["metrics"][key] == pytest.approx(float(value), rel=1e-5), key
        (temperature,) = scaled["parameters"]["temperature"]
        after = metrics.nll(logits / temperature, labels)
        assert scaled["metrics"]["nll"] == pytest.approx(float(after), rel=1e-4)
        assert scaled["metrics"]["accuracy"] == plain["metrics"]["accuracy"]
        for key, (low, high) in plain["intervals"].items():
            assert low <= high, key
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        val = metrics.nll(found["val"]["logits"], found["val"]["labels"])
        assert last["val/nll"] == pytest.approx(float(val), rel=1e-5)


def test_the_report(compared: tuple[pathlib.Path, str]) -> None:
    workdir, text = compared
    assert f"report: {workdir / 'report.html'}" in text
    page = (workdir / "report.html").read_text()
    summary = (workdir / "summary.md").read_text()
    for name in METHODS:
        assert name in text
        assert name in page
        assert name in summary
    assert "data:image/png;base64," in page
    assert "1 seed" in text


def test_the_same_again_does_nothing(compared: tuple[pathlib.Path, str]) -> None:
    workdir, text = compared
    files = [p for run in _runs(workdir) for p in run.rglob("*") if p.is_file()]
    files = [p for p in files if "plots" not in p.parts and p.name != ".lock"]
    before = {path: path.stat().st_mtime_ns for path in files}
    said: list[str] = []
    assert experiment.run(_config(), workdir, log=said.append) == text
    assert said == [f"{name}, seed {seed}: finished before" for name in METHODS for seed in SEEDS]
    assert {path: path.stat().st_mtime_ns for path in before} == before


# By default one of a kind: coupled losses, mixing, phases, a teacher, contrast, augmentation, attacks.
# All are built and lowered in tests/test_lowering.py, and tests/methods has small ones of the same code.
_DEFAULT = ("mmce", "mixup", "aum_mixup", "csd", "lcl", "randaug", "ccat")
_NAMES = [
    pytest.param(name, marks=[] if name in _DEFAULT else [pytest.mark.slow])
    for name in methods.NAMES
]


@pytest.mark.parametrize("name", _NAMES)
def test_every_method(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    trainers = []
    build = _build.build_trainer

    def build_and_keep(*args: Any) -> Any:
        trainers.append(build(*args))
        return trainers[-1]

    monkeypatch.setattr(_build, "build_trainer", build_and_keep)
    run = tmp_path / name / "seed_0"
    # Steps of two groups are fewer, and attacked images are harder to learn.
    epochs = 12 if name in ("aum_mixup", "sim_mixup", "ea_mixup", "ccat") else 3
    config = small.config(method__name=name, train__epochs=epochs)
    assert experiment.run(config, tmp_path) == "report"

    results = json.loads((run / "results.json").read_text())
    assert results["method"] == name
    found = results["splits"]["test"][0]["metrics"]
    assert found["accuracy"] > 0.2  # after a few steps; chance is a tenth
    assert all(np.isfinite(value) for value in found.values())
    trainer = trainers[-1]  # of the last phase
    assert [row["step"] for row in small.rows(run)] == [
        n * trainer.train.steps for n in range(1, epochs + 1)
    ]
    for row in small.rows(run):
        names = {"method/bucket_names", "method/bucket_meaning"}  # words
        assert all(np.isfinite(row[key]).all() for key in row.keys() - names)
    assert trainer.compilations()["train"] == 1
    # What is read back is of the kind that the compiled step takes.
    state = small.fit(trainer, run)
    like = trainer.abstract_state()
    assert jax.tree.structure(like) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(like), jax.tree.leaves(state), strict=True):
        assert (a.shape, a.dtype, a.sharding) == (b.shape, b.dtype, b.sharding)


def _accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(logits.argmax(1) == labels))


def _macro_f1(logits: np.ndarray, labels: np.ndarray) -> float:
    predicted, scores = logits.argmax(1), []
    for c in range(logits.shape[1]):
        hits = np.sum((predicted == c) & (labels == c))
        scores.append(2 * hits / max(np.sum(predicted == c) + np.sum(labels == c), 1))
    return float(np.mean(scores))


def _nll(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    z = logits.astype(np.float64) / temperature
    z -= z.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), labels]))


def _nll_after_best_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    return min(_nll(logits, labels, t) for t in np.exp(np.linspace(-4, 4, 4001)))


@pytest.mark.parametrize(
    ("metric", "oracle", "sign"),
    [
        pytest.param("val/nll", _nll, 1, marks=pytest.mark.slow),
        ("val/refinement", _nll_after_best_temperature, 1),
        pytest.param("val/accuracy", _accuracy, -1, marks=pytest.mark.slow),
        ("val/f1", _macro_f1, -1),
    ],
)
def test_the_best_state_is_evaluated(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, metric: str, oracle: Any, sign: int
) -> None:
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    # It gets worse: the learning rate is far too large in the end.
    worse = {"optimizer__schedule": "milestones", "optimizer__milestones": (2,)}
    worse |= {"optimizer__factor": 1000.0, "train__epochs": 4, "checkpoint__select": "best"}
    experiment.run(small.config(**worse, checkpoint__best=metric), tmp_path)
    run = tmp_path / "cross_entropy" / "seed_0"
    costs = [sign * row[metric] for row in small.rows(run)]
    assert costs[-1] > min(costs)
    with np.load(run / "logits" / "val.npz", allow_pickle=False) as val:
        found = sign * oracle(val["logits"], val["labels"])
    assert found == pytest.approx(min(costs), rel=1e-4)
