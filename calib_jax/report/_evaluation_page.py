"""The page of `python -m calib_jax.evaluate`: predictions before and after calibration."""

import pathlib
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
from matplotlib.figure import Figure

from calib_jax.metrics import METRICS
from calib_jax.report._group_tables import (
    CLASSES_LEGEND,
    GROUPS_LEGEND,
    class_table,
    group_table,
    outcomes,
)
from calib_jax.report._interactive import take_sample
from calib_jax.report._page import Picture, Section, write_html
from calib_jax.report._prediction_plots import plot_reliability, plot_risk_coverage
from calib_jax.report._set_table import SETS_LEGEND, EvaluationWithSets, conformal_table
from calib_jax.report._summary import with_gap
from calib_jax.report._summary_tables import SCORES
from calib_jax.report._table import EMPTY, Cell, Table, best_of, with_interval
from calib_jax.report._verdict import Evaluation, gain_text, is_temperature, verdict

_COMPACT = (
    *("accuracy", "gap", *SCORES),
    *("brier_positive", "ece_positive", "ece_top", "auroc_positive"),
)
_WITH_GAIN = (*SCORES, "brier_positive", "ece_positive", "ece_top")
_MAX_CLASSES = 1000  # rows of the table by class
LEGEND = (
    "In brackets the 95 % bootstrap interval over the examples; below it, the change against the "
    "uncalibrated predictions. The best of a column is bold where it has intervals. All numbers are of "
    "all rows."
)


class Predictions(Protocol):
    """What the page needs of `evaluation.Predictions`."""

    @property
    def logits(self) -> np.ndarray:
        """Logits `[n, num_classes]`."""

    @property
    def labels(self) -> np.ndarray:
        """Labels `[n]`."""

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the file, one sentence each."""

    @property
    def label_names(self) -> Sequence[str] | None:
        """Names of the classes."""

    @property
    def groups(self) -> np.ndarray | None:
        """Name of each example's subgroup `[n]`."""


def write_evaluation_page(
    path: str | pathlib.Path,
    test: Predictions,
    evaluations: Sequence[Evaluation],
    *,
    interactive: bool = True,
    title: str = "Calibration of predictions",
    figures: tuple[Figure, Figure] | None = None,
) -> None:
    """Write one self-contained HTML file with all that was evaluated.

    Args:
      path: File to write.
      test: Predictions that were evaluated.
      evaluations: Evaluation of the uncalibrated predictions, then one per calibrator.
      interactive: Whether to embed a sample of the predictions for the interactive figure.
      title: Title of the page.
      figures: Plots of reliability and of risk and coverage, if they are drawn already.
    """
    n, num_classes = test.logits.shape
    samples = []
    if interactive:
        temperatures = {
            e.name: float(np.mean(e.parameters["temperature"]))
            for e in evaluations
            if is_temperature(e.name) and "temperature" in e.parameters
        }
        samples.append(take_sample(
            "predictions", test.logits, test.labels, names=test.label_names,
            temperatures=temperatures,
        ))  # fmt: skip
    notes = " ".join(f"{note.rstrip('.')}." for note in test.notes)
    write_html(
        path,
        title=title,
        verdicts=[verdict(evaluations)],
        headline=notes or f"{n} predictions over {num_classes} classes.",
        tables=[compact_table(evaluations)],
        legend=LEGEND,
        sections=[
            *_plot_sections(evaluations, figures),
            *_set_sections(evaluations),
            *_group_sections(test),
            full_section(evaluations),
        ],
        samples=samples,
    )


def compact_table(evaluations: Sequence[Evaluation]) -> Table:
    """Return a row per calibrator, with intervals and the gain over the uncalibrated predictions."""
    values = [with_gap(e.metrics) for e in evaluations]
    keys = [key for key in _COMPACT if all(key in measured for measured in values)]
    best = {key: _best(evaluations, key) for key in keys}
    has_temperature = any("temperature" in e.parameters for e in evaluations)
    rows = []
    for i, (evaluation, measured) in enumerate(zip(evaluations, values, strict=True)):
        cells = []
        for key in keys:
            number, _, interval = with_interval(
                measured[key], evaluation.intervals.get(key), METRICS[key]
            ).partition(" ")
            gain = gain_text(measured, values[0], key) if i and key in _WITH_GAIN else ""
            mark = "best" if measured[key] == best[key] else ""
            cells.append(Cell(number, interval, gain, mark))
        temperature = evaluation.parameters.get("temperature", ())
        if has_temperature:
            cells.append(Cell(", ".join(f"{t:.2f}" for t in temperature)) if temperature else EMPTY)
        rows.append((evaluation.name, cells))
    headings = [METRICS[key].short_heading for key in keys] + ["T"] * has_temperature
    return Table.from_rows("Before and after calibration", headings, rows, "calibrator")


