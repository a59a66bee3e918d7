"""Examples that every seed of a method gets wrong: errors of the method and the data, not of a seed."""

import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._comparison import Cell, Table
from calib_jax.report._html import Picture, Section, png
from calib_jax.report._matrix import MOST_CLASSES, confusion_counts, draw_matrix

_LISTED = 20  # of the errors


class CommonErrors(NamedTuple):
    """Examples that all seeds get wrong, the highest mean confidence first.

    Attributes:
      rows: their positions in the set `[m]`.
      predicted: class that each seed predicts `[seeds, m]`.
      mean: confidence in the predicted class, mean over the seeds `[m]`.
      std: its standard deviation over the seeds, divided by `seeds - 1` `[m]`.
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
      predicted: class that each seed predicts `[seeds, n]`, two seeds or more.
      confidence: probability of that class `[seeds, n]`.
      labels: `[n]`.
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
      errors: from `common_errors`.
      labels: of all examples of the set `[n]`.
      names: of the classes.
      title: what the predictions are of.
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
        title=f"{title}{': ' * bool(title)}examples that all seeds get wrong",
    )  # fmt: skip


def common_error_sections(
    method: str,
    runs: Sequence[tuple[Mapping[str, Any], pathlib.Path]],
    predicted: np.ndarray,
    confidence: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    plots: dict[str, bytes],
) -> list[Section]:
    """Show what all seeds of a method get wrong on test; the picture joins `plots`.

    Args:
      method: whose runs they are.
      runs: results and folder of each seed.
      predicted: class that each seed predicts `[seeds, n]`.
      confidence: probability of that class `[seeds, n]`.
      labels: `[n]`.
      ids: of the examples `[n]`.
      plots: pictures by name.
    """
    errors = common_errors(predicted, confidence, labels)
    largest = max(int(predicted.max()), int(labels.max()))
    names = runs[0][0].get("label_names") or [str(c) for c in range(largest + 1)]
    found, n = len(errors.rows), len(labels)
    single = np.mean(predicted != labels)
    text = (
        f"{found} of {n} test examples ({100 * found / n:.1f} %) are wrong for all {len(runs)} seeds, "
        f"where a seed has {100 * single:.1f} % errors on average. "
    )
    if not found:
        return [Section(f"Errors common to all seeds of {method}", text)]
    pictures = []
    if 1 < len(names) <= MOST_CLASSES:
        plots[f"common_errors_{method}"] = png(
            plot_common_errors(errors, labels, names, title=method)
        )
        pictures.append(Picture(
            plots[f"common_errors_{method}"],
            f"Errors on test that all seeds of {method} have in common, class by class",
            "Number of examples; where seeds predict different classes, the one that most of them do.",
        ))  # fmt: skip
    shown = min(found, _LISTED)
    text += (
        f"Below, the {shown} with the highest mean confidence (± standard deviation over the seeds, as "
        "trained), by id in the set's official files."
    )
    return [Section(
        f"Errors common to all seeds of {method}", text, pictures=pictures, corner="id",
        tables=[_table(errors, labels, ids, names, _texts([folder for _, folder in runs]))],
    )]  # fmt: skip


def _table(
    errors: CommonErrors,
    labels: np.ndarray,
    ids: np.ndarray,
    names: Sequence[str],
    texts: Mapping[int, str],
) -> Table:
    rows = []
    for i, row in enumerate(errors.rows[:_LISTED]):
        classes = Counter(errors.predicted[:, i].tolist()).most_common()
        predicted = ", ".join(
            names[c] + (f" ({count} seeds)" if len(classes) > 1 else "") for c, count in classes
        ).replace("(1 seeds)", "(1 seed)")
        cells = [Cell(names[labels[row]]), Cell(predicted)]
        cells.append(Cell(f"{100 * errors.mean[i]:.1f}", f"±{100 * errors.std[i]:.1f}"))
        if texts:
            cells.append(Cell(texts.get(int(ids[row]), "–"), mark="text"))
        rows.append((str(ids[row]), cells))
    titles = ["label", "predicted", "mean confidence %", *["text"] * bool(texts)]
    return Table("test", [(title, 1) for title in titles], [""] * len(titles), rows)


def _texts(folders: Sequence[pathlib.Path]) -> dict[int, str]:
    """The texts of the errors on test that the experiment wrote down, by id."""
    texts = {}
    for path in (folder / "errors.json" for folder in folders):
        if path.is_file():
            for error in json.loads(path.read_text(encoding="utf-8")).get("test", ()):
                texts[error["id"]] = error["text"]
    return texts
