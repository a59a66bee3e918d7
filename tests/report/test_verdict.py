"""The sentence on top, gains, and tables by class and group."""

import types

import numpy as np
import pytest

from calib_jax import report
from calib_jax.report._table import Column, Table
from calib_jax.report._verdict import gain_text, method_verdicts


def _evaluation(
    name: str, confidence: float, accuracy: float, n: int = 400, **parameters: list[float]
) -> types.SimpleNamespace:
    """Return an evaluation of `n` predictions with one confidence, a share of them right."""
    correct = np.arange(n) < round(accuracy * n)
    values = {
        "accuracy": accuracy, "confidence": confidence, "nll": 0.5 + abs(confidence - accuracy),
        "ece": abs(confidence - accuracy), "brier": 0.3,
    }  # fmt: skip
    return types.SimpleNamespace(
        name=name, metrics=values, intervals={}, parameters=parameters,
        confidence=np.full(n, confidence), correct=correct,
    )  # fmt: skip


def test_verdict_names_direction_interval_and_what_helps() -> None:
    before = _evaluation("uncalibrated", 0.9, 0.8)
    # The standard deviation of 0/1 with mean 0.8 is 0.4: half of the interval is 1.96 x 0.4 / 20.
    assert report.verdict([before]) == (
        "Overconfident by 10.0 points (95 % interval 6.1 to 13.9), ECE 10.0 %."
    )
    after = _evaluation("temperature", 0.83, 0.8, temperature=[1.5, 1.7])
    assert report.verdict([before, _evaluation("spline", 0.8, 0.8), after]) == (
        "Overconfident by 10.0 points (95 % interval 6.1 to 13.9), ECE 10.0 %; temperature 1.60 "
        "removes most of it (+3.0 points, ECE 3.0 % after it)."
    )
    under = [_evaluation("uncalibrated", 0.7, 0.8), _evaluation("spline", 0.805, 0.8)]
    assert report.verdict(under) == (
        "Underconfident by 10.0 points (95 % interval 6.1 to 13.9), ECE 10.0 %; spline removes "
        "nearly all of it (+0.5 points, ECE 0.5 % after it)."
    )


def test_wide_tables_are_continued_below() -> None:
    columns = [(name, {"nll": 0.5}, {"nll": (0.4, 0.6)}) for name in "abcd"]
    text = report.metric_table(columns, max_width=70)
    assert max(map(len, text.splitlines())) <= 70
    assert text == report.metric_table(columns[:2]) + "\n\n" + report.metric_table(columns[2:])
    narrow = report.metric_table(columns, max_width=10)
    assert narrow.count("metric") == 4, "at least one column each"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (0.805, "removes nearly all"),
        (0.84, "removes most"),
        (0.87, "removes part"),
        (0.91, "does not"),
    ],
)
def test_verdict_says_how_much_is_left(after: float, words: str) -> None:
    evaluations = [_evaluation("uncalibrated", 0.9, 0.8), _evaluation("ets", after, 0.8)]
    assert f"; ets {words}" in report.verdict(evaluations)


def test_verdict_without_temperature_is_of_the_least_nll() -> None:
    before = _evaluation("uncalibrated", 0.9, 0.8)
    worse, better = _evaluation("vector", 0.85, 0.8), _evaluation("ets", 0.81, 0.8)
    assert "; ets removes" in report.verdict([before, worse, better])


def test_verdict_does_not_see_a_direction_in_noise() -> None:
    small = _evaluation("uncalibrated", 0.82, 0.8, n=100)
    text = report.verdict([small, _evaluation("temperature", 0.81, 0.8, temperature=[1.1])])
    assert text == (
        "Neither over- nor underconfident on average (+2.0 points, 95 % interval -5.8 to +9.8), "
        "ECE 2.0 %; temperature 1.10: +1.0 points, ECE 1.0 % after it."
    )


def _record(method: str, seed: int, gap: float, after: float) -> dict:
    def values(gap: float) -> dict:
        return {"accuracy": 0.8, "confidence": 0.8 + gap, "ece": abs(gap)}

    evaluations = [
        {"name": "uncalibrated", "metrics": values(gap), "parameters": {}},
        {"name": "temperature", "metrics": values(after), "parameters": {"temperature": [1.5]}},
    ]
    return {"method": method, "seed": seed, "splits": {"test": evaluations}}


def test_methods_have_verdicts_over_seeds_and_gaps_with_signs() -> None:
    records = [_record("ce", 0, 0.05, 0.01), _record("ce", 1, 0.07, 0.01)]
    records += [_record("ls", 0, -0.02, -0.03), _record("mixed", 0, 0.01, 0.0)]
    records += [_record("mixed", 1, -0.02, 0.0)]
    summary = report.summarize(records)
    assert method_verdicts(summary, "test") == [
        "ce: overconfident by 6.0 points (±1.4 over 2 seeds), ECE 6.0 %; temperature 1.50 removes "
        "most of it (+1.0 points, ECE 1.0 % after it).",
        "ls: underconfident by 2.0 points (one seed), ECE 2.0 %; temperature 1.50 does not remove "
        "it (-3.0 points, ECE 3.0 % after it).",
        "mixed: neither over- nor underconfident on average (-0.5 points, ±2.1 over 2 seeds), "
        "ECE 1.5 %; temperature 1.50: +0.0 points, ECE 0.0 % after it.",
    ]
    markdown = report.summary_markdown(summary)
    assert "| gap % | gap % +T |" in " ".join(markdown.split())
    assert "+6.00±1.41" in markdown
    assert "-2.00 |" in markdown


