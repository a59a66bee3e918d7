"""The page and tables of independent labels."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from matplotlib.figure import Figure

from calib_jax.metrics import METRICS
from calib_jax.report._evaluation_page import LEGEND, Predictions, compact_table, full_section
from calib_jax.report._page import Picture, Section, write_html
from calib_jax.report._table import Cell, Table, to_markdown, with_interval
from calib_jax.report._verdict import Evaluation

_LABEL_METRICS = (
    *("base_rate", "mean_positive", "accuracy", "nll", "brier_positive"),
    *("ece_positive", "ece_top", "auroc_positive"),
)


class LabelEvaluation(Evaluation, Protocol):
    """What the tables need of `evaluation.Evaluation`."""

    @property
    def per_label(self) -> Mapping[str, Sequence[float]]:
        """Metrics of each of several independent labels."""


def write_label_page(
    path: str | pathlib.Path,
    test: Predictions,
    evaluations: Sequence[LabelEvaluation],
    figure: Figure,
) -> None:
    """Write one self-contained HTML file on predictions of independent labels.

    Args:
      path: File to write.
      test: Predictions that were evaluated.
      evaluations: Evaluation of the uncalibrated predictions, then one per calibrator.
      figure: Reliability diagram.
    """
    names = ", ".join(e.name for e in evaluations)
    caption = "Share of labels that are 1, in 15 bins of P(y=1); all labels together."
    picture = Picture(figure, f"Reliability diagrams of {names}", caption)
    tables = [_label_table(e, test.label_names or ()) for e in evaluations if e.per_label]
    by_label = [Section("By label", tables=tables)] if tables else []
    several = " The numbers are means over the labels." if tables else ""
    write_html(
        path,
        title="Calibration of predictions",
        verdicts=[],
        headline=" ".join(f"{note.rstrip('.')}." for note in test.notes),
        tables=[compact_table(evaluations)],
        legend=LEGEND + several,
        sections=[
            Section("Reliability", pictures=[picture]),
            *by_label,
            full_section(evaluations),
        ],
        explained=[*_LABEL_METRICS, "aurc"],
    )


def label_table(evaluation: LabelEvaluation, label_names: Sequence[str] = ()) -> str:
    """Return a Markdown table with a row per label.

    Args:
      evaluation: Evaluation of several labels.
      label_names: Their names; numbers if there are none.

    >>> import types
    >>> e = types.SimpleNamespace(name="platt", per_label={"nll": [0.5, 0.25]})
    >>> print(label_table(e, ["cat", "dog"]))
    | platt |    NLL |
    |-------|-------:|
    | cat   | 0.5000 |
    | dog   | 0.2500 |
    """
    return to_markdown(_label_table(evaluation, label_names))


def _label_table(evaluation: LabelEvaluation, label_names: Sequence[str]) -> Table:
    keys = [key for key in _LABEL_METRICS if key in evaluation.per_label]
    columns = [[_cell(x, key) for x in evaluation.per_label[key]] for key in keys]
    names = label_names or list(map(str, range(len(columns[0]))))
    headings = [METRICS[key].short_heading for key in keys]
    rows = list(zip(names, map(list, zip(*columns, strict=True)), strict=True))
    return Table.from_rows(evaluation.name, headings, rows, evaluation.name)


def _cell(value: float, key: str) -> Cell:
    return Cell("–" if np.isnan(value) else with_interval(value, None, METRICS[key]))
