"""Confusion matrices, and the most confident errors."""

import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from calib_jax import metrics
from calib_jax.report._common_errors import common_error_sections
from calib_jax.report._matrix_plots import MAX_CLASSES, confusion_counts, draw_matrix
from calib_jax.report._page import Picture, Section, png
from calib_jax.report._read import Run
from calib_jax.report._summary import Record
from calib_jax.report._table import Cell, Table

_NUM_LISTED = 20  # errors of a set


class _Predictions(NamedTuple):
    """Predictions of a run: predicted class, confidence in it, label and id of each example `[n]`."""

    predicted: np.ndarray
    confidence: np.ndarray
    labels: np.ndarray
    ids: np.ndarray


def plot_confusion(
    predicted: np.ndarray, labels: np.ndarray, names: Sequence[str], *, title: str = ""
) -> Figure:
    """Plot which share of each class is predicted as which; errors are colored, the rest is grey.

    Args:
      predicted: Predicted classes `[n]`, or `[seeds, n]` for the mean over several seeds and, below
        it, the standard deviation (divided by `seeds - 1`).
      labels: Labels `[n]`.
      names: Names of the classes.
      title: Name of the predictions.

    Returns:
      The figure.
    """
    k = len(names)
    counts = np.stack([confusion_counts(seed, labels, k) for seed in np.atleast_2d(predicted)])
    sizes = np.bincount(labels, minlength=k)
    shares = 100 * counts / np.maximum(sizes, 1)[:, None]
    mean, several = shares.mean(axis=0), len(counts) > 1
    std = shares.std(axis=0, ddof=1) if several else np.zeros_like(mean)

    def text(i: int, j: int) -> str:
        if not counts[:, i, j].any():
            return ""
        number = f"{mean[i, j]:.0f}" if mean[i, j] >= 0.5 else "<1"
        return number + (f"\n±{std[i, j]:.1f}" if several else "")

    return draw_matrix(
        mean, [[text(i, j) for j in range(k)] for i in range(k)], names,
        [f"{name} ({n})" for name, n in zip(names, sizes, strict=True)],
        ylabel="label (examples)",
        title=f"{title}: % of the label's examples" if title else "% of the label's examples",
        cell=0.52 if several else 0.38,
    )  # fmt: skip


def confusion_sections(runs: Sequence[Run], plots: dict[str, bytes]) -> list[Section]:
    """Return a matrix per method, which joins `plots`, and the errors that an experiment kept.

    The matrix is the mean over the seeds, if they were evaluated on the same examples, and then the
    errors that they have in common follow; else it is the first seed's.

    Args:
      runs: Runs of all methods and seeds.
      plots: Pictures by name.
    """
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.record["method"], []).append(run)
    pictures, common, confident = [], [], []
    for method, seeds in by_method.items():
        record, folder = seeds[0]
        names = record.get("label_names", ())
        read = [_read_predictions(run.folder / "logits" / "test.npz") for run in seeds]
        predictions = [one for one in read if one is not None]
        comparable = len(predictions) == len(seeds) and all(
            _same_examples(predictions[0], one) for one in predictions
        )
        if predictions and 1 < len(names) <= MAX_CLASSES:
            shown = predictions if comparable else predictions[:1]
            predicted = np.stack([one.predicted for one in shown])
            figure = plot_confusion(predicted, predictions[0].labels, names, title=method)
            plots[f"confusion_{method}"] = png(figure)
            pictures.append(Picture(
                plots[f"confusion_{method}"], f"Confusion matrix of {method} on test",
                f"{method}, {_seeds([run.record for run in seeds[: len(shown)]])}.",
            ))  # fmt: skip
        if comparable and len(seeds) > 1:
            common += common_error_sections(
                method,
                seeds,
                np.stack([one.predicted for one in predictions]),
                np.stack([one.confidence for one in predictions]),
                predictions[0].labels,
                predictions[0].ids,
                plots,
            )
        confident += _confident_errors(method, record["seed"], folder / "errors.json")
    matrices = []
    if pictures:
        title = "Classes that are taken for one another, on test"
        matrices.append(Section(title, pictures=pictures))
    return matrices + common + confident


def _read_predictions(path: pathlib.Path) -> _Predictions | None:
    """Read predictions from a file of logits; return `None` if there is none."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as archive:
        ids = archive["ids"] if "ids" in archive else np.arange(len(archive["labels"]))
        logits, labels = archive["logits"], archive["labels"]
    confidence, _ = metrics.top_label(logits, labels)
    return _Predictions(logits.argmax(1), np.asarray(confidence), labels, ids)


def _same_examples(a: _Predictions, b: _Predictions) -> bool:
    return np.array_equal(a.labels, b.labels) and np.array_equal(a.ids, b.ids)


def _seeds(records: Sequence[Record]) -> str:
    numbers = ", ".join(str(record["seed"]) for record in records)
    if len(records) == 1:
        return f"seed {numbers}"
    return f"mean over seeds {numbers} ± standard deviation"


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
