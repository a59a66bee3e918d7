"""The table of conformal sets."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from calib_jax.metrics import METRICS
from calib_jax.report._table import Cell, Table, to_markdown, with_interval

SETS_LEGEND = (
    "Sets of classes that may miss the label in a chosen share of the examples. Each half of the rows "
    "that a calibrator has not seen has the threshold of the other half. The last two columns are low "
    "by chance where few examples are of a class or have sets of a size."
)
_METRICS = ("coverage", "set_size", "worst_class_coverage", "size_stratified_coverage")


class EvaluationWithSets(Protocol):
    """What the table needs of `evaluation.Evaluation`."""

    @property
    def name(self) -> str:
        """Name of the calibrator."""

    @property
    def sets(self) -> Mapping[str, Mapping[str, float]]:
        """Metrics of conformal sets by their score."""


def set_table(evaluations: Sequence[EvaluationWithSets]) -> str:
    """Return a Markdown table of conformal sets, a row per predictions and score.

    Args:
      evaluations: Evaluations with `sets`.

    >>> import types
    >>> values = {"coverage": 0.9, "set_size": 1.5, "worst_class_coverage": 0.8}
    >>> values["size_stratified_coverage"] = 0.85
    >>> print(set_table([types.SimpleNamespace(name="ets", sets={"lac": values})]).splitlines()[-1])
    | ets, lac |      90.00 |   1.5000 |                  80.00 |                      85.00 |
    """
    return to_markdown(conformal_table(evaluations))


def conformal_table(evaluations: Sequence[EvaluationWithSets]) -> Table:
    """Return the table of `set_table` before it is rendered."""
    rows = [
        (
            f"{evaluation.name}, {score}",
            [Cell(with_interval(values[key], None, METRICS[key])) for key in _METRICS],
        )
        for evaluation in evaluations
        for score, values in evaluation.sets.items()
    ]
    headings = [METRICS[key].short_heading for key in _METRICS]
    return Table.from_rows("Conformal sets", headings, rows, "sets")
