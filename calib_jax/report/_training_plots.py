"""Pictures of training: curves over the epochs and AdaFocal's γ per bin."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

Rows = Sequence[Mapping[str, Any]]  # of one run's metrics.jsonl

# Okabe and Ito's colours, which the colour-blind tell apart too, without the yellow.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_STYLES = ("-", "--", "-.", ":")
_WARM, _COOL = "#c8553d", "#2f6db5"  # over-confident and focal; under-confident and inverse focal

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
            colour, style = _COLOURS[i % len(_COLOURS)], _STYLES[i // len(_COLOURS) % 4]
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


def plot_gamma(rows: Rows) -> Figure:
    """How γ moves in every bin and what moved it, as small multiples.

    Each bin has its γ over the epochs, focal loss above zero and inverse focal below, and, where the
    rows hold `method/gap`, the validation set's confidence less accuracy in that bin on top of it.
    Above 0.2 in size γ is on a log scale, as it is multiplied by `exp(λ gap)` at each update. Titles
    give the bins' probabilities at the end; equal-mass bins move while the network learns.

    Args:
      rows: of one run; those with `method/gamma` count.

    Returns:
      The figure.
    """
    rows = [row for row in rows if "method/gamma" in row]
    if not rows:
        raise ValueError("rows: expected some with 'method/gamma', found none; AdaFocal writes it")
    epochs = [row["epoch"] for row in rows]
    gamma = np.array([row["method/gamma"] for row in rows], float)
    num_bins = gamma.shape[1]
    unknown = [np.nan] * num_bins
    gap = 100 * np.array([row.get("method/gap", unknown) for row in rows], float)
    with_gap = bool(np.isfinite(gap).any())
    across = min(5, num_bins)
    down = -(-num_bins // across)

    figure = Figure(figsize=(10.8, 0.9 + (2.1 if with_gap else 1.5) * down))
    height = figure.get_figheight()
    grid = figure.add_gridspec(
        down, across, left=0.065, right=0.985, top=1 - 0.62 / height, bottom=0.42 / height,
        hspace=0.3, wspace=0.1,
    )  # fmt: skip
    gamma_limits = 1.25 * min(gamma.min(), -0.2), 1.25 * max(gamma.max(), 1.0)
    gap_limit = 1.1 * np.nanmax(np.abs(gap), initial=1.0)
    names = _bin_names(rows[-1].get("method/edges"), num_bins)
    for b in range(num_bins):
        ratios = (2, 3) if with_gap else (1,)
        cell = grid[b // across, b % across].subgridspec(
            len(ratios), 1, hspace=0.08, height_ratios=ratios
        )
        stack = [figure.add_subplot(cell[i]) for i in range(len(ratios))]
        _draw_gamma(stack[-1], epochs, gamma[:, b], gamma_limits)
        if with_gap:
            _draw_gap(stack[0], epochs, gap[:, b], gap_limit)
        stack[0].set_title(names[b], fontsize=8.5, pad=3)
        lowest, leftmost = b + across >= num_bins, b % across == 0
        for axes, name in zip(stack[::-1], ("γ", "gap, %"), strict=False):
            axes.set_xlim(0, epochs[-1] or 1)
            axes.tick_params(labelsize=7.5, length=2)
            # Ticks are most of the drawing's time: only where they have their labels.
            if leftmost:
                axes.set_ylabel(name, fontsize=8.5, labelpad=1)
            else:
                axes.set_yticks([])
            if lowest and axes is stack[-1]:
                axes.set_xlabel("epoch", fontsize=8, labelpad=1)
            else:
                axes.set_xticks([])
    handles = [
        Patch(color=_WARM, alpha=0.35, label="γ > 0: focal loss"),
        Patch(color=_COOL, alpha=0.35, label="γ < 0: inverse focal loss"),
    ]
    if with_gap:
        handles += [
            Patch(color=_WARM, label="confidence above accuracy on validation"),
            Patch(color=_COOL, label="below"),
        ]
    figure.legend(handles=handles, loc="upper center", ncols=4, fontsize=9, frameon=False)
    return figure


def _by_epoch(seeds: Sequence[Rows], key: str) -> tuple[list[float], list[list[float]]]:
    """Epochs, and for each the values of those seeds that have one."""
    found: dict[float, list[float]] = {}
    for run in seeds:
        for row in run:
            if key in row:
                found.setdefault(row["epoch"], []).append(row[key])
    return sorted(found), [found[epoch] for epoch in sorted(found)]


def _draw_gap(axes: Axes, epochs: list[float], gap: np.ndarray, limit: float) -> None:
    axes.fill_between(epochs, 0, gap, where=gap >= 0, interpolate=True, color=_WARM, lw=0)
    axes.fill_between(epochs, 0, gap, where=gap <= 0, interpolate=True, color=_COOL, lw=0)
    axes.axhline(0, color="0.3", lw=0.7, ls=":")
    axes.set_ylim(-limit, limit)


def _draw_gamma(
    axes: Axes, epochs: list[float], gamma: np.ndarray, limits: tuple[float, float]
) -> None:
    # γ jumps from 0.2 to -0.2 when it changes sides: nothing happens in between.
    axes.set_yscale("symlog", linthresh=0.2, linscale=0.25)
    axes.set_ylim(*limits)
    ticks = [t for t in (-2, -0.2, 0.2, 1, 5, 20) if limits[0] <= t <= limits[1]]
    axes.set_yticks(ticks, [f"{t:g}".replace("-", "−") for t in ticks])
    axes.minorticks_off()
    axes.axhspan(0, limits[1], color=_WARM, alpha=0.10, lw=0)
    axes.axhspan(limits[0], 0, color=_COOL, alpha=0.13, lw=0)
    axes.axhline(0, color="0.3", lw=0.7)
    axes.plot(epochs, gamma, color="#222222", lw=1.4)
    side = _WARM if gamma[-1] >= 0 else _COOL
    axes.plot(epochs[-1:], gamma[-1:], "o", ms=4, color=side, clip_on=False, zorder=3)
    above = gamma[-1] < 1  # where there is room for the number
    axes.annotate(
        f"{gamma[-1]:.2g}".replace("-", "−"), (epochs[-1], gamma[-1]), xytext=(-4, 5 if above else -12),
        textcoords="offset points", ha="right", fontsize=8, color=side, weight="bold",
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )  # fmt: skip


def _bin_names(edges: Sequence[float] | None, num_bins: int) -> list[str]:
    if edges is None:
        return [f"bin {b + 1}" for b in range(num_bins)]
    ends = [_probability(p) for p in (0.0, *edges, 1.0)]
    return [f"bin {b + 1}:  p {ends[b]} to {ends[b + 1]}" for b in range(num_bins)]


def _probability(p: float) -> str:
    """With as many digits as tell p from 1 and from its neighbours: most bins crowd there."""
    if p in (0, 1):
        return f"{p:g}"
    digits = min(max(2, 1 - math.floor(math.log10(1 - p))), 7)
    return f"{p:.{digits}f}"
