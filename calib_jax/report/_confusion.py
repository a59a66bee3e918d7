"""Which classes are taken for which: confusion matrices, and the errors that were most certain."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calib_jax import metrics
from calib_jax.report._common_errors import common_error_sections
from calib_jax.report._comparison import Cell, Table
from calib_jax.report._html import Picture, Section, png
from calib_jax.report._matrix import MOST_CLASSES, confusion_counts, draw_matrix

_LISTED = 20  # of the errors of a set

Runs = Sequence[tuple[Mapping[str, Any], pathlib.Path]]  # results and folder of each


def plot_confusion(
    predicted: np.ndarray, labels: np.ndarray, names: Sequence[str], *, title: str = ""
) -> Figure:
    """Of each class, what share is predicted as what; errors are colored, right predictions grey.

    Args:
      predicted: class of each example `[n]`, or `[seeds, n]` for the mean over several seeds and, below
        it, the standard deviation (divided by `seeds - 1`).
      labels: `[n]`.
      names: of the classes.
      title: what the predictions are of.

    Returns:
      The figure.
    """
    k = len(names)
    counts = np.stack([confusion_counts(own, labels, k) for own in np.atleast_2d(predicted)])
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
        title=f"{title}{': ' * bool(title)}% of the label's examples",
        cell=0.52 if several else 0.38,
    )  # fmt: skip


def confusion_sections(runs: Runs, plots: dict[str, bytes]) -> list[Section]:
    """A matrix per method, which joins `plots`, and the errors that an experiment wrote down.

    The matrix is the mean over the seeds, if they were evaluated on the same examples, and then the
    errors that they have in common follow; else it is the first seed's.

    Args:
      runs: of all methods and seeds.
      plots: pictures by name.
    """
    by_method: dict[str, list[tuple[Mapping[str, Any], pathlib.Path]]] = {}
    for record, folder in runs:
        by_method.setdefault(record["method"], []).append((record, folder))
    pictures, common, sections = [], [], []
    for method, own in by_method.items():
        record, folder = own[0]
        names = record.get("label_names", ())
        read = [_predictions(path / "logits" / "test.npz") for _, path in own]
        found = [predictions for predictions in read if predictions is not None]
        same = len(found) == len(own) and all(_same_examples(found[0], one) for one in found)
        if found and 1 < len(names) <= MOST_CLASSES:
            shown = found if same else found[:1]
            predicted = np.stack([one["predicted"] for one in shown])
            figure = plot_confusion(predicted, found[0]["labels"], names, title=method)
            plots[f"confusion_{method}"] = png(figure)
            pictures.append(Picture(
                plots[f"confusion_{method}"], f"Confusion matrix of {method} on test",
                f"{method}, {_seeds([r for r, _ in own[: len(shown)]])}.",
            ))  # fmt: skip
        if same and len(own) > 1:
            predicted, confidence = (
                np.stack([one[key] for one in found]) for key in ("predicted", "confidence")
            )
            labels, ids = found[0]["labels"], found[0]["ids"]
            common += common_error_sections(method, own, predicted, confidence, labels, ids, plots)
        sections += _confident_errors(method, record["seed"], folder / "errors.json")
    if pictures:
        common.insert(0, Section("Classes that are taken for one another, on test",
                                 pictures=pictures))  # fmt: skip
    return common + sections


def _predictions(path: pathlib.Path) -> dict[str, np.ndarray] | None:
    """Predicted classes, confidence in them, labels and ids; without a file of them `None`."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as archive:
        ids = archive["ids"] if "ids" in archive else np.arange(len(archive["labels"]))
        logits, labels = archive["logits"], archive["labels"]
    confidence, _ = metrics.top_label(logits, labels)
    found = {"predicted": logits.argmax(1), "confidence": np.asarray(confidence)}
    return found | {"labels": labels, "ids": ids}


def _same_examples(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return all(np.array_equal(a[key], b[key]) for key in ("labels", "ids"))


def _seeds(records: Sequence[Mapping[str, Any]]) -> str:
    numbers = ", ".join(str(record["seed"]) for record in records)
    if len(records) == 1:
        return f"seed {numbers}"
    return f"mean over seeds {numbers} ± standard deviation"


def _confident_errors(method: str, seed: int, path: pathlib.Path) -> list[Section]:
    """Texts that were misread with the greatest confidence."""
    if not path.is_file():
        return []
    tables = []
    for split, errors in json.loads(path.read_text(encoding="utf-8")).items():
        rows = []
        for error in errors[:_LISTED]:
            told = [error["label"], error["predicted"], f"{100 * error['confidence']:.1f}"]
            rows.append((str(error["id"]), [*map(Cell, told), Cell(error["text"], mark="text")]))
        titles = ["label", "predicted", "confidence %", "text"]
        tables.append(Table(split, [(title, 1) for title in titles], [""] * 4, rows))
    return [Section(
        f"Most confident errors of {method}", f"By id in the set's official files. Seed {seed}.",
        tables=tables, corner="id", folded=True,
    )]  # fmt: skip