def _best(evaluations: Sequence[Evaluation], key: str) -> float | None:
    """Return the best value, if all have intervals."""
    if not all(key in e.intervals for e in evaluations):
        return None
    return best_of([e.metrics[key] for e in evaluations], METRICS[key].higher_is_better)


def _plot_sections(
    evaluations: Sequence[Evaluation], figures: tuple[Figure, Figure] | None
) -> list[Section]:
    panels = [(e.name, e.confidence, e.correct) for e in evaluations]
    reliability_plot, risk_plot = figures or (plot_reliability(panels), plot_risk_coverage(panels))
    names = ", ".join(e.name for e in evaluations)
    reliability = Picture(
        reliability_plot,
        f"Reliability diagrams of {names}",
        "Accuracy in 15 bins of confidence. The smoothed curve has a 95 % bootstrap band.",
    )
    risk = Picture(
        risk_plot,
        f"Risk-coverage curves of {names}",
        "Error rate among the most confident examples. A calibrator that keeps the order of the "
        "confidences does not move it.",
    )
    return [
        Section("Reliability", pictures=[reliability]),
        Section("Selective prediction", pictures=[risk]),
    ]


def _set_sections(evaluations: Sequence[Evaluation]) -> list[Section]:
    """Return the table of conformal sets, if they were measured."""
    with_sets = [e for e in evaluations if getattr(e, "sets", None)]
    if not with_sets:
        return []
    table = conformal_table(cast(Sequence[EvaluationWithSets], with_sets))
    return [Section("Conformal sets", SETS_LEGEND, tables=[table])]


def _group_sections(test: Predictions) -> list[Section]:
    """Return the tables by subgroup, if there are any, and by class, of the uncalibrated predictions."""
    rows = outcomes(test.logits, test.labels)
    sections = []
    if test.groups is not None:
        table = group_table("Uncalibrated predictions by group", test.groups, rows)
        sections.append(Section("By group", GROUPS_LEGEND, tables=[table]))
    num_classes = test.logits.shape[1]
    names = test.label_names or [str(c) for c in range(num_classes)]
    table = class_table("Uncalibrated predictions by class", test.labels, rows, names)
    text = CLASSES_LEGEND
    if num_classes > _MAX_CLASSES:
        table = _most_predicted(table, rows.predicted)
        text = f"The {_MAX_CLASSES} classes of {num_classes} that are predicted most often. {text}"
    sections.append(Section("By class", text, tables=[table], folded=num_classes > 12))
    return sections


def _most_predicted(table: Table, predicted: np.ndarray) -> Table:
    counts = np.bincount(predicted, minlength=len(table.names))
    kept = np.sort(np.argsort(-counts, kind="stable")[:_MAX_CLASSES])
    rows = table.rows
    headings = [column.title for column in table.columns]
    return Table.from_rows(table.title, headings, [rows[i] for i in kept], table.corner)


def full_section(evaluations: Sequence[Evaluation]) -> Section:
    """Return all metrics, a row for each."""
    values = [with_gap(e.metrics) for e in evaluations]
    rows = []
    for key, metric in METRICS.items():
        if all(key in measured for measured in values):
            texts = [
                with_interval(measured[key], e.intervals.get(key), metric).partition(" ")
                for e, measured in zip(evaluations, values, strict=True)
            ]
            rows.append((metric.heading, [Cell(number, ends) for number, _, ends in texts]))
    parameters = [
        f"{e.name}: {key} = {', '.join(f'{v:.4g}' for v in numbers)}"
        for e in evaluations
        for key, numbers in e.parameters.items()
    ]
    table = Table.from_rows("All metrics", [e.name for e in evaluations], rows, "metric")
    return Section("All metrics", tables=[table], code="\n".join(parameters), folded=True)
