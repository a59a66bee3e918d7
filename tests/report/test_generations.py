"""What a report says of generations, of F1, of confusions and of confident errors."""

import json
import pathlib
from typing import Any

import numpy as np
from PIL import Image

from calib_jax import report

NAMES = ["joy", "anger", "fear"]


def _judgements(f1: float, error: float, after: float) -> list[dict[str, Any]]:
    metrics = {"accuracy": f1, "f1_macro": f1, "f1_weighted": f1 + 0.05}
    metrics |= dict.fromkeys(("nll", "brier", "ece_mass"), 0.5)
    made = []
    for name, ece in (("uncalibrated", error), ("temperature_ece", after)):
        parameters = {} if name == "uncalibrated" else {"temperature": [1.5]}
        made.append({"name": name, "metrics": metrics | {"ece": ece}, "parameters": parameters})
    return made


def _record(method: str, seed: int, shift: float = 0.0, chosen: int = 0) -> dict[str, Any]:
    splits = {"test": _judgements(0.7 + shift, 0.1 - shift, 0.05 - shift)}
    record = {"method": method, "seed": seed, "num_parameters": 9, "train_seconds": 1.0}
    record |= {"splits": splits, "label_names": NAMES}
    if chosen:
        numbers = [(0.70, 0.10, 0.05), (0.72, 0.08, 0.03), (0.74 + shift, 0.09, 0.04)]
        record["generation"] = chosen
        record["generations"] = [
            {"generation": n, "splits": {"test": _judgements(*values)}}
            for n, values in enumerate(numbers, start=1)
        ]
    return record


def _records() -> list[dict[str, Any]]:
    return [
        _record("cross_entropy", 0),
        _record("csd", 0, 0.01, chosen=3),
        _record("csd", 1, 0.03, chosen=2),
    ]


def test_generations_compete_with_one_another() -> None:
    summary = report.summarize(_records())
    assert summary["methods"]["csd"]["chosen"] == [3, 2]
    assert "chosen" not in summary["methods"]["cross_entropy"]
    text = report.summary_markdown(summary)
    lines = text.split("## Generations on test")[1].split("\n\n")[2].splitlines()
    header, _, row = ([c.strip() for c in line.strip("|").split("|")] for line in lines)
    assert header[1:4] == ["generation 1 F1 macro %", "generation 1 ECE-15 %", "generation 1 +T"]
    assert header[-1] == "chosen"
    assert row == [
        "csd", "70.00±0.00", "10.00±0.00", "5.00±0.00", "72.00±0.00", "**8.00±0.00**",
        "**3.00±0.00**", "**76.00±1.41**", "9.00±0.00", "4.00±0.00", "3, 2",
    ]  # fmt: skip
    shown = report.comparison_text(summary)
    assert all(len(line) <= 100 for line in shown.splitlines())
    rows = [line.split() for line in shown.splitlines() if line.startswith("csd ")]
    assert rows[1:] == [
        ["csd", "1", "70.00", "10.00", "5.00"],
        ["csd", "2", "72.00", "8.00*", "3.00*", "1", "x"],
        ["csd", "3", "76.00*", "9.00", "4.00", "1", "x"],
    ]


def test_without_generations_nothing_is_said_of_them() -> None:
    summary = report.summarize([_record("cross_entropy", 0)])
    assert "generations" not in summary
    assert "eneration" not in report.summary_markdown(summary) + report.comparison_text(summary)


def _write(workdir: pathlib.Path, texts: bool) -> str:
    rng = np.random.default_rng(0)
    for record in _records():
        folder = workdir / record["method"] / f"seed_{record['seed']}"
        (folder / "logits").mkdir(parents=True)
        labels = rng.integers(0, 3, 60)
        logits = rng.normal(size=(60, 3)) + np.eye(3)[labels]
        np.savez(folder / "logits" / "test.npz", logits=logits, labels=labels)
        (folder / "results.json").write_text(json.dumps(record))
        row = {"epoch": 1.0, "train/loss": 1.0, "val/accuracy": 0.8, "val/ece_mass": 0.1}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        error = {"id": 41, "label": "joy", "predicted": "fear", "confidence": 0.987}
        if texts:
            errors = {"test": [error | {"text": "so <happy> & glad"}]}
            (folder / "errors.json").write_text(json.dumps(errors))
    config = {"data": {"name": "isear"}, "model": {"name": "roberta"}}
    (workdir / "config.json").write_text(json.dumps({"config": config}))
    report.write_report(workdir)
    return (workdir / "report.html").read_text(encoding="utf-8")


def test_page_of_texts(tmp_path: pathlib.Path) -> None:
    page = _write(tmp_path, texts=True)
    assert "Accuracy, F1 and ECE by set" in page
    assert "<small>(75.00)</small>" in page  # the weighted one, beside the macro one
    assert "<small>±1.41</small><small>(77.00±1.41)</small>" in page
    assert "## Accuracy, F1 and ECE by set" in (tmp_path / "summary.md").read_text("utf-8")
    assert "Generations on test" in page
    assert "Most confident errors of csd" in page
    assert '<th scope="row">41</th><td>joy</td><td>fear</td><td>98.7</td>' in page
    assert '<td class="text">so &lt;happy&gt; &amp; glad</td>' in page
    for method in ("csd", "cross_entropy"):
        with Image.open(tmp_path / "plots" / f"confusion_{method}.png") as picture:
            assert picture.size[0] < 700


def test_page_of_other_data(tmp_path: pathlib.Path) -> None:
    page = _write(tmp_path, texts=False)
    assert "by set" not in page
    assert "Most confident errors" not in page
    assert "Classes that are taken for one another" in page


def test_confusion_matrix_has_shares_of_each_label() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    predicted = np.array([0, 0, 0, 1, 1, 1, 0, 0])
    figure = report.plot_confusion(predicted, labels, NAMES)
    (axes,) = figure.axes
    found = {tuple(map(int, t.get_position())): t.get_text() for t in axes.texts}
    assert found == {(0, 0): "75", (1, 0): "25", (1, 1): "100", (0, 2): "100"}  # column, row
    assert [t.get_text() for t in axes.get_yticklabels()] == ["joy (4)", "anger (2)", "fear (2)"]
    errors = axes.images[0].get_array()
    np.testing.assert_array_equal(np.ma.getmaskarray(errors), np.eye(3, dtype=bool))
