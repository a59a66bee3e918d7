"""Corruptions and attacks: a table in the shape of the AutoLabel paper's, and its figure 5."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._comparison import NOTHING, Cell, Column, Table, by_method, compare, in_unit
from calib_jax.report._plots import COLORS

ROBUSTNESS_MEANS = (
    "cAccuracy and cECE: mean over all corruption types and severities, of ECE with 15 bins of equal "
    "width. Attacked: accuracy under a PGD attack with restarts. Δ: accuracy plus attacked accuracy, "
    "less the same of cross entropy."
)
ROBUSTNESS_IN_SHORT = ("cAccuracy %", "cECE %", "attacked accuracy %", "Δ %")  # in the terminal
_VANILLA = "cross_entropy"


def robustness_table(summary: Mapping[str, Any]) -> Table | None:
    """A row per method; `None` if nothing was corrupted or attacked."""
    found = summary.get("robustness", {})
    if not any(
        part in of_method for of_method in found.values() for part in ("corruptions", "attack")
    ):
        return None
    columns = []
    for place, key, title, more_is_better in (
        (("corruptions", "severity", "0"), "accuracy", "accuracy %", True),
        (("corruptions", "mean"), "accuracy", "cAccuracy %", True),
        (("corruptions", "severity", "0"), "ece", "ECE %", False),
        (("corruptions", "mean"), "ece", "cECE %", False),
        (("corruptions", "mean"), "ece_temperature", "cECE %", False),
        (("attack",), "clean_accuracy", "accuracy %, attacked part", True),
        (("attack",), "accuracy", "attacked accuracy %", True),
    ):
        numbers = [in_unit(_at(m, *place, key), 100) for m in found.values()]
        cells = compare(numbers, 2, more_is_better)
        columns.append(Column(key, title, key == "ece_temperature", cells))
    columns.append(Column("delta", "Δ %", False, _deltas(found)))
    shown = [column for column in columns if any(cell != NOTHING for cell in column.cells)]
    return by_method(_title(found), found, shown)


def _title(found: Mapping[str, Any]) -> str:
    """What corrupted images are: the published files, or made here and with what strengths."""
    sources = {s for of in found.values() for s in of.get("corruptions", {}).get("source", ())}
    named = f" ({'; '.join(sorted(sources))})" if sources else ""
    return f"Under corruption{named} and attack"


def plot_severity(summary: Mapping[str, Any]) -> Figure | None:
    """Mean accuracy and ECE over the corruption types at each severity, 0 being the clean test set.

    A line per method, in a band of a standard deviation over its seeds. `None` if nothing was corrupted.
    """
    methods = {
        name: found["corruptions"]["severity"]
        for name, found in summary.get("robustness", {}).items()
        if "corruptions" in found
    }
    if not methods:
        return None
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    panels = (("accuracy", "accuracy, %"), ("ece", "ECE-15 equal width, %"))
    for axes, (key, title) in zip(figure.subplots(1, 2), panels, strict=True):
        for i, (name, by_severity) in enumerate(methods.items()):
            x = [int(severity) for severity in by_severity]
            mean = np.array([100 * v[key]["mean"] for v in by_severity.values()])
            std = np.array([100 * (v[key]["std"] or 0) for v in by_severity.values()])
            color = COLORS[i % len(COLORS)]
            style = ("-", "--", "-.", ":")[i // len(COLORS) % 4]
            axes.plot(x, mean, style, marker="o", ms=3.5, lw=1.5, color=color, label=name)
            axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, lw=0)
        axes.set(xlabel="severity of the corruption, 0: none", title=title)
        if key == "ece":
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def plot_operations(summary: Mapping[str, Any]) -> Figure | None:
    """Accuracy on the test set under each operation at each magnitude; 0: without it.

    A panel per method, and a line per operation. `None` if nothing was operated on.
    """
    methods = {
        name: found["operations"]
        for name, found in summary.get("robustness", {}).items()
        if "operations" in found
    }
    if not methods:
        return None
    columns = min(3, len(methods))
    rows = -(-len(methods) // columns)
    figure = Figure(figsize=(1 + 3.4 * columns, 1.2 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(methods) :]:
        axes.set_visible(False)
    for axes, (method, operations) in zip(grid.flat, methods.items(), strict=False):
        for i, (name, by_magnitude) in enumerate(operations.items()):
            x = [int(magnitude) for magnitude in by_magnitude]
            mean = [100 * found["accuracy"]["mean"] for found in by_magnitude.values()]
            color, style = COLORS[i % len(COLORS)], ("-", "--")[i // len(COLORS) % 2]
            axes.plot(x, mean, style, marker="o", ms=3, lw=1.5, color=color, label=name)
        axes.set(title=method, xlabel="magnitude")
        axes.grid(alpha=0.25)
    figure.supylabel("accuracy, %", fontsize=10)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


def plot_labels(rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> Figure:
    """Label confidence of each bucket over the epochs, as AutoLabel has learned it.

    Args:
      rows: of one run's metrics.jsonl, with `method/label_confidence` `[buckets]` or
        `[panels, buckets]`.
      names: of the panels.

    Returns:
      The figure.
    """
    logged = [row for row in rows if "method/label_confidence" in row]
    if not logged:
        raise ValueError("rows: none holds method/label_confidence")
    epochs = [0.0, *(row["epoch"] for row in logged)]
    tables = np.array([row["method/label_confidence"] for row in logged])
    tables = tables.reshape(len(logged), -1, tables.shape[-1])
    tables = np.concatenate([np.ones_like(tables[:1]), tables])
    _, panels, buckets = tables.shape
    columns = min(5, panels)
    height = -(-panels // columns)
    figure = Figure(
        figsize=(1.4 + 2.3 * max(columns, 2), 0.8 + 2.1 * max(height, 1.4)), layout="constrained"
    )
    grid = figure.subplots(height, columns, sharex=True, sharey=True, squeeze=False)
    # From light to dark; the lightest of a map is hard to see on white.
    shades = _shades(buckets)
    for i, axes in enumerate(grid.flat):
        if i >= panels:
            axes.set_visible(False)
            continue
        for bucket in range(buckets):
            axes.plot(epochs, 100 * tables[:, i, bucket], lw=1.2, color=shades[bucket])
        if i < len(names):
            axes.set_title(names[i], fontsize=9)
        axes.grid(alpha=0.25)
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    figure.supylabel("confidence in the label, %", fontsize=10)
    handles = [grid[0, 0].lines[b] for b in dict.fromkeys((0, buckets // 2, buckets - 1))]
    labels = [f"bucket {b + 1}" for b in dict.fromkeys((0, buckets // 2, buckets - 1))]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _shades(number: int) -> list[tuple[float, ...]]:
    light, dark = np.array([0.62, 0.79, 0.88]), np.array([0.03, 0.19, 0.42])
    parts = np.linspace(0, 1, number)[:, None]
    return [tuple(c) for c in (1 - parts) * light + parts * dark]


def _deltas(found: Mapping[str, Any]) -> list[Cell]:
    """Equation 4, of means over seeds, against cross entropy: the same workdir's, else the first."""
    totals = {
        name: 100 * (of["attack"]["clean_accuracy"]["mean"] + of["attack"]["accuracy"]["mean"])
        for name, of in found.items()
        if "attack" in of
    }
    vanilla = [name for name in totals if name.rpartition("/")[2] == _VANILLA]
    cells = []
    for name in found:
        workdir = name.rpartition("/")[0]
        own = [v for v in vanilla if v.rpartition("/")[0] == workdir]
        if not vanilla or name in vanilla or name not in totals:
            cells.append(NOTHING)
        else:
            cells.append(Cell(f"{totals[name] - totals[(own or vanilla)[0]]:+.2f}"))
    return cells


def _at(tree: Mapping[str, Any], *path: str) -> Any:
    for key in path:
        if key not in tree:
            return None
        tree = tree[key]
    return tree
