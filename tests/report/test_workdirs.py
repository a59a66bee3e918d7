"""Several workdirs in one table per set."""

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest

from calib_jax import report


def _evaluation(name: str, accuracy: float, error: float) -> dict[str, Any]:
    metrics = {"accuracy": accuracy, "f1_macro": accuracy - 0.1, "f1_weighted": accuracy - 0.05}
    metrics |= {"ece": 0.9, "ece_10": error, "nll": 1.0}
    parameters = {} if name == "uncalibrated" else {"temperature": [1.5]}
    return {"name": name, "metrics": metrics, "intervals": {}, "parameters": parameters}


def _train(
    workdir: pathlib.Path, model: str, method: str, accuracies: list[float], scaling: str
) -> pathlib.Path:
    for seed, accuracy in enumerate(accuracies):
        folder = workdir / method / f"seed_{seed}"
        (folder / "logits").mkdir(parents=True)
        evaluations = [
            _evaluation("uncalibrated", accuracy, 0.2),
            _evaluation("spline", accuracy, 0),
        ]
        evaluations.append(_evaluation(scaling, accuracy, 0.1))
        splits = {"test": evaluations, "emotion_stimulus": evaluations[:1]}
        record = {"method": method, "seed": seed, "num_parameters": 9, "train_seconds": 1.0}
        (folder / "results.json").write_text(json.dumps(record | {"splits": splits}))
        np.savez(folder / "logits" / "test.npz", logits=np.zeros((40, 6)), labels=np.zeros(40))
    config = {"data": {"name": "isear"}, "model": {"name": model}}
    (workdir / "config.json").write_text(json.dumps({"config": config}))
    return workdir


def _ask(workdir: pathlib.Path, data: str, accuracies: list[float]) -> pathlib.Path:
    workdir.mkdir()
    settings = {"data": data, "split": "test", "model": "org/llama", "shots": 2}
    results = [
        _evaluation(f"seed {i}", a, 0.3) | {"seed": i, "malformed": {}}
        for i, a in enumerate(accuracies)
    ]
    (workdir / "settings.json").write_text(json.dumps({"settings": settings}))
    content = {"settings": settings, "num_examples": 30, "results": results}
    (workdir / "results.json").write_text(json.dumps(content))
    return workdir


def _titles(text: str) -> list[str]:
    return re.findall(r"^## (.*)", text, re.M)


def _rows(text: str, title: str) -> list[list[str]]:
    table = text.split(f"## {title}\n\n")[1].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [rows[0], *rows[2:]]


def test_networks_and_language_models_join_in_a_table_per_set(tmp_path: pathlib.Path) -> None:
    text = report.compare_workdirs([
        _train(tmp_path / "isear", "roberta", "csd", [0.6, 0.7], "temperature_ece"),
        _train(tmp_path / "isear_lcl", "electra", "lcl", [0.5], "temperature"),
        _ask(tmp_path / "asked", "isear", [0.4, 0.5]),
        _ask(tmp_path / "other", "emotion_stimulus", [0.8]),
    ])  # fmt: skip
    assert _titles(text) == ["isear", "emotion_stimulus"]
    assert _rows(text, "isear") == [
        ["method", "examples", "accuracy %", "F1 %", "ECE-10 %", "ECE-10 % +T"],
        ["isear/csd", "40", "**65.00±7.07**", "**55.00±7.07** (60.00±7.07)", "**20.00±0.00**",
         "10.00±0.00"],
        ["isear_lcl/lcl", "40", "50.00", "40.00 (45.00)", "**20.00**", "10.00"],
        ["asked/org/llama", "30", "45.00±7.07", "35.00±7.07 (40.00±7.07)", "30.00±0.00", "–"],
    ]  # fmt: skip
    shifted = _rows(text, "emotion_stimulus")
    assert [row[:3] for row in shifted[1:]] == [
        ["isear/csd", "–", "65.00±7.07"],
        ["isear_lcl/lcl", "–", "50.00"],
        ["other/org/llama", "30", "80.00"],
    ]
    assert text.splitlines()[-4:] == [
        "- isear: roberta, seeds 0, 1, +T by temperature_ece",
        "- isear_lcl: electra, seed 0, +T by temperature",
        "- asked: org/llama, 2 examples per class in the prompt, seeds 0, 1",
        "- other: org/llama, 2 examples per class in the prompt, seed 0",
    ]


def test_other_examples_are_in_other_tables(tmp_path: pathlib.Path) -> None:
    """Sets of one name with other options of their readers, and the noise of different images."""
    workdirs = []
    for name, data in {
        "a": {"name": "hellaswag", "options": {"source": "wikihow", "num_train": 9}},
        "b": {"name": "cifar10", "shift": ["gaussian_noise:5", "hellaswag_wikihow"]},
        "c": {"name": "cifar100", "shift": ["gaussian_noise:5"], "options": {"by_date": False}},
    }.items():
        workdirs.append(_train(tmp_path / name, "bert", "ce", [0.5], "temperature"))
        (tmp_path / name / "config.json").write_text(json.dumps({"config": {"data": data}}))
        path = tmp_path / name / "ce" / "seed_0" / "results.json"
        record = json.loads(path.read_text())
        shifted = record["splits"].pop("emotion_stimulus")
        names = [entry.replace(":", "_") for entry in data.get("shift", [])]
        record["splits"] |= dict.fromkeys(names, shifted)
        path.write_text(json.dumps(record))
    text = report.compare_workdirs(workdirs)
    found = {title: [r[0] for r in _rows(text, title)[1:]] for title in _titles(text)}
    assert found == {
        "hellaswag_wikihow": ["a/ce", "b/ce"],
        "cifar10": ["b/ce"],
        "cifar10 gaussian_noise_5": ["b/ce"],
        "cifar100": ["c/ce"],
        "cifar100 gaussian_noise_5": ["c/ce"],
    }


