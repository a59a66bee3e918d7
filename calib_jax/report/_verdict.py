"""The verdict: whether predictions are over- or underconfident, by how much, and what helps."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from calib_jax.metrics import METRICS
from calib_jax.report._summary import temperature_scaling, with_gap
from calib_jax.report._summary_tables import UNCALIBRATED, mean_temperature
from calib_jax.report._table import Cell, Table, to_markdown, with_interval
from calib_jax.report._types import Summary


class Evaluation(Protocol):
    """What a verdict needs of `evaluation.Evaluation`."""

    @property
    def name(self) -> str:
        """Name of the calibrator; the first one is `uncalibrated`."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Values of `metrics.summary`."""

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """95 % intervals of some of them."""

    @property
    def parameters(self) -> Mapping[str, Sequence[float]]:
        """The few numbers of the calibrator."""

    @property
    def confidence(self) -> np.ndarray:
        """Top-label confidence `[n]`."""

    @property
    def correct(self) -> np.ndarray:
        """Whether the prediction is right `[n]`."""


class ComparedEvaluation(Evaluation, Protocol):
    """What a comparison needs besides."""

    @property
    def differences(self) -> Mapping[str, tuple[float, float]]:
        """95 % intervals of paired differences from the first evaluation."""


def verdict(evaluations: Sequence[Evaluation]) -> str:
    """Return one sentence on the predictions, and on temperature scaling or the best calibrator.

    The gap is mean confidence less accuracy, its interval that of a mean over the examples. Without a
    temperature among the calibrators, the one with the least NLL counts.

    Args:
      evaluations: Evaluation of the uncalibrated predictions, then one per calibrator.

    >>> import numpy as np, types
    >>> e = types.SimpleNamespace(name="uncalibrated", metrics={"ece": 0.1}, parameters={})
    >>> e.confidence, e.correct = np.full(400, 0.9), np.arange(400) % 5 > 0
    >>> verdict([e])
    'Overconfident by 10.0 points (95 % interval 6.1 to 13.9), ECE 10.0 %.'
    """
    before, *calibrated = evaluations
    gap, half = gap_and_half_width(before.confidence, before.correct)
    is_clear = abs(gap) > half
    low, high = sorted([abs(gap) - half, abs(gap) + half])
    ends = f"{low:.1f} to {high:.1f}" if is_clear else f"{gap - half:+.1f} to {gap + half:+.1f}"
    text = _gap_sentence(gap, is_clear, f"95 % interval {ends}", before.metrics["ece"])
    if calibrated:
        chosen = _chosen(calibrated)
        after, _ = gap_and_half_width(chosen.confidence, chosen.correct)
        temperature = chosen.parameters.get("temperature") if is_temperature(chosen.name) else None
        label = chosen.name
        if temperature:
            mean = float(np.mean(temperature))
            label = f"temperature {mean:.2f}" if mean < 100 else f"temperature {mean:.3g}"
        text += _after_sentence(label, gap if is_clear else None, after, chosen.metrics["ece"])
    return f"{text}."


def method_verdicts(summary: Summary, split: str) -> list[str]:
    """Return one sentence per method on a set, of means over the seeds.

    Args:
      summary: Summary from `summarize`; methods whose gap was not measured have no sentence.
      split: Name of the set.
    """
    scaling = temperature_scaling(summary)
    sentences = []
    for method, by_calibrator in summary["splits"][split].items():
        before = by_calibrator[UNCALIBRATED]["metrics"]
        if not {"gap", "ece"} <= before.keys():
            continue
        gap, std, n = 100 * before["gap"]["mean"], before["gap"]["std"], before["gap"]["n"]
        spread = "one seed" if std is None else f"±{100 * std:.1f} over {n} seeds"
        is_clear = std is None or abs(gap) > 100 * std
        text = _gap_sentence(gap, is_clear, spread, before["ece"]["mean"])
        after = by_calibrator.get(scaling, {"metrics": {}})["metrics"]
        if {"gap", "ece"} <= after.keys():
            label = f"temperature {mean_temperature(by_calibrator, scaling)}"
            after_gap, ece = 100 * after["gap"]["mean"], after["ece"]["mean"]
            text += _after_sentence(label, gap if is_clear else None, after_gap, ece)
        sentences.append(f"{method}: {text[0].lower()}{text[1:]}.")
    return sentences


def gain_text(after: Mapping[str, float], before: Mapping[str, float], key: str) -> str:
    """Return the signed change of a metric in its unit."""
    metric = METRICS[key]
    change = metric.scale * (with_gap(after)[key] - with_gap(before)[key])
    return f"{change:+.{2 if metric.is_percent else 4}f}"


def gap_and_half_width(confidence: np.ndarray, correct: np.ndarray) -> tuple[float, float]:
    """Return mean confidence less accuracy and half of its 95 % interval, in percentage points."""
    difference = np.asarray(confidence, np.float64) - np.asarray(correct, np.float64)
    error = difference.std() / max(len(difference), 1) ** 0.5
    return 100 * float(difference.mean()), 196 * float(error)


def gap_text(gap: float) -> str:
    """Return a gap in percentage points in words: `overconfident by 3.5 points`."""
    if round(abs(gap), 1) == 0:
        return "neither over- nor underconfident on average"
    return f"{'over' if gap > 0 else 'under'}confident by {abs(gap):.1f} points"


def is_temperature(name: str) -> bool:
    """Return whether a calibrator is temperature scaling, by whichever criterion."""
    return name.startswith("temperature")


def _chosen(calibrated: Sequence[Evaluation]) -> Evaluation:
    scaled = [e for e in calibrated if is_temperature(e.name)]
    return scaled[0] if scaled else min(calibrated, key=lambda e: e.metrics["nll"])


def _gap_sentence(gap: float, is_clear: bool, spread: str, ece: float) -> str:
    text = f"{gap_text(gap)} ({spread})"
    if not is_clear:
        text = f"neither over- nor underconfident on average ({gap:+.1f} points, {spread})"
    return f"{text[0].upper()}{text[1:]}, ECE {100 * ece:.1f} %"


def _after_sentence(label: str, before: float | None, after: float, ece: float) -> str:
    """Return what a calibrator does to a gap; `before` is `None` if there was no clear one."""
    numbers = f"{after:+.1f} points, ECE {100 * ece:.1f} % after it"
    if before is None:
        return f"; {label}: {numbers}"
    left = abs(after) / abs(before)
    shares = (("nearly all of it", 0.1), ("most of it", 0.5), ("part of it", 0.95))
    removed = next((words for words, limit in shares if left <= limit), None)
    action = f"removes {removed}" if removed else "does not remove it"
    return f"; {label} {action} ({numbers})"


def difference_table(
    evaluations: Sequence[ComparedEvaluation], *, max_width: int | None = None
) -> str:
    """Return a Markdown table of the paired differences from the first evaluation.

    Args:
      evaluations: Evaluation that the others are compared with, then the others.
      max_width: Number of characters of a line; what is wider is continued in a table below.
    """
    first, *others = evaluations
    rows = []
    for key, metric in METRICS.items():
        if not all(key in e.differences for e in others):
            continue
        cells = []
        for evaluation in others:
            interval = evaluation.differences[key]
            change = evaluation.metrics[key] - first.metrics[key]
            mark = "" if interval[0] <= 0 <= interval[1] else " !"
            cells.append(Cell(with_interval(change, interval, metric) + mark))
        rows.append((metric.heading, cells))
    names = [evaluation.name for evaluation in others]
    return to_markdown(Table.from_rows("", names, rows, f"less {first.name}"), max_width)
