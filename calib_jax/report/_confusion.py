"""Confusion matrices, and the most confident errors."""

import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._common_errors import common_error_sections
from calib_jax.report._matrix_plots import (
    MAX_CLASSES,
    confusion_counts,
    draw_matrix,
    largest_error,
)
from calib_jax.report._page import Picture, Section
from calib_jax.report._read import Predictions, Run, read_predictions
from calib_jax.report._table import Cell, Table

_NUM_LISTED = 20  # errors of a set


def plot_confusion(
    predicted: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    *,
    title: str = "",
    top: float | None = None,
) -> Figure:
    """Plot which share of each class is predicted as which; errors are colored, the rest is grey.

    Args:
      predicted: Predicted classes `[n]`, or `[seeds, n]` for the mean over several seeds and, below
        it, the standard deviation (divided by `seeds - 1`).
      labels: Labels `[n]`.
      names: Names of the classes.
      title: Name of the predictions.
      top: Percentage of the darkest color; that of the largest error if it is `None`.

    Returns:
      The figure.

    >>> import numpy as np
    >>> plot_confusion(np.array([0, 1, 1]), np.array([0, 1, 0]), ["cat", "dog"]).axes[0].get_xlabel()
    'predicted'
    """
    k = len(names)
    shares = _shares(np.atleast_2d(predicted), labels, k)
    sizes = np.bincount(labels, minlength=k)
    mean, several = shares.mean(axis=0), len(shares) > 1
    std = shares.std(axis=0, ddof=1) if several else np.zeros_like(mean)

    def text(i: int, j: int) -> str:
        if not mean[i, j]:
            return ""
        number = f"{mean[i, j]:.0f}" if mean[i, j] >= 0.5 else "<1"
        return number + (f"\n±{std[i, j]:.1f}" if several else "")

    return draw_matrix(
        mean, [[text(i, j) for j in range(k)] for i in range(k)], names,
        [f"{name} ({n})" for name, n in zip(names, sizes, strict=True)],
        ylabel="label (examples)",
        title=f"{title}: % of the label's examples" if title else "% of the label's examples",
        top=largest_error(mean) if top is None else top,
        cell=0.52 if several else 0.38,
    )  # fmt: skip


def _shares(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return percentages of each label's examples `[seeds, num_classes, num_classes]`."""
    counts = np.stack([confusion_counts(seed, labels, num_classes) for seed in predicted])
    return 100 * counts / np.maximum(np.bincount(labels, minlength=num_classes), 1)[:, None]


def confusion_sections(runs: Sequence[Run]) -> list[Section]:
    """Return a matrix per method, and the errors that an experiment kept.

    The matrix is the mean over the seeds, if they were evaluated on the same examples, and then the
    errors that they have in common follow; else it is the first seed's.

    Args:
      runs: Runs of all methods and seeds.
    """
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.record["method"], []).append(run)
    read = {method: read_predictions(seeds) for method, seeds in by_method.items()}
    predictions = {method: one for method, one in read.items() if one is not None}
    sections = _matrices(by_method, predictions)
    for method, one in predictions.items():
        if len(one.seeds) > 1:
            sections += common_error_sections(method, by_method[method], one)
    for method, (first, *_) in by_method.items():
        sections += _confident_errors(method, first.record["seed"], first.folder / "errors.json")
    return sections


def _matrices(
    by_method: Mapping[str, Sequence[Run]], predictions: Mapping[str, Predictions]
) -> list[Section]:
    """Return the confusion matrices of all methods, whose colors have one scale."""
    names = {method: by_method[method][0].record.get("label_names", ()) for method in predictions}
    shown = {m: one for m, one in predictions.items() if 1 < len(names[m]) <= MAX_CLASSES}
    if not shown:
        return []
    top = max(
        largest_error(_shares(one.predicted, one.labels, len(names[method])).mean(axis=0))
        for method, one in shown.items()
    )
    pictures = []
    for method, one in shown.items():
        caption = f"{method}, seed {one.seeds[0]}."
        if len(one.seeds) > 1:
            seeds = ", ".join(map(str, one.seeds))
            caption = f"{method}, mean over seeds {seeds} ± standard deviation."
        pictures.append(Picture(
            plot_confusion(one.predicted, one.labels, names[method], title=method, top=top),
            f"Confusion matrix of {method} on test",
            caption,
            f"confusion_{method}",
        ))  # fmt: skip
    text = "All matrices have one color scale." if len(pictures) > 1 else ""
    return [Section("Classes that are taken for one another, on test", text, pictures=pictures)]


def _confident_errors(method: str, seed: int, path: pathlib.Path) -> list[Section]:
    """Return tables of the texts that were misread with the greatest confidence."""
    if not path.is_file():
        return []
    tables = []
    for split, errors in json.loads(path.read_text(encoding="utf-8")).items():
        rows = []
        for error in errors[:_NUM_LISTED]:
            words = [error["label"], error["predicted"], f"{100 * error['confidence']:.1f}"]
            rows.append((str(error["id"]), [*map(Cell, words), Cell(error["text"], mark="text")]))
        headings = ["label", "predicted", "confidence %", "text"]
        tables.append(Table.from_rows(split, headings, rows, "id"))
    return [Section(
        f"Most confident errors of {method}", f"By id in the set's official files. Seed {seed}.",
        tables=tables, folded=True,
    )]  # fmt: skip
