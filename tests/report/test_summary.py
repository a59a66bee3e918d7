"""Many runs in few tables: the statistics, what is marked as best, and the shapes of the text."""

import json
import re

import numpy as np
import pytest

from calib_jax import report


def _record(
    method: str, seed: int, before: dict, after: dict | None = None, t: float = 1.5
) -> dict:
    evaluations = [{"name": "uncalibrated", "metrics": before, "intervals": {}, "parameters": {}}]
    if after is not None:
        evaluations.append(_after("temperature", after, t))
    return {
        "method": method, "seed": seed, "num_parameters": 10, "train_seconds": 2.0 + seed,
        "splits": {"test": evaluations},
    }  # fmt: skip


def _after(name: str, metrics: dict, t: float) -> dict:
    return {
        "name": name, "metrics": metrics, "intervals": {}, "parameters": {"temperature": [t]},
    }  # fmt: skip


def _rows(markdown: str, title: str) -> list[list[str]]:
    """The cells of the first table after a heading."""
    lines = markdown.split(f"# {title}\n", 1)[1].strip().splitlines()
    table = lines[: next((i for i, x in enumerate(lines) if not x.startswith("|")), len(lines))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def _column(markdown: str, name: str, title: str = "test") -> list[str]:
    header, _, *rows = _rows(markdown, title)
    return [row[header.index(name)] for row in rows]


def test_sets_stand_side_by_side() -> None:
    records = []
    for method, error in (("ce", 0.2), ("ours", 0.1)):
        record = _record(method, 0, {"accuracy": 0.9, "ece_10": error}, {"ece_10": error / 2})
        outside = [
            dict(record["splits"]["test"][0], metrics={"accuracy": 0.7, "ece_10": 2 * error})
        ]
        records.append(record | {"splits": record["splits"] | {"mnli": outside}})
    text = report.summary_markdown(report.summarize(records))
    title = "Accuracy, F1 and ECE by set"
    meaning, table = text.split(f"## {title}\n\n")[1].split("\n\n", 1)
    assert meaning.startswith("F1: macro; in brackets, weighted")
    header, _, *rows = _rows(f"# {title}\n{table}", title)
    assert header == [
        "method", "test: accuracy %", "test: ECE-10 %", "test: ECE-10 % +T",
        "mnli: accuracy %", "mnli: ECE-10 %",
    ]  # fmt: skip
    assert rows == [
        ["ce", "90.00", "20.00", "10.00", "70.00", "40.00"],
        ["ours", "90.00", "10.00", "5.00", "70.00", "20.00"],
    ]
    summary = report.summarize([_record("ce", 0, {"ece_10": 0.1})])
    assert title not in report.summary_markdown(summary)
    assert title in report.summary_markdown(summary, texts=True)


def test_mean_std_and_number_over_seeds() -> None:
    values, temperatures = [0.1, 0.4, 0.7], [1.0, 1.5, 3.5]
    summary = report.summarize(
        [
            _record("ce", i, {"ece": v}, {"ece": v / 2}, t)
            for i, (v, t) in enumerate(zip(values, temperatures, strict=True))
        ]
    )
    ce = summary["splits"]["test"]["ce"]
    found = ce["uncalibrated"]["metrics"]["ece"]
    assert found == {
        "mean": pytest.approx(0.4), "std": pytest.approx(np.std(values, ddof=1)), "n": 3,
    }  # fmt: skip
    assert ce["temperature"]["metrics"]["ece"]["mean"] == pytest.approx(0.2)
    parameter = ce["temperature"]["parameters"]["temperature"]
    assert parameter["mean"] == pytest.approx([2.0])
    assert parameter["std"] == pytest.approx([np.std(temperatures, ddof=1)])
    assert summary["methods"]["ce"]["seeds"] == [0, 1, 2]
    assert summary["methods"]["ce"]["train_seconds"]["mean"] == pytest.approx(3.0)
    assert json.loads(json.dumps(summary)) == summary


def test_one_seed_has_no_std() -> None:
    summary = report.summarize([_record("ce", 0, {"ece": 0.12})])
    assert summary["splits"]["test"]["ce"]["uncalibrated"]["metrics"]["ece"]["std"] is None
    assert _column(report.summary_markdown(summary), "ECE equal width %") == ["12.00"]
    assert "1 seed\n" in report.comparison_text(summary)


def test_metric_of_some_runs_counts_those() -> None:
    records = [_record("ce", 0, {"ece": 0.1, "auroc": 0.9}), _record("ce", 1, {"ece": 0.3})]
    found = report.summarize(records)["splits"]["test"]["ce"]["uncalibrated"]["metrics"]
    assert (found["ece"]["n"], found["auroc"]["n"]) == (2, 1)


def test_same_run_twice_is_refused() -> None:
    records = [_record("ce", 4, {"ece": 0.1})] * 2
    with pytest.raises(ValueError, match="ce with seed 4 is there twice, expected once"):
        report.summarize(records)


def test_best_is_bold_and_what_is_within_its_std_is_marked() -> None:
    eces = {"best": (0.02, 0.04), "near": (0.035, 0.045), "far": (0.049, 0.051)}
    records = [_record(m, i, {"ece": e}) for m, pair in eces.items() for i, e in enumerate(pair)]
    cells = _column(report.summary_markdown(report.summarize(records)), "ECE equal width %")
    # Best 3.00 with a std of 1.41: 4.00 is within it, 5.00 is not.
    assert cells == ["**3.00±1.41**", "4.00±0.71†", "5.00±0.14"]


def test_more_accuracy_is_less_error_and_better() -> None:
    accuracies = {"a": 0.9, "b": 0.8}
    records = [_record(m, i, {"accuracy": a}) for m, a in accuracies.items() for i in (0, 1)]
    markdown = report.summary_markdown(report.summarize(records))
    assert _column(markdown, "error %") == ["**10.00±0.00**", "20.00±0.00"]
    header, _, row = _rows(markdown, "test: uncalibrated")
    assert dict(zip(header, row, strict=True)) == {
        "metric": "accuracy %", "a": "**90.00±0.00**", "b": "80.00±0.00",
    }  # fmt: skip


def test_numbers_that_look_equal_are_not_ranked() -> None:
    records = [_record("a", 0, {"ece": 0.10001}), _record("b", 0, {"ece": 0.10002})]
    markdown = report.summary_markdown(report.summarize(records))
    assert _column(markdown, "ECE equal width %") == ["10.00", "10.00"]


def test_temperature_stands_beside_the_eces_after_it() -> None:
    before = {"accuracy": 0.9, "nll": 0.5, "ece": 0.1, "smooth_ece": 0.1}
    after = {"accuracy": 0.9, "nll": 0.4, "ece": 0.02, "smooth_ece": 0.03}
    summary = report.summarize(
        [_record("ce", i, before, after, t) for i, t in enumerate((1.5, 2.0))]
    )
    markdown = report.summary_markdown(summary)
    assert _column(markdown, "ECE equal width %") == ["10.00±0.00"]
    assert _column(markdown, "ECE equal width % +T") == ["2.00±0.00 (1.75)"]
    assert _column(markdown, "smooth ECE % +T") == ["3.00±0.00 (1.75)"]
    assert _column(markdown, "NLL +T") == ["0.400±0.000"]
    # A temperature changes no prediction, and what was not measured has no column.
    assert not {"error % +T", "Brier", "AURC %"} & set(_rows(markdown, "test")[0])
    assert _column(markdown, "ce", "test: temperature")[-1] == "1.75±0.35"


def test_every_calibrator_has_its_table_with_metrics_of_any_name() -> None:
    records = [
        _record("a", 0, {"ece": 0.1, "auroc_svhn": 0.5}, {"ece": 0.05}),
        _record("b", 0, {"ece": 0.2}),
    ]
    markdown = report.summary_markdown(report.summarize(records))
    assert _rows(markdown, "test: uncalibrated")[2:] == [
        ["ECE-15 equal width %", "10.00", "20.00"], ["auroc_svhn", "0.5000", "–"],
    ]  # fmt: skip
    assert _rows(markdown, "test: temperature")[0] == ["metric", "a"]
    assert _column(markdown, "ECE equal width % +T") == ["5.00 (1.50)", "–"]


@pytest.mark.parametrize("name", ["ce", "a_method_with_quite_a_long_name_indeed"])
def test_text_fits_a_terminal_of_100_columns(name: str) -> None:
    rng = np.random.default_rng(0)
    keys = ("accuracy", "nll", "brier", "ece", "ece_mass", "smooth_ece", "classwise_ece", "aurc")
    records = [
        _record(f"{i}_{name}", seed, dict.fromkeys(keys, rng.uniform()), dict.fromkeys(keys, 0.3))
        for i in range(9)
        for seed in range(3)
    ]
    lines = report.comparison_text(report.summarize(records)).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "test, 3 seeds"
    table = lines[1:11]
    assert len({len(line) for line in table}) == 1, "columns are aligned"
    assert re.match(r"method +error % +NLL +ECE width % +\+T +ECE mass % +\+T +T$", table[0])
    assert [line[0] for line in table[1:]] == list("012345678")


def test_text_of_texts_has_f1_in_the_place_of_nll() -> None:
    rng = np.random.default_rng(0)
    keys = ("accuracy", "nll", "f1_macro", "f1_weighted", "ece", "ece_mass")
    records = [
        _record(f"method_{i}", seed, dict.fromkeys(keys, rng.uniform()), dict.fromkeys(keys, 0.3))
        for i in range(3)
        for seed in range(2)
    ]
    lines = report.comparison_text(report.summarize(records), texts=True).splitlines()
    assert max(map(len, lines)) <= 100
    assert re.match(r"method +error % +F1 macro % +ECE width % +\+T +ECE mass % +\+T +T$", lines[1])
    means = [np.mean([_f1(r) for r in records[i : i + 2]]) for i in (0, 2, 4)]
    shown = [line.split()[2] for line in lines[2:5]]
    assert [float(cell.split("±")[0]) for cell in shown] == pytest.approx(
        [100 * mean for mean in means], abs=0.005
    )
    assert shown[int(np.argmax(means))].endswith("*"), "more is better"


def _f1(record: dict) -> float:
    return record["splits"]["test"][0]["metrics"]["f1_macro"]


def test_text_marks_the_best_and_gives_the_temperature() -> None:
    records = [
        _record("a", 0, {"accuracy": 0.9, "ece": 0.1}, {"ece": 0.03}, 1.25),
        _record("b", 0, {"accuracy": 0.8, "ece": 0.05}, {"ece": 0.04}, 2.0),
        _record("b", 1, {"accuracy": 0.8, "ece": 0.05}, {"ece": 0.04}, 2.0),
    ]
    lines = report.comparison_text(report.summarize(records)).splitlines()
    assert lines[0] == "test, 1 to 2 seeds"
    # What is best with a single seed may be so by chance: no mark.
    assert lines[2].split() == ["a", "10.00", "10.00", "3.00", "1.25"]
    assert lines[3].split() == ["b", "20.00±0.00", "5.00±0.00*", "4.00±0.00", "2.00"]


def test_first_temperature_scaling_is_shown_and_named() -> None:
    records = [_record("a", 0, {"ece": 0.1}), _record("b", 0, {"ece": 0.1})]
    for record, ece in zip(records, (0.03, 0.05), strict=True):
        record["splits"]["test"] += [
            _after("focal_temperature", {"ece": 0.8}, 8.0),
            _after("temperature_ece_mass", {"ece": ece}, 1.3),
            _after("temperature", {"ece": 0.9}, 9.0),
        ]
    summary = report.summarize(records)
    markdown = report.summary_markdown(summary)
    assert _column(markdown, "ECE equal width % +T") == ["3.00 (1.30)", "5.00 (1.30)"]
    legend = markdown.split("\n\n")[1]
    assert "the calibrator temperature_ece_mass, fitted on validation by least equal-mass" in legend
    text = report.comparison_text(summary)
    assert text.endswith("+T after temperature_ece_mass scaling by T")
    assert text.splitlines()[2].split()[-1] == "1.30"
    assert max(map(len, text.splitlines())) <= 100


def test_nothing_is_said_of_a_temperature_that_is_not_there() -> None:
    summary = report.summarize([_record("a", 0, {"ece": 0.1})])
    assert "+T" not in report.summary_markdown(summary) + report.comparison_text(summary)


def test_rows_of_the_papers_tables() -> None:
    before = {"ce": (0.10, 0.12), "adafocal": (0.02, 0.02)}
    records = [
        _record(m, i, {"accuracy": 0.9 - e, "ece_mass": e}, {"ece_mass": 0.03}, 2.0 + i)
        for m, pair in before.items()
        for i, e in enumerate(pair)
    ]
    for record in records:
        record["splits"]["fog_5"] = record["splits"]["test"]
    summary = report.summarize(records)
    markdown = report.summary_markdown(summary, data="cifar10", model="resnet50")
    assert _rows(markdown, "test: ECE equal mass %: before / after T (T)") == [
        ["data set", "model", "ce", "adafocal"],
        _rows(markdown, "test: ECE equal mass %: before / after T (T)")[1],
        ["cifar10", "resnet50", "11.00±1.41 / 3.00±0.00 (2.50)",
         "**2.00±0.00** / 3.00±0.00 (2.50)"],
    ]  # fmt: skip
    assert _rows(markdown, "test: error %")[2] == [
        "cifar10", "resnet50", "21.00±1.41", "**12.00±0.00**",
    ]  # fmt: skip
    assert _rows(markdown, "fog_5: error %")[2][:2] == ["cifar10 fog_5", "resnet50"]
    # Without temperature scaling there is nothing to stand behind the stroke.
    plain = report.summary_markdown(report.summarize([_record("ce", 0, {"ece_mass": 0.1})]))
    assert _rows(plain, "test: ECE equal mass %")[2] == ["", "", "10.00"]
    assert "error %" not in plain


def _detected(auroc: float, fpr95: float, after: bool = True) -> dict:
    measured = {"auroc": auroc, "fpr95": fpr95}
    moments = {"before": measured} | ({"after": {"auroc": 0.5, "fpr95": 0.9}} if after else {})
    return {"svhn": {"entropy": moments, "confidence": {"before": measured}}}


def test_detection_is_averaged_and_more_auroc_is_better() -> None:
    records = [
        {**_record(m, i, {"ece": 0.1}), "out_of_distribution": _detected(auroc, fpr)}
        for m, runs in {"ce": ((0.8, 0.6), (0.9, 0.4)), "brier": ((0.7, 0.3), (0.7, 0.3))}.items()
        for i, (auroc, fpr) in enumerate(runs)
    ]
    summary = report.summarize(records)
    found = summary["out_of_distribution"]["svhn"]["ce"]["entropy"]["before"]
    assert found["auroc"] == {
        "mean": pytest.approx(0.85), "std": pytest.approx(np.std([0.8, 0.9], ddof=1)), "n": 2,
    }  # fmt: skip
    markdown, title = report.summary_markdown(summary), "svhn told from test"
    part = markdown.split(f"## {title}\n\n")[1]
    assert part.startswith("AUROC: how often an example of the other set has more entropy")
    part = f"# {title}\n" + part.split("\n\n", 1)[1]
    assert _column(part, "AUROC % by entropy", title) == ["**85.00±7.07**", "70.00±0.00"]
    assert _column(part, "FPR95 % by entropy", title) == ["50.00±14.14", "**30.00±0.00**"]
    assert _column(part, "AUROC % by entropy +T", title) == ["50.00±0.00", "50.00±0.00"]
    assert _column(part, "AUROC % by confidence", title) == ["**85.00±7.07**", "70.00±0.00"]
    assert "AUROC % by confidence +T" not in part, "nothing was measured"
    assert json.loads(json.dumps(summary)) == summary
