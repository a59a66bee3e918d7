"""Ensembles of a workdir: written once, of the same examples, shown in the report."""

import json
import pathlib

import numpy as np
import pytest

from calib_jax import experiment, report
from calib_jax.experiment._ensemble import write_ensembles


def _write_run(workdir: pathlib.Path, seed: int, first_id: int = 0) -> None:
    folder = workdir / "ce" / f"seed_{seed}"
    (folder / "logits").mkdir(parents=True)
    rng = np.random.default_rng(seed)
    labels = np.arange(90) % 3
    for split in ("val", "test"):
        logits = (2 * rng.normal(size=(90, 3)) + 2 * np.eye(3)[labels]).astype(np.float32)
        ids = np.arange(first_id, first_id + 90)
        np.savez(folder / "logits" / f"{split}.npz", logits=logits, labels=labels, ids=ids)
    values = {"accuracy": 0.7, "nll": 0.9, "brier": 0.4, "ece": 0.1}
    evaluations = [{"name": "uncalibrated", "metrics": values, "intervals": {}, "parameters": {}}]
    record = {"method": "ce", "seed": seed, "splits": {"test": evaluations}}
    (folder / "results.json").write_text(json.dumps(record))
    row = {"epoch": 1.0, "train/loss": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")


@pytest.fixture
def workdir(tmp_path: pathlib.Path) -> pathlib.Path:
    for seed in (0, 1):
        _write_run(tmp_path, seed)
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def _config():
    config = experiment.default_config()
    config.calibrate, config.num_bootstrap = (), 4
    return config


def test_ensemble_is_a_row_of_every_report(workdir: pathlib.Path) -> None:
    write_ensembles(workdir, _config())
    report.write_report(workdir)
    summary = json.loads((workdir / "summary.json").read_text())
    measured = summary["ensembles"]["test"]["ce"]["uncalibrated"]["metrics"]
    markdown = (workdir / "summary.md").read_text(encoding="utf-8")
    nll = measured["nll"]["mean"]
    assert 0 < measured["disagreement"]["mean"] < 1
    assert f" {nll:.3f} |" in next(x for x in markdown.splitlines() if "ce, ensemble" in x)
    assert f"{nll - 0.9:+.3f}" in markdown.split("### Ensembles on test")[1]
    page = (workdir / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">ce, ensemble</th>' in page
    assert "<h2>Ensembles of the seeds</h2>" in page


def test_ensemble_is_written_once_and_not_shown_when_a_seed_was_added(
    workdir: pathlib.Path,
) -> None:
    write_ensembles(workdir, _config())
    path = workdir / "ce" / "ensemble.json"
    before = path.stat().st_mtime_ns
    write_ensembles(workdir, _config())
    assert path.stat().st_mtime_ns == before
    _write_run(workdir, 2)
    report.write_report(workdir)
    assert "ensembles" not in json.loads((workdir / "summary.json").read_text())
    write_ensembles(workdir, _config())
    assert json.loads(path.read_text())["seeds"] == [0, 1, 2]


def test_seeds_of_other_examples_are_no_ensemble(tmp_path: pathlib.Path) -> None:
    _write_run(tmp_path, 0)
    _write_run(tmp_path, 1, first_id=5)
    write_ensembles(tmp_path, _config())
    assert json.loads((tmp_path / "ce" / "ensemble.json").read_text())["splits"] == {}
