"""Plots over the epochs of a training: loss, error and ECE, and AutoLabel's label confidences."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calib_jax.metrics import METRICS
from calib_jax.report._style import color_and_style, legend_below, panel_grid
from calib_jax.report._types import Row, Rows


class _Curve(NamedTuple):
    """A panel: key in the log, title, and function from a logged value to the one that is shown."""

    key: str
    title: str
    shown: Callable[[float], float]


_CURVES = [_Curve("train/loss", "training loss, each method's own", lambda y: y)]
for _split, _name in (("val", "validation"), ("test", "test")):
    _CURVES += [
        _Curve(f"{_split}/accuracy", f"{_name} error, %", lambda y: 100 * (1 - y)),
        _Curve(f"{_split}/ece_mass", f"{_name} {METRICS['ece_mass'].title}, %", lambda y: 100 * y),
    ]


def plot_curves(runs: Mapping[str, Sequence[Rows]]) -> Figure:
    """Plot training loss, and error and ECE of validation (and of test, if logged), over the epochs.

    A line per method: the mean over its seeds, in a band of a standard deviation to either side. Each
    method has its own loss: its levels do not compare with those of another.

    Args:
      runs: Lines of the logs of each method, one log per seed. A key that is in no log has no panel.

    Returns:
      The figure.

    >>> plot_curves({"ce": [[{"epoch": 1.0, "train/loss": 0.5}]]}).axes[0].get_title()
    "training loss, each method's own"
    """
    rows = [row for seeds in runs.values() for run in seeds for row in run]
    panels = [curve for curve in _CURVES if any(curve.key in row for row in rows)]
    if not panels:
        raise ValueError(f"runs: no row holds any of {', '.join(c.key for c in _CURVES)}")
    figure, grid = panel_grid(len(panels), max_columns=3)
    for axes, (key, title, shown) in zip(grid, panels, strict=True):
        lowest = np.inf
        for i, (method, seeds) in enumerate(runs.items()):
            epochs, mean, std = mean_and_std(seeds, partial(_entry, key=key, shown=shown))
            if not epochs:
                continue
            color, style = color_and_style(i)
            draw_band(axes, epochs, mean, std, color, style, method)
            lowest = min(lowest, mean.min())
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
        if key == "train/loss" and lowest > 0:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    legend_below(figure, grid, max_columns=5)
    return figure


def plot_labels(rows: Rows) -> Figure:
    """Plot the label confidence of each bucket over the epochs, as AutoLabel has learned it.

    Args:
      rows: Lines of the log of one run, with `method/label_confidence` `[buckets]` or
        `[panels, buckets]` and, if panels have names, `method/bucket_names` `[panels]`.

    Returns:
      The figure.

    >>> len(plot_labels([{"epoch": 1.0, "method/label_confidence": [0.9, 0.8]}]).axes)
    1
    """
    logged = [row for row in rows if "method/label_confidence" in row]
    if not logged:
        raise ValueError("rows: none holds method/label_confidence")
    epochs = [0.0, *(row["epoch"] for row in logged)]
    tables = np.array([row["method/label_confidence"] for row in logged])
    tables = tables.reshape(len(logged), -1, tables.shape[-1])
    tables = np.concatenate([np.ones_like(tables[:1]), tables])
    names = logged[-1].get("method/bucket_names", ())
    _, panels, buckets = tables.shape
    figure, grid = panel_grid(panels, 5, (2.3, 2.1) if panels > 1 else (5.0, 3.0), shared=True)
    shades = _shades(buckets)
    in_legend = (0, buckets // 2, buckets - 1)
    for i, axes in enumerate(grid):
        for bucket in range(buckets):
            label = f"bucket {bucket + 1}" if bucket in in_legend else "_"
            axes.plot(epochs, 100 * tables[:, i, bucket], lw=1.2, color=shades[bucket], label=label)
        if i < len(names):
            axes.set_title(names[i], fontsize=9)
        axes.grid(alpha=0.25)
    for axes in grid[-5:]:
        axes.set_xlabel("epoch")
    figure.supylabel("confidence in the label, %", fontsize=10)
    legend_below(figure, grid)
    return figure


def _shades(number: int) -> list[tuple[float, ...]]:
    """Return blues from light to dark, the lightest of which can be seen on white."""
    light, dark = np.array([0.62, 0.79, 0.88]), np.array([0.03, 0.19, 0.42])
    weights = np.linspace(0, 1, number)[:, None]
    return [tuple(color) for color in (1 - weights) * light + weights * dark]


def _entry(row: Row, key: str, shown: Callable[[float], float]) -> float | None:
    return shown(row[key]) if key in row else None


def mean_and_std(
    seeds: Sequence[Rows], value: Callable[[Row], float | None]
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Return epochs, and for each mean and standard deviation over the seeds that have a value.

    The deviation divides by the number of seeds less one, as in the tables; that of one seed is 0.
    """
    by_epoch: dict[float, list[float]] = {}
    for run in seeds:
        for row in run:
            if (y := value(row)) is not None:
                by_epoch.setdefault(row["epoch"], []).append(y)
    epochs = sorted(by_epoch)
    values = [np.asarray(by_epoch[epoch], float) for epoch in epochs]
    stds = [y.std(ddof=1) if len(y) > 1 else 0.0 for y in values]
    return epochs, np.array([y.mean() for y in values]), np.array(stds)


def draw_band(
    axes: Axes,
    epochs: Sequence[float],
    mean: np.ndarray,
    std: np.ndarray,
    color: str,
    style: str,
    label: str,
) -> None:
    """Draw a line of means in a band of a standard deviation to either side."""
    axes.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.18, lw=0)
    axes.plot(epochs, mean, style, color=color, lw=1.6, label=label)
