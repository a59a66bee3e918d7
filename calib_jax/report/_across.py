"""Several workdirs against a setting in which they differ: figures 3, 6 and 7 of AutoLabel."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._plots import COLORS

# Path in a summary's entry of a method, title of the panel.
_PANELS = (
    (("corruptions", "severity", "0", "accuracy"), "accuracy, %"),
    (("corruptions", "severity", "0", "ece"), "ECE, %"),
    (("corruptions", "mean", "accuracy"), "cAccuracy, %"),
    (("corruptions", "mean", "ece"), "cECE, %"),
    (("attack", "clean_accuracy"), "accuracy of the attacked part, %"),
    (("attack", "accuracy"), "attacked accuracy, %"),
)


class Point(NamedTuple):
    """What a method of a workdir shows at the workdir's place on the x axis.

    Attributes:
      method: name of the row.
      x: value of the setting, or the name of the workdir.
      robustness: the method's entry of a summary's `robustness`.
    """

    method: str
    x: float | str
    robustness: Mapping[str, Any]


def plot_across(points: Sequence[Point], label: str) -> Figure | None:
    """Plot accuracy and calibration under corruption and attack against a setting of the workdirs.

    A line per method with error bars of one standard deviation over its seeds. A method of a single
    workdir, such as a baseline that the setting does not concern, is a horizontal line.

    Args:
      points: what every method of every workdir shows; names on the x axis keep their order.
      label: of the x axis.

    Returns:
      The figure; `None` if nothing was corrupted or attacked.
    """
    panels = [panel for panel in _PANELS if any(_at(p.robustness, panel[0]) for p in points)]
    if not panels:
        return None
    places = list(dict.fromkeys(point.x for point in points))
    numeric = all(isinstance(x, int | float) for x in places)
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1 + 3.8 * columns, 0.8 + 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    methods = list(dict.fromkeys(point.method for point in points))
    for axes, (path, title) in zip(grid.flat, panels, strict=False):
        for i, method in enumerate(methods):
            found = [(p.x, _at(p.robustness, path)) for p in points if p.method == method]
            found = [(x, value) for x, value in found if value]
            if not found:
                continue
            color = COLORS[i % len(COLORS)]
            style = ("-", "--", "-.", ":")[i // len(COLORS) % 4]
            mean = np.array([100 * value["mean"] for _, value in found])
            std = np.array([100 * (value["std"] or 0) for _, value in found])
            if len(found) == 1 and len(places) > 1:
                axes.axhline(mean[0], color=color, ls=":", lw=1.5, label=method)
                axes.axhspan(mean[0] - std[0], mean[0] + std[0], color=color, alpha=0.12, lw=0)
                continue
            x = [x if numeric else places.index(x) for x, _ in found]
            axes.errorbar(
                x, mean, std, ls=style, marker="o", ms=4, lw=1.5, capsize=2, color=color, label=method
            )  # fmt: skip
        axes.set(title=title, xlabel=label)
        axes.set_xticks(places if numeric else range(len(places)), labels=[f"{x}" for x in places])
        axes.grid(alpha=0.25)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _at(tree: Mapping[str, Any], path: Sequence[str]) -> Any:
    for key in path:
        if key not in tree:
            return None
        tree = tree[key]
    return tree
