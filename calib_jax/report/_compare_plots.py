"""Plots of several workdirs against a setting in which they differ: figures 3, 6, 7 of AutoLabel."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._robustness import at_path
from calib_jax.report._style import color_and_style

# Path in the robustness of a method, title of the panel.
_PANELS = (
    (("corruptions", "severity", "0", "accuracy"), "accuracy, %"),
    (("corruptions", "severity", "0", "ece"), "ECE, %"),
    (("corruptions", "mean", "accuracy"), "cAccuracy, %"),
    (("corruptions", "mean", "ece"), "cECE, %"),
    (("attack", "clean_accuracy"), "accuracy of the attacked part, %"),
    (("attack", "accuracy"), "attacked accuracy, %"),
)


class Point(NamedTuple):
    """The robustness of one method of one workdir.

    Attributes:
      method: Name of the line.
      x: Value of the setting, or the name of the workdir.
      robustness: Entry of the method in a summary's `robustness`.
    """

    method: str
    x: float | str
    robustness: Mapping[str, Any]


def plot_across(points: Sequence[Point], label: str) -> Figure | None:
    """Plot accuracy and calibration under corruption and attack against a setting of the workdirs.

    A line per method with error bars of one standard deviation over its seeds. A method of a single
    workdir, such as a baseline that the setting does not concern, is a horizontal line.

    Args:
      points: Methods of all workdirs; names on the x axis keep their order.
      label: Label of the x axis.

    Returns:
      The figure; `None` if nothing was corrupted or attacked.
    """
    panels = [panel for panel in _PANELS if any(at_path(p.robustness, panel[0]) for p in points)]
    if not panels:
        return None
    ticks = list(dict.fromkeys(point.x for point in points))
    is_numeric = all(isinstance(x, int | float) for x in ticks)
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1 + 3.8 * columns, 0.8 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    methods = list(dict.fromkeys(point.method for point in points))
    for axes, (path, title) in zip(grid.flat, panels, strict=False):
        for i, method in enumerate(methods):
            entries = [(p.x, at_path(p.robustness, path)) for p in points if p.method == method]
            entries = [(x, entry) for x, entry in entries if entry]
            if not entries:
                continue
            color, style = color_and_style(i)
            mean = np.array([100 * entry["mean"] for _, entry in entries])
            std = np.array([100 * (entry["std"] or 0) for _, entry in entries])
            if len(entries) == 1 and len(ticks) > 1:
                axes.axhline(mean[0], color=color, ls=":", lw=1.5, label=method)
                axes.axhspan(mean[0] - std[0], mean[0] + std[0], color=color, alpha=0.12, lw=0)
                continue
            x = [x if is_numeric else ticks.index(x) for x, _ in entries]
            axes.errorbar(
                x, mean, std, ls=style, marker="o", ms=4, lw=1.5, capsize=2, color=color, label=method
            )  # fmt: skip
        axes.set(title=title, xlabel=label)
        axes.set_xticks(ticks if is_numeric else range(len(ticks)), labels=[f"{x}" for x in ticks])
        axes.grid(alpha=0.25)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure
