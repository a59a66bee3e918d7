"""Robustness: the table of corruptions and attacks, as in the AutoLabel paper, and its figure 5."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from calib_jax.metrics import METRICS
from calib_jax.report._style import color_and_style, legend_below, panel_grid
from calib_jax.report._summary_tables import AFTER, in_unit
from calib_jax.report._table import EMPTY, Cell, Column, Table, compare
from calib_jax.report._types import Json, Record, Summary

ROBUSTNESS_LEGEND = (
    "cAccuracy and cECE: mean over all corruption types and severities, of ECE with 15 bins of equal "
    "width. Attacked: accuracy under a PGD attack with restarts. Δ: accuracy plus attacked accuracy, "
    "less the same of cross entropy."
)
TERMINAL_COLUMNS = ("cAccuracy %", "cECE %", "attacked accuracy %", "Δ %")
_BASELINE = "cross_entropy"
# Path in the robustness of a method, metric, title, subtitle.
_COLUMNS = (
    (("corruptions", "severity", "0", "accuracy"), "accuracy", "accuracy %", ""),
    (("corruptions", "mean", "accuracy"), "accuracy", "cAccuracy %", ""),
    (("corruptions", "severity", "0", "ece"), "ece", "ECE %", ""),
    (("corruptions", "mean", "ece"), "ece", "cECE %", ""),
    (("corruptions", "mean", "ece_temperature"), "ece", "cECE %", AFTER),
    (("attack", "clean_accuracy"), "accuracy", "accuracy %, attacked part", ""),
    (("attack", "accuracy"), "accuracy", "attacked accuracy %", ""),
)


def robustness_table(summary: Summary) -> Table | None:
    """Return a row per method under corruption and attack; `None` if there was neither."""
    methods = summary.get("robustness", {})
    if not any("corruptions" in entry or "attack" in entry for entry in methods.values()):
        return None
    columns = []
    for path, key, title, subtitle in _COLUMNS:
        metric = METRICS[key]
        numbers = [in_unit(at_path(entry, path), metric.scale) for entry in methods.values()]
        cells = compare(numbers, 2, metric)
        columns.append(Column(title, cells, subtitle, key))
    columns.append(Column("Δ %", _deltas(methods)))
    shown = [column for column in columns if not column.is_empty]
    return Table(_title(methods), list(methods), shown)


def at_path(tree: Record, path: tuple[str, ...]) -> Json:
    """Return the entry of a nested dict at a path of keys; `None` if there is none."""
    for key in path:
        if key not in tree:
            return None
        tree = tree[key]
    return tree


def _title(methods: Mapping[str, Record]) -> str:
    """Name the origin of the corrupted images: published files, or generated with which strengths."""
    sources = {s for m in methods.values() for s in m.get("corruptions", {}).get("source", ())}
    origin = f" ({'; '.join(sorted(sources))})" if sources else ""
    return f"Under corruption{origin} and attack"


def plot_severity(summary: Summary) -> Figure | None:
    """Plot accuracy and ECE against the severity of corruptions; severity 0 is the clean test set.

    Means over the corruption types; a line per method, in a band of a standard deviation over its
    seeds.

    Args:
      summary: Summary from `summarize`.

    Returns:
      The figure; `None` if nothing was corrupted.
    """
    methods = {
        name: entry["corruptions"]["severity"]
        for name, entry in summary.get("robustness", {}).items()
        if "corruptions" in entry
    }
    if not methods:
        return None
    figure, panels = panel_grid(2, 2, (3.9, 3.2))
    for axes, key in zip(panels, ("accuracy", "ece"), strict=True):
        for i, (name, by_severity) in enumerate(methods.items()):
            x = [int(severity) for severity in by_severity]
            mean = np.array([100 * v[key]["mean"] for v in by_severity.values()])
            std = np.array([100 * (v[key]["std"] or 0) for v in by_severity.values()])
            color, style = color_and_style(i)
            axes.plot(x, mean, style, marker="o", ms=3.5, lw=1.5, color=color, label=name)
            axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, lw=0)
        axes.set(xlabel="severity of the corruption, 0: none", title=f"{METRICS[key].title}, %")
        if key == "ece":
            axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
    legend_below(figure, panels)
    return figure


def plot_operations(summary: Summary) -> Figure | None:
    """Plot test accuracy against the magnitude of each image operation; magnitude 0 is without it.

    A panel per method and a line per operation.

    Args:
      summary: Summary from `summarize`.

    Returns:
      The figure; `None` if no operation was evaluated.
    """
    methods = {
        name: entry["operations"]
        for name, entry in summary.get("robustness", {}).items()
        if "operations" in entry
    }
    if not methods:
        return None
    figure, panels = panel_grid(len(methods), 3, (3.4, 2.9), shared=True)
    for axes, (method, operations) in zip(panels, methods.items(), strict=True):
        for i, (name, by_magnitude) in enumerate(operations.items()):
            x = [int(magnitude) for magnitude in by_magnitude]
            mean = [100 * entry["accuracy"]["mean"] for entry in by_magnitude.values()]
            color, style = color_and_style(i)
            axes.plot(x, mean, style, marker="o", ms=3, lw=1.5, color=color, label=name)
        axes.set(title=method, xlabel="magnitude")
        axes.grid(alpha=0.25)
    figure.supylabel("accuracy, %", fontsize=10)
    legend_below(figure, panels, max_columns=5)
    return figure


def _deltas(methods: Mapping[str, Record]) -> list[Cell]:
    """Return the cells of equation 4, of means over seeds, against cross entropy.

    That of the same workdir counts, else the first one.
    """
    totals = {
        name: 100 * (m["attack"]["clean_accuracy"]["mean"] + m["attack"]["accuracy"]["mean"])
        for name, m in methods.items()
        if "attack" in m
    }
    baselines = [name for name in totals if name.rpartition("/")[2] == _BASELINE]
    cells = []
    for name in methods:
        if not baselines or name in baselines or name not in totals:
            cells.append(EMPTY)
            continue
        workdir = name.rpartition("/")[0]
        near = [baseline for baseline in baselines if baseline.rpartition("/")[0] == workdir]
        cells.append(Cell(f"{totals[name] - totals[(near or baselines)[0]]:+.2f}"))
    return cells
