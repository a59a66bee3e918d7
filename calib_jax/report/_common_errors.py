"""Errors that all seeds of a method have in common: those of the method and the data, not of a seed."""

import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._matrix_plots import (
    MAX_CLASSES,
    confusion_counts,
    draw_matrix,
    largest_error,
)
from calib_jax.report._page import Picture, Section
from calib_jax.report._read import Predictions, Run
from calib_jax.report._table import Cell, Table

_NUM_LISTED = 20  # errors
_TITLE = "examples that all seeds get wrong"


class CommonErrors(NamedTuple):
    """Examples that all seeds get wrong, the highest mean confidence first.

    Attributes:
      rows: Positions in the set `[m]`.
      predicted: Class that each seed predicts `[seeds, m]`.
      mean: Confidence in the predicted class, mean over the seeds `[m]`.
      std: Its standard deviation over the seeds, divided by `seeds - 1` `[m]`.
    """

    rows: np.ndarray
    predicted: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def common_errors(
    predicted: np.ndarray, confidence: np.ndarray, labels: np.ndarray
) -> CommonErrors:
    """Find the examples that no seed gets right.

    Args:
      predicted: Class that each seed predicts `[seeds, n]`, two seeds or more.
      confidence: Probability of that class `[seeds, n]`.
      labels: Labels `[n]`.

    >>> import numpy as np
    >>> predicted = np.array([[0, 1, 1], [0, 1, 0]])
    >>> common_errors(predicted, np.full((2, 3), 0.9), np.array([0, 0, 0])).rows.tolist()
    [1]
    """
    rows = np.flatnonzero(np.all(predicted != labels, axis=0))
    mean, std = confidence[:, rows].mean(axis=0), confidence[:, rows].std(axis=0, ddof=1)
    order = np.argsort(-mean, kind="stable")
    return CommonErrors(rows[order], predicted[:, rows[order]], mean[order], std[order])


def plot_common_errors(
    errors: CommonErrors, labels: np.ndarray, names: Sequence[str], *, title: str = ""
) -> Figure:
    """Plot how many examples of each class every seed takes for another, and for which.

    Args:
      errors: Errors from `common_errors`.
      labels: Labels of all examples of the set `[n]`.
      names: Names of the classes.
      title: Name of the predictions.
    """
    k = len(names)
    votes = np.stack([np.sum(errors.predicted == c, axis=0) for c in range(k)], axis=1)
    counts = confusion_counts(votes.argmax(axis=1), labels[errors.rows], k)
    texts = [[str(n) if n else "" for n in row] for row in counts]
    wrong = counts.sum(axis=1)
    sizes = np.bincount(labels, minlength=k)
    ylabels = [f"{name} ({m} of {n})" for name, m, n in zip(names, wrong, sizes, strict=True)]
    return draw_matrix(
        counts, texts, names, ylabels,
        ylabel="label (wrong for all seeds)",
        title=f"{title}: {_TITLE}" if title else _TITLE,
        top=largest_error(counts),
    )  # fmt: skip


def common_error_sections(
    method: str, runs: Sequence[Run], predictions: Predictions
) -> list[Section]:
    """Return what all seeds of a method get wrong on test.

    Args:
      method: Name of the method.
      runs: Runs of the method, one per seed.
      predictions: Predictions of these runs.
    """
    _, predicted, confidence, labels, ids = predictions
    errors = common_errors(predicted, confidence, labels)
    largest = max(int(predicted.max()), int(labels.max()))
    names = runs[0].record.get("label_names") or [str(c) for c in range(largest + 1)]
    num_errors, n = len(errors.rows), len(labels)
    mean_error = np.mean(predicted != labels)
    text = (
        f"{num_errors} of {n} test examples ({100 * num_errors / n:.1f} %) are wrong for all "
        f"{len(runs)} seeds, where a seed has {100 * mean_error:.1f} % errors on average. "
    )
    if not num_errors:
        return [Section(f"Errors common to all seeds of {method}", text)]
    pictures = []
    if 1 < len(names) <= MAX_CLASSES:
        pictures.append(Picture(
            plot_common_errors(errors, labels, names, title=method),
            f"Errors on test that all seeds of {method} have in common, class by class",
            "Number of examples; where seeds predict different classes, the one that most of them do.",
            f"common_errors_{method}",
        ))  # fmt: skip
    text += (
        f"Below, the {min(num_errors, _NUM_LISTED)} with the highest mean confidence (± standard "
        "deviation over the seeds, as trained), by id in the set's official files."
    )
    return [Section(
        f"Errors common to all seeds of {method}", text, pictures=pictures,
        tables=[_table(errors, labels, ids, names, _texts([run.folder for run in runs]))],
    )]  # fmt: skip


def _table(
    errors: CommonErrors,
    labels: np.ndarray,
    ids: np.ndarray,
    names: Sequence[str],
    texts: Mapping[int, str],
) -> Table:
    rows = []
    for i, row in enumerate(errors.rows[:_NUM_LISTED]):
        classes = Counter(errors.predicted[:, i].tolist()).most_common()
        predicted = names[classes[0][0]]
        if len(classes) > 1:
            counts = [f"{names[c]} ({n} seed{'s' if n > 1 else ''})" for c, n in classes]
            predicted = ", ".join(counts)
        cells = [Cell(names[labels[row]]), Cell(predicted)]
        cells.append(Cell(f"{100 * errors.mean[i]:.1f}", f"±{100 * errors.std[i]:.1f}"))
        if texts:
            cells.append(Cell(texts.get(int(ids[row]), "–"), mark="text"))
        rows.append((str(ids[row]), cells))
    headings = ["label", "predicted", "mean confidence %"]
    if texts:
        headings.append("text")
    return Table.from_rows("test", headings, rows, "id")


def _texts(folders: Sequence[pathlib.Path]) -> dict[int, str]:
    """Return the texts of the errors on test that the experiment kept, by id."""
    texts = {}
    for path in (folder / "errors.json" for folder in folders):
        if path.is_file():
            for error in json.loads(path.read_text(encoding="utf-8")).get("test", ()):
                texts[error["id"]] = error["text"]
    return texts