def _robust(
    workdir: pathlib.Path, eps: float, rows: dict[str, tuple[float, float]]
) -> pathlib.Path:
    """A workdir of adversarial training at one radius: clean and attacked accuracy of its methods."""
    for method, (clean, attacked) in rows.items():
        for seed in (0, 1):
            folder = workdir / method / f"seed_{seed}"
            folder.mkdir(parents=True)
            at = {"accuracy": clean - 0.2, "ece": 0.1 + seed / 50, "ece_temperature": 0.05}
            robustness = {
                "corruptions": {
                    "mean": at,
                    "severity": {"0": at | {"accuracy": clean}},
                    "type": {},
                },
                "attack": {"clean_accuracy": clean, "accuracy": attacked},
            }
            record = {"method": method, "seed": seed, "num_parameters": 9, "train_seconds": 1.0}
            record |= {"splits": {"test": [_evaluation("uncalibrated", clean, 0.2)]}}
            (folder / "results.json").write_text(json.dumps(record | {"robustness": robustness}))
    config = {"data": {"name": "cifar10"}, "method": {"adversarial": {"eps": eps}}}
    config["robustness"] = {"attack_eps": 0.03}
    (workdir / "config.json").write_text(json.dumps({"config": config}))
    return workdir


def test_radii_of_adversarial_training_share_one_vanilla_run(tmp_path: pathlib.Path) -> None:
    """Table IV and figure 7 of AutoLabel: Δ against the one cross entropy there is, and a plot."""
    workdirs = [
        _robust(tmp_path / "a", 0.03, {"cross_entropy": (0.9, 0.0), "adversarial": (0.8, 0.5)}),
        _robust(tmp_path / "b", 0.1, {"adversarial": (0.6, 0.4)}),
    ]
    out = tmp_path / "out"
    text = report.compare_workdirs(workdirs, by="method.adversarial.eps", folder=out)
    title = "cifar10 attacked at 0.03"
    table = text.split(f"## {title}: under corruption")[1].split("\n\n")[2].splitlines()
    rows = [[cell.strip(" *†") for cell in line.strip("|").split("|")] for line in table]
    header, _, *cells = rows
    shown = {row[0]: dict(zip(header, row, strict=True)) for row in cells}
    assert {row: values["Δ %"] for row, values in shown.items()} == {
        "a/cross_entropy": "–",
        "a/adversarial": "+40.00",
        "b/adversarial": "+10.00",
    }
    assert shown["b/adversarial"]["cAccuracy %"] == "40.00±0.00"
    assert shown["b/adversarial"]["cECE %"] == "11.00±1.41"
    assert (out / "comparison.md").read_text() == text + "\n"
    assert (out / "comparison_cifar10_attacked_at_0.03.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match=r"--by=method.eps: no such key in .*config.json"):
        report.compare_workdirs(workdirs, by="method.eps")


def test_a_method_of_one_workdir_is_a_horizontal_line() -> None:
    def entry(accuracy: float) -> dict[str, Any]:
        return {"attack": {"accuracy": {"mean": accuracy, "std": 0.01, "n": 2}}}

    figure = report.plot_across(
        [
            report.Point("cross_entropy", 0.03, entry(0.0)),
            report.Point("adversarial", 0.03, entry(0.5)),
            report.Point("adversarial", 0.1, entry(0.4)),
        ],
        "radius",
    )
    assert figure is not None
    (axes,) = figure.axes
    assert (axes.get_title(), axes.get_xlabel()) == ("attacked accuracy, %", "radius")
    flat = next(line for line in axes.lines if line.get_label() == "cross_entropy")
    line = axes.containers[0].lines[0]
    np.testing.assert_allclose(flat.get_ydata(), [0, 0])
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), [0.03, 0.1])
    np.testing.assert_allclose(line.get_ydata(), [50, 40])
    assert report.plot_across([report.Point("adversarial", 0.1, {})], "radius") is None


def test_logits_that_cannot_be_read_are_named(tmp_path: pathlib.Path) -> None:
    workdir = _train(tmp_path / "isear", "bert", "ce", [0.5], "temperature")
    (workdir / "ce/seed_0/logits/test.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"test\.npz: expected an npz archive, this is none"):
        report.compare_workdirs([workdir])


def test_workdirs_of_one_name_are_told_apart(tmp_path: pathlib.Path) -> None:
    workdirs = [
        _train(tmp_path / part / "isear", "bert", "ce", [0.5], "temperature") for part in "ab"
    ]
    found = [row[0] for row in _rows(report.compare_workdirs(workdirs), "isear")[1:]]
    assert found == [f"{workdir}/ce" for workdir in workdirs]
    with pytest.raises(ValueError, match="ce with seed 0 is there twice"):
        report.compare_workdirs([workdirs[0], workdirs[0]])


def test_what_is_not_finished_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"isear: no finished run, expected .*; train first"):
        report.compare_workdirs([tmp_path / "isear"])
    (_ask(tmp_path / "asked", "isear", [0.5]) / "results.json").unlink()
    with pytest.raises(ValueError, match=r"results.json: .*run calib_jax.llm until all is answer"):
        report.compare_workdirs([tmp_path / "asked"])
