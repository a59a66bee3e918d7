"""Which classes are taken for which: confusion matrices, and the errors that were most certain."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._comparison import Cell, Table
from calib_jax.report._html import Picture, Section, png

_MOST_CLASSES = 20  # a larger matrix cannot be read


def plot_confusion(
    predicted: np.ndarray, labels: np.ndarray, names: Sequence[str], *, title: str = ""
) -> Figure:
    """Of each class, what share is predicted as what; errors are coloured, right predictions grey.

    Args:
      predicted: class of each example `[n]`.
      labels: `[n]`.
      names: of the classes.
      title: what the predictions are of.

    Returns:
      The figure.
    """
    k = len(names)
    counts = np.zeros((k, k), int)
    np.add.at(counts, (labels, predicted), 1)
    sizes = counts.sum(axis=1)
    shares = 100 * counts / np.maximum(sizes, 1)[:, None]
    right = np.eye(k, dtype=bool)
    errors = np.where(right, np.nan, shares)
    top = max(float(np.max(shares[~right], initial=0.0)), 1e-9)

    size = 1.4 + 0.38 * k
    figure = Figure(figsize=(size + 0.5, size), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("0.92")
    axes.imshow(errors, cmap="Oranges", vmin=0, vmax=top)
    for i, j in np.ndindex(k, k):
        if counts[i, j]:
            dark = i != j and shares[i, j] > 0.6 * top
            text = f"{shares[i, j]:.0f}" if shares[i, j] >= 0.5 else "<1"
            axes.text(
                j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black"
            )
    tilted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(k), names, fontsize=8, **(tilted if max(map(len, names)) > 3 else {}))
    rows = [f"{name} ({n})" for name, n in zip(names, sizes, strict=True)]
    axes.set_yticks(range(k), rows, fontsize=8)
    axes.set(xlabel="predicted", ylabel="label (examples)")
    axes.set_title(f"{title}{': ' * bool(title)}% of the label's examples", fontsize=9)
    return figure


def confusion_sections(
    runs: Mapping[str, tuple[Mapping[str, Any], pathlib.Path]], plots: dict[str, bytes]
) -> list[Section]:
    """A matrix per method, which joins `plots`, and the errors that an experiment wrote down.

    Args:
      runs: of each method the results and the folder of one run.
      plots: pictures by name.
    """
    pictures, sections = [], []
    for method, (record, folder) in runs.items():
        names, path = record.get("label_names", ()), folder / "logits" / "test.npz"
        if 1 < len(names) <= _MOST_CLASSES and path.is_file():
            with np.load(path, allow_pickle=False) as archive:
                predicted, labels = archive["logits"].argmax(1), archive["labels"]
            plots[f"confusion_{method}"] = png(
                plot_confusion(predicted, labels, names, title=method)
            )
            pictures.append(Picture(
                plots[f"confusion_{method}"], f"Confusion matrix of {method} on test",
                f"{method}, seed {record['seed']}.",
            ))  # fmt: skip
        sections += _confident_errors(method, record["seed"], folder / "errors.json")
    if pictures:
        sections.insert(0, Section("Classes that are taken for one another, on test",
                                   pictures=pictures))  # fmt: skip
    return sections


def _confident_errors(method: str, seed: int, path: pathlib.Path) -> list[Section]:
    """Texts that were misread with the greatest confidence."""
    if not path.is_file():
        return []
    tables = []
    for split, errors in json.loads(path.read_text(encoding="utf-8")).items():
        rows = []
        for error in errors:
            told = [error["label"], error["predicted"], f"{100 * error['confidence']:.1f}"]
            rows.append((str(error["id"]), [*map(Cell, told), Cell(error["text"], mark="text")]))
        titles = ["label", "predicted", "confidence %", "text"]
        tables.append(Table(split, [(title, 1) for title in titles], [""] * 4, rows))
    return [Section(
        f"Most confident errors of {method}", f"By id in the set's official files. Seed {seed}.",
        tables=tables, corner="id", folded=True,
    )]  # fmt: skip
