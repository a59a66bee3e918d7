"""Plots of several workdirs against a setting in which they differ: figures 3, 6, 7 of AutoLabel."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calib_jax.report._robustness import at_path
from calib_jax.report._style import color_and_style, legend_below, panel_grid
from calib_jax.report._types import Record

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
    robustness: Record


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
    positions = {x: x if is_numeric else i for i, x in enumerate(ticks)}
    methods = list(dict.fromkeys(point.method for point in points))
    figure, grid = panel_grid(len(panels), 2, (3.8, 2.7))
    for axes, (path, title) in zip(grid, panels, strict=True):
        for i, method in enumerate(methods):
            of_method = [p for p in points if p.method == method]
            entries = {positions[p.x]: at_path(p.robustness, path) for p in of_method}
            _draw_method(axes, entries, method, color_and_style(i), is_level=len(ticks) > 1)
        axes.set(title=title, xlabel=label)
        axes.set_xticks(list(positions.values()), labels=[f"{x}" for x in ticks])
        axes.grid(alpha=0.25)
    legend_below(figure, grid)
    return figure


def _draw_method(
    axes: Axes,
    entries: Mapping[float | str, Record | None],
    method: str,
    look: tuple[str, str],
    *,
    is_level: bool,
) -> None:
    """Draw a line with error bars or, for a single value if `is_level`, a horizontal line."""
    measured = {x: entry for x, entry in entries.items() if entry}
    mean = np.array([100 * entry["mean"] for entry in measured.values()])
    std = np.array([100 * (entry["std"] or 0) for entry in measured.values()])
    color, style = look
    if len(measured) == 1 and is_level:
        axes.axhline(mean[0], color=color, ls=":", lw=1.5, label=method)
        axes.axhspan(mean[0] - std[0], mean[0] + std[0], color=color, alpha=0.12, lw=0)
    elif measured:
        axes.errorbar(
            list(measured), mean, std, ls=style, marker="o", ms=4, lw=1.5, capsize=2, color=color,
            label=method,
        )  # fmt: skip
