"""Pictures of training: loss, error and ECE over the epochs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from calib_jax.report._plots import COLOURS

Rows = Sequence[Mapping[str, Any]]  # of one run's metrics.jsonl

_STYLES = ("-", "--", "-.", ":")

_CURVES = (
    ("train/loss", "training loss, each method's own", lambda y: y),
    ("val/accuracy", "validation error, %", lambda y: 100 * (1 - y)),
    ("val/ece_mass", "validation ECE-15 equal mass, %", lambda y: 100 * y),
)


def plot_curves(runs: Mapping[str, Sequence[Rows]]) -> Figure:
    """Training loss, validation error and validation ECE over the epochs.

    A line per method: the mean over its seeds, in a band from the smallest to the largest. Loss is
    the one the method minimises: levels of different methods do not compare.

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
    figure = Figure(figsize=(0.6 + 3.5 * len(panels), 3.6), layout="constrained")
    for axes, (key, title, shown) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        lowest = np.inf
        for i, (method, seeds) in enumerate(runs.items()):
            epochs, values = _by_epoch(seeds, key)
            if not epochs:
                continue
            lines = [shown(np.asarray(v)) for v in values]
            low, mean, high = np.array([(y.min(), y.mean(), y.max()) for y in lines]).T
            colour, style = COLOURS[i % len(COLOURS)], _STYLES[i // len(COLOURS) % 4]
            axes.fill_between(epochs, low, high, color=colour, alpha=0.18, lw=0)
            axes.plot(epochs, mean, style, color=colour, lw=1.6, label=method)
            lowest = min(lowest, low.min())
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


def _by_epoch(seeds: Sequence[Rows], key: str) -> tuple[list[float], list[list[float]]]:
    """Epochs, and for each the values of those seeds that have one."""
    found: dict[float, list[float]] = {}
    for run in seeds:
        for row in run:
            if key in row:
                found.setdefault(row["epoch"], []).append(row[key])
    return sorted(found), [found[epoch] for epoch in sorted(found)]
