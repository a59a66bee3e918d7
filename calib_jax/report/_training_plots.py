"""Pictures of training: loss, error and ECE over the epochs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calib_jax.report._plots import COLORS

Rows = Sequence[Mapping[str, Any]]  # of one run's metrics.jsonl

STYLES = ("-", "--", "-.", ":")

_CURVES = (
    ("train/loss", "training loss, each method's own", lambda y: y),
    ("val/accuracy", "validation error, %", lambda y: 100 * (1 - y)),
    ("val/ece_mass", "validation ECE-15 equal mass, %", lambda y: 100 * y),
    ("test/accuracy", "test error, %", lambda y: 100 * (1 - y)),
    ("test/ece_mass", "test ECE-15 equal mass, %", lambda y: 100 * y),
)
_ACROSS = 3  # panels in a row


def plot_curves(runs: Mapping[str, Sequence[Rows]]) -> Figure:
    """Training loss, and error and ECE of validation (and of test, if logged), over the epochs.

    A line per method: the mean over its seeds, in a band of a standard deviation to either side. Loss
    is the one the method minimizes: levels of different methods do not compare.

    Args:
      runs: for each method the rows of its runs, one run per seed. A key that no run has leaves its
        panel out.

    Returns:
      The figure.
    """
    rows = [row for seeds in runs.values() for run in seeds for row in run]
    panels = [curve for curve in _CURVES if any(curve[0] in row for row in rows)]
    if not panels:
        raise ValueError(f"runs: no row holds any of {', '.join(key for key, _, _ in _CURVES)}")
    across, down = min(_ACROSS, len(panels)), -(-len(panels) // _ACROSS)
    figure = Figure(figsize=(0.6 + 3.5 * across, 0.5 + 3.1 * down), layout="constrained")
    for number, (key, title, shown) in enumerate(panels, start=1):
        axes = figure.add_subplot(down, across, number)
        lowest = np.inf
        for i, (method, seeds) in enumerate(runs.items()):
            epochs, mean, std = mean_and_std(seeds, partial(_entry, key=key, shown=shown))
            if not epochs:
                continue
            color, style = COLORS[i % len(COLORS)], STYLES[i // len(COLORS) % 4]
            draw_band(axes, epochs, mean, std, color=color, ls=style, label=method)
            lowest = min(lowest, mean.min())
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
        if key == "train/loss" and lowest > 0:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(5, len(runs)), frameon=False
    )
    return figure


def _entry(row: Mapping[str, Any], key: str, shown: Callable[[float], float]) -> float | None:
    return shown(row[key]) if key in row else None


def mean_and_std(
    seeds: Sequence[Rows], value: Callable[[Mapping[str, Any]], float | None]
) -> tuple[list[float], np.ndarray, np.ndarray]:
    """Return epochs, and for each mean and standard deviation over the seeds that have a value.

    The deviation divides by the seeds less one, as in the tables; it is 0 where there is one seed.
    """
    found: dict[float, list[float]] = {}
    for run in seeds:
        for row in run:
            if (y := value(row)) is not None:
                found.setdefault(row["epoch"], []).append(y)
    epochs = sorted(found)
    values = [np.asarray(found[epoch], float) for epoch in epochs]
    stds = [y.std(ddof=1) if len(y) > 1 else 0.0 for y in values]
    return epochs, np.array([y.mean() for y in values]), np.array(stds)


def draw_band(
    axes: Axes, epochs: list[float], mean: np.ndarray, std: np.ndarray, *, color: str, **line: Any
) -> None:
    """Draw a line of means in a band of a standard deviation to either side."""
    axes.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.18, lw=0)
    axes.plot(epochs, mean, color=color, lw=1.6, **line)
