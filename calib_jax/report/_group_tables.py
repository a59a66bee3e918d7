"""Tables of calibration by class and by subgroup."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calib_jax.metrics import METRICS
from calib_jax.report._table import EMPTY, Cell, Table

SMALL_GROUP = 50  # examples; the interval of a smaller group's accuracy is up to 28 points wide
GROUPS_LEGEND = (
    "Gap: mean confidence less accuracy, with its 95 % interval; above zero overconfident. Groups of "
    f"fewer than {SMALL_GROUP} examples are grey: their numbers are noisy, and their ECE is too large "
    "by that noise."
)
CLASSES_LEGEND = (
    "Precision, confidence, gap and ECE are of the examples that are predicted as the class. "
    + GROUPS_LEGEND
)
_NUM_BINS = 15
_CHUNK = 1 << 16  # rows that are in memory as probabilities


class Outcomes(NamedTuple):
    """What is known of each prediction, each `[n]`.

    Attributes:
      predicted: Predicted class.
      confidence: Probability of that class.
      correct: Whether it is the label.
      nll: Negative log likelihood of the label.
      brier: Squared distance between probabilities and one-hot label.
    """

    predicted: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray
    nll: np.ndarray
    brier: np.ndarray


def outcomes(logits: np.ndarray, labels: np.ndarray) -> Outcomes:
    """Return what is known of each prediction.

    Args:
      logits: Logits `[n, num_classes]`.
      labels: Labels `[n]`.

    >>> import numpy as np
    >>> outcomes(np.array([[0.0, 0.0], [9.0, 0.0]]), np.array([1, 0])).nll.round(4).tolist()
    [0.6931, 0.0001]
    """
    chunks = []
    for start in range(0, len(labels), _CHUNK):
        z, y = logits[start : start + _CHUNK], labels[start : start + _CHUNK]
        rows, predicted = np.arange(len(y)), z.argmax(axis=1)
        z = z - z[rows, predicted][:, None]
        exp = np.exp(z)
        total = exp.sum(axis=1, dtype=np.float64)
        nll = np.log(total) - z[rows, y]
        squares = np.einsum("ij,ij->i", exp, exp) / total**2
        brier = squares - 2 * exp[rows, y] / total + 1
        chunks.append(Outcomes(predicted, 1 / total, predicted == y, nll, brier))
    return Outcomes(*(np.concatenate(field) for field in zip(*chunks, strict=True)))


def group_table(title: str, groups: np.ndarray, rows: Outcomes) -> Table:
    """Return a row per subgroup, in the order of their names; small ones are marked, none dropped.

    Args:
      title: Title of the table.
      groups: Name or number of each example's group `[n]`.
      rows: Outcomes of the examples.

    >>> import numpy as np
    >>> rows = outcomes(np.zeros((3, 2)), np.array([0, 1, 0]))
    >>> group_table("by place", np.array(["b", "a", "b"]), rows).names
    ['a', 'b']
    """
    names, index = np.unique(groups, return_inverse=True)
    statistics = _by_group(index.ravel(), len(names), rows)
    keys = list(statistics.metrics)
    headings = ["examples", *(METRICS[key].short_heading for key in keys)]
    cells = [(str(name), statistics.cells(i, keys)) for i, name in enumerate(names)]
    return Table.from_rows(title, headings, cells, "group")


def class_table(title: str, labels: np.ndarray, rows: Outcomes, names: Sequence[str]) -> Table:
    """Return a row per class: the examples that are predicted as it, and those that belong to it.

    Precision is the accuracy of the examples that are predicted as the class, so that its gap to their
    mean confidence is that of the reliability diagram of these examples.

    Args:
      title: Title of the table.
      labels: Labels `[n]`.
      rows: Outcomes of the examples.
      names: Names of the classes.

    >>> import numpy as np
    >>> labels = np.array([0, 1, 0])
    >>> class_table("by class", labels, outcomes(np.zeros((3, 2)), labels), ["cat", "dog"]).names
    ['cat', 'dog']
    """
    k = len(names)
    statistics = _by_group(rows.predicted, k, rows)
    sizes = np.bincount(labels, minlength=k)
    recall = np.bincount(labels, weights=rows.correct, minlength=k) / np.maximum(sizes, 1)
    headings = ["labeled", "recall %", "predicted", "precision %"]
    headings += [METRICS[key].short_heading for key in ("confidence", "gap", "ece")]
    table_rows = []
    for c, name in enumerate(names):
        labeled = [Cell(str(sizes[c])), Cell(f"{100 * recall[c]:.1f}") if sizes[c] else EMPTY]
        cells = statistics.cells(c, ("accuracy", "confidence", "gap", "ece"))
        table_rows.append((str(name), [*labeled, *cells]))
    return Table.from_rows(title, headings, table_rows, "class")


class _Groups(NamedTuple):
    """Number of examples of every group, metrics, and half of the 95 % interval of the gap."""

    counts: np.ndarray
    metrics: dict[str, np.ndarray]
    half_width: np.ndarray

    def cells(self, i: int, keys: Sequence[str]) -> list[Cell]:
        """Return the cells of a group: its number of examples, then its metrics."""
        n = self.counts[i]
        if not n:
            return [Cell("0", mark="few"), *[EMPTY] * len(keys)]
        mark = "few" if n < SMALL_GROUP else ""
        cells = [Cell(str(n), note="(few)" if mark else "", mark=mark)]
        for key in keys:
            value, scale = self.metrics[key][i], METRICS[key].scale
            if key == "gap":
                ends = [f"{100 * (value + s * self.half_width[i]):+.1f}" for s in (-1, 1)]
                cells.append(Cell(f"{100 * value:+.1f}", note=f"[{', '.join(ends)}]", mark=mark))
            else:
                cells.append(Cell(f"{scale * value:.{1 if scale == 100 else 3}f}", mark=mark))
        return cells


def _by_group(index: np.ndarray, num_groups: int, rows: Outcomes) -> _Groups:
    counts = np.bincount(index, minlength=num_groups)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(index, weights=values, minlength=num_groups) / np.maximum(counts, 1)

    difference = rows.confidence - rows.correct
    bins = np.clip(np.ceil(rows.confidence * _NUM_BINS) - 1, 0, _NUM_BINS - 1).astype(int)
    cells = np.bincount(
        index * _NUM_BINS + bins, weights=difference, minlength=num_groups * _NUM_BINS
    )
    ece = np.abs(cells).reshape(num_groups, _NUM_BINS).sum(axis=1) / np.maximum(counts, 1)
    gap = mean(difference)
    variance = np.maximum(mean(difference**2) - gap**2, 0)
    means = {
        "accuracy": mean(rows.correct),
        "confidence": mean(rows.confidence),
        "gap": gap,
        "nll": mean(rows.nll),
        "brier": mean(rows.brier),
        "ece": ece,
    }
    return _Groups(counts, means, 1.96 * np.sqrt(variance / np.maximum(counts, 1)))
