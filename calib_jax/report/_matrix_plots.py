"""Plots of matrices of label against prediction."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

MAX_CLASSES = 20  # a larger matrix cannot be read


def confusion_counts(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Count the examples of each label (row) that are predicted as each class (column)."""
    counts = np.zeros((num_classes, num_classes), int)
    np.add.at(counts, (labels, predicted), 1)
    return counts


def largest_error(values: np.ndarray) -> float:
    """Return the largest value off the diagonal `[num_classes, num_classes]`, above 0."""
    right = np.eye(len(values), dtype=bool)
    return max(float(np.max(values[~right], initial=0.0)), 1e-9)


def draw_matrix(
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    names: Sequence[str],
    row_names: Sequence[str],
    *,
    ylabel: str,
    title: str,
    top: float,
    cell: float = 0.38,
) -> Figure:
    """Draw a matrix whose errors are colored by their values; right predictions stay grey.

    Args:
      values: Numbers `[num_classes, num_classes]`.
      texts: Texts in the cells, of the same shape.
      names: Names of the columns.
      row_names: Names of the rows.
      ylabel: Label of the rows.
      title: Title of the picture.
      top: Value of the darkest color, the same in pictures that are compared.
      cell: Side of a cell in inches.
    """
    k = len(names)
    right = np.eye(k, dtype=bool)
    errors = np.where(right, np.nan, values)
    size = 1.4 + cell * k
    width = size + 0.5 + 0.07 * max(0, max(map(len, row_names)) - 14)  # room for long names
    figure = Figure(figsize=(width, size), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("0.92")
    axes.imshow(errors, cmap="Oranges", vmin=0, vmax=top)
    for i, j in np.ndindex(k, k):
        if texts[i][j]:
            dark = i != j and values[i, j] > 0.6 * top
            color = "white" if dark else "black"
            axes.text(j, i, texts[i][j], ha="center", va="center", fontsize=8, color=color)
    axes.set_xticks(range(k), names, fontsize=8)
    if max(map(len, names)) > 3:
        axes.set_xticks(range(k), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(k), row_names, fontsize=8)
    axes.set(xlabel="predicted", ylabel=ylabel)
    axes.set_title(title, fontsize=9)
    return figure