def test_gains_are_signed_changes() -> None:
    before, after = _evaluation("uncalibrated", 0.9, 0.8), _evaluation("ets", 0.82, 0.8)
    gains = {k: gain_text(after.metrics, before.metrics, k) for k in ("nll", "brier", "ece", "gap")}
    assert gains == {"nll": "-0.0800", "brier": "+0.0000", "ece": "-8.00", "gap": "-8.00"}


def test_terminal_table_has_the_gap_and_stars_only_with_intervals() -> None:
    a, b = _evaluation("uncalibrated", 0.9, 0.8), _evaluation("ets", 0.79, 0.8)
    interval = {"ece": (0.0, 0.2)}
    text = report.metric_table([("a", a.metrics, interval), ("b", b.metrics, interval)])
    lines = {line.split("|")[1].strip(): line for line in text.splitlines()}
    assert [c.strip() for c in lines["confidence − accuracy %"].split("|")[2:4]] == [
        "+10.00", "-1.00",
    ]  # fmt: skip
    assert "1.00 [0.00, 20.00]*" in lines["ECE-15 equal width %"]
    assert "*" not in lines["NLL (nats)"], "the NLLs have no intervals here"
    order = list(lines)
    assert order.index("NLL (nats)") < order.index("Brier") < order.index("ECE-15 equal width %")


def _column(table: Table, title: str) -> Column:
    (column,) = [column for column in table.columns if column.title == title]
    return column


@pytest.fixture(scope="module")
def predictions() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    return (3 * rng.normal(size=(300, 4)) + 2 * np.eye(4)[labels]).astype(np.float32), labels


def test_group_table_is_that_of_each_group_alone(
    predictions: tuple[np.ndarray, np.ndarray],
) -> None:
    logits, labels = predictions
    groups = np.where(np.arange(300) < 10, "tiny", np.where(np.arange(300) % 3, "south", "north"))
    table = report.group_table("by place", groups, report.outcomes(logits, labels))
    assert table.names == ["north", "south", "tiny"], "none is dropped"
    probs = np.exp(logits.astype(float))
    probs /= probs.sum(1, keepdims=True)
    confidence, correct = probs.max(1), probs.argmax(1) == labels
    for i, name in enumerate(table.names):
        rows = np.flatnonzero(groups == name)
        n, difference = len(rows), (confidence - correct)[rows]
        bins = np.ceil(15 * confidence[rows]) - 1
        expected = {
            "examples": n,
            "accuracy %": 100 * correct[rows].mean(),
            "confidence %": 100 * confidence[rows].mean(),
            "gap %": 100 * difference.mean(),
            "NLL": -np.log(probs[rows, labels[rows]]).mean(),
            "Brier": ((probs[rows] - np.eye(4)[labels[rows]]) ** 2).sum(1).mean(),
            "ECE equal width %": 100 / n * sum(abs(difference[bins == b].sum()) for b in range(15)),
        }
        assert [column.title for column in table.columns] == list(expected)
        for column in table.columns:
            digits = 3 if column.title in ("NLL", "Brier") else 1
            shown = float(column.cells[i].mean)
            assert shown == pytest.approx(expected[column.title], abs=0.51 * 10**-digits)
        gap = _column(table, "gap %").cells[i]
        assert gap.mean[0] in "+-"
        assert gap.mark == ("few" if name == "tiny" else "")
        low, high = map(float, gap.note.strip("[]").split(", "))
        assert (high - low) / 2 == pytest.approx(196 * difference.std() / n**0.5, abs=0.06)


def test_class_table_has_precision_recall_and_classes_that_are_never_predicted(
    predictions: tuple[np.ndarray, np.ndarray],
) -> None:
    logits, labels = predictions
    logits = logits.copy()
    logits[:, 3] = -20
    table = report.class_table("t", labels, report.outcomes(logits, labels), ["a", "b", "c", "d"])
    predicted = logits.argmax(1)
    for c in range(3):
        precision = 100 * np.mean(labels[predicted == c] == c)
        recall = 100 * np.mean(predicted[labels == c] == c)
        assert float(_column(table, "precision %").cells[c].mean) == pytest.approx(
            precision, abs=0.06
        )
        assert float(_column(table, "recall %").cells[c].mean) == pytest.approx(recall, abs=0.06)
        assert _column(table, "predicted").cells[c].mean == str(np.sum(predicted == c))
        assert _column(table, "labeled").cells[c].mean == str(np.sum(labels == c))
    assert [cell.mean for cell in table.rows[3][1]] == ["0", "–", "0", "–", "–", "–", "–"]
