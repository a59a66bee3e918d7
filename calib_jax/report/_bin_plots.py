"""Plots of calibration per bin, and of AdaFocal's γ, over the epochs."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from calib_jax.report._style import OVER, UNDER, color_and_style, legend_below, panel_grid
from calib_jax.report._training_plots import draw_band, mean_and_std
from calib_jax.report._types import Row, Rows

_UNBOUNDED = (100, 1e4, 1e8, 1e16, 1e30)  # further ticks of γ, for a run without gamma_max
_CORRESPONDENCE = (
    ("method/train_confidence", "training: mean probability of the label", "-", "#0072b2"),
    ("method/val_confidence", "validation: confidence", "-", "#d55e00"),
    ("method/val_accuracy", "validation: accuracy", "--", "#000000"),
)


def plot_gamma(rows: Rows) -> Figure:
    """Plot γ in every bin over the epochs, and the calibration gap that moved it.

    Each bin has its γ, focal loss above zero and inverse focal below, and on top of it the validation
    set's confidence less accuracy; a method that logs only one of the two, such as CalFocal, has that
    one. Above 0.2 in size γ is on a log scale, as it is multiplied by `exp(λ gap)` at each update.
    Titles give the bins' probabilities at the end; equal-mass bins move while the network learns.

    Args:
      rows: Lines of the log of one run; those with `method/gamma`, or else those with `method/gap`,
        count. For a method without bins, those of the bin monitor do (`method/val_gap`).

    Returns:
      The figure.

    >>> len(plot_gamma([{"epoch": 1.0, "method/gamma": [1.0, -0.2]}]).axes)
    2
    """
    keys, edges = _logged_bins(rows)
    rows = [row for row in rows if keys[0] in row]
    epochs = [row["epoch"] for row in rows]
    num_bins = len(rows[0][keys[0]])
    names = _bin_names(rows[-1].get(edges), num_bins)
    across = min(5, num_bins)
    down = -(-num_bins // across)
    height = 0.9 + (2.1 if len(keys) == 2 else 1.5) * down
    figure = Figure(figsize=(10.8, height))
    grid = figure.add_gridspec(
        down, across, left=0.065, right=0.985, top=1 - 0.62 / height, bottom=0.42 / height,
        hspace=0.3, wspace=0.1,
    )  # fmt: skip
    values = {key: _per_bin(rows, key, num_bins) for key in keys}
    for b in range(num_bins):
        cell = grid[divmod(b, across)].subgridspec(
            len(keys), 1, hspace=0.08, height_ratios=(2, 3)[-len(keys) :]
        )
        stack = [figure.add_subplot(cell[i]) for i in range(len(keys))]
        for axes, key in zip(stack[::-1], keys, strict=True):
            draw, label = (_draw_gamma, "γ") if key == "method/gamma" else (_draw_gap, "gap, %")
            draw(axes, epochs, values[key][:, b], values[key])
            is_lowest = b + across >= num_bins and axes is stack[-1]
            _label_axes(axes, epochs[-1], label if b % across == 0 else "", is_lowest)
        stack[0].set_title(names[b], fontsize=8.5, pad=3)
    figure.legend(
        handles=_bin_handles(keys), loc="upper center", ncols=4, fontsize=9, frameon=False
    )
    return figure


def _label_axes(axes: Axes, last_epoch: float, label: str, is_lowest: bool) -> None:
    """Label the axes at the edges of the figure; ticks are most of the drawing's time elsewhere."""
    axes.set_xlim(0, last_epoch or 1)
    axes.tick_params(labelsize=7.5, length=2)
    if label:
        axes.set_ylabel(label, fontsize=8.5, labelpad=1)
    else:
        axes.set_yticks([])
    if is_lowest:
        axes.set_xlabel("epoch", fontsize=8, labelpad=1)
    else:
        axes.set_xticks([])


def _logged_bins(rows: Rows) -> tuple[list[str], str]:
    """Return what was logged per bin, the lowest of the panels first, and the key of the edges."""
    logged = {key for row in rows for key in row}
    keys: list[str] = [key for key in ("method/gamma", "method/gap") if key in logged]
    if keys:
        return keys, "method/edges"
    if "method/val_gap" in logged:
        return ["method/val_gap"], "method/val_edges"
    raise ValueError(
        "rows: expected some with 'method/gamma' or 'method/gap', found none; "
        "AdaFocal and CalFocal write them"
    )


def _bin_handles(keys: Sequence[str]) -> list[Patch]:
    """Return the entries of the legend of `plot_gamma`."""
    gamma = [
        Patch(color=OVER, alpha=0.35, label="γ > 0: focal loss"),
        Patch(color=UNDER, alpha=0.35, label="γ < 0: inverse focal loss"),
    ]
    gap = [
        Patch(color=OVER, label="confidence above accuracy on validation"),
        Patch(color=UNDER, label="below"),
    ]
    if len(keys) == 2:
        return gamma + gap
    return gamma if keys[0] == "method/gamma" else gap


def plot_correspondence(rows: Rows) -> Figure:
    """Plot confidence in training and validation over the epochs in a low, a middle and a high bin.

    Each has the mean probability that training examples in the bin give their label, and the
    validation examples' confidence and accuracy; between these two lies the calibration gap, warm where
    the network is over-confident. A bin without training examples, logged as 0, has no point.

    Args:
      rows: Lines of the log of one run; those with `method/train_confidence`,
        `method/val_confidence` and `method/val_accuracy` count.

    Returns:
      The figure.
    """
    keys = [key for key, *_ in _CORRESPONDENCE]
    rows = [row for row in rows if all(key in row for key in keys)]
    if not rows:
        raise ValueError(f"rows: expected some with {', '.join(keys)}, found none")
    epochs = [row["epoch"] for row in rows]
    num_bins = len(rows[0][keys[0]])
    values = {key: _per_bin(rows, key, num_bins) for key in keys}
    values[keys[0]] = np.where(values[keys[0]] == 0, np.nan, values[keys[0]])
    chosen = _low_middle_high(num_bins)
    names = _bin_names(rows[-1].get("method/val_edges", rows[-1].get("method/edges")), num_bins)
    figure, panels = panel_grid(len(chosen), max_columns=3)
    for axes, b in zip(panels, chosen, strict=True):
        confidence, accuracy = (values[key][:, b] for key in keys[1:])
        for above, color in ((confidence >= accuracy, OVER), (confidence <= accuracy, UNDER)):
            axes.fill_between(
                epochs, confidence, accuracy, where=above, interpolate=True,
                color=color, alpha=0.2, lw=0,
            )  # fmt: skip
        for key, label, style, color in _CORRESPONDENCE:
            is_starred = key == "method/val_confidence" or len(epochs) == 1
            axes.plot(
                epochs, values[key][:, b], style, color=color, lw=1.5, label=label, ms=6,
                marker="*" if is_starred else "None", markevery=max(1, len(epochs) // 15),
            )  # fmt: skip
        axes.set_title(names[b], fontsize=10)
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.25)
    legend_below(figure, panels)
    return figure


def plot_bins(runs: Mapping[str, Sequence[Rows]]) -> Figure:
    """Plot all methods in a low, a middle and a high validation bin over the epochs.

    Above, the calibration gap: confidence less accuracy of the bin on validation. Below, solid, the mean
    probability that training examples in the bin give their label and, starred, the confidence of
    validation. Means over the seeds; the gaps in a band of a standard deviation.

    Args:
      runs: Lines of the logs of each method, one log per seed; those with `method/val_gap`,
        `method/val_confidence` and `method/train_confidence` count.

    Returns:
      The figure.
    """
    keys = ("method/val_gap", "method/train_confidence", "method/val_confidence")
    gap, train, val = keys
    kept = {
        method: [[row for row in run if all(key in row for key in keys)] for run in seeds]
        for method, seeds in runs.items()
    }
    counts = {len(row[gap]) for seeds in kept.values() for run in seeds for row in run}
    if len(counts) != 1:
        raise ValueError(f"runs: expected some with {', '.join(keys)}, found {len(counts)} kinds")
    num_bins = counts.pop()
    chosen = _low_middle_high(num_bins)
    figure, panels = panel_grid(2 * len(chosen), len(chosen))
    above, below = panels[: len(chosen)], panels[len(chosen) :]
    for gaps, confidences, b in zip(above, below, chosen, strict=True):
        for i, (method, seeds) in enumerate(kept.items()):
            if not any(seeds):
                continue
            color, style = color_and_style(i)
            epochs, mean, std = mean_and_std(seeds, partial(_entry, key=gap, b=b, scale=100))
            draw_band(gaps, epochs, mean, std, color, style, method)
            stars = {"marker": "*", "markevery": max(1, len(epochs) // 12), "ms": 6, "lw": 0.8}
            for key, more in ((train, {"lw": 1.8}), (val, stars)):
                _, mean, _ = mean_and_std(seeds, partial(_entry, key=key, b=b))
                confidences.plot(epochs, mean, style, color=color, **more)
        gaps.axhline(0, color="0.3", lw=0.8, ls=":")
        gaps.set_title(f"bin {b + 1} of {num_bins}", fontsize=10)
        confidences.set_xlabel("epoch")
        for axes in (gaps, confidences):
            axes.grid(alpha=0.25)
    above[0].set_ylabel("confidence less accuracy, %")
    below[0].set_ylabel("training (solid), validation (★)")
    legend_below(figure, above, max_columns=5)
    return figure


def plot_training_bins(rows: Rows) -> Figure:
    """Plot other training confidences in a low, a middle and a high bin over the epochs.

    Above, in the bins of the validation set, the confidence in the true class and in the predicted one;
    they become the same when training is nearly always right. Below, training and validation
    confidence, each in equal-mass bins of the same set, with the ranges of these bins.

    Args:
      rows: Lines of the log of one run; those with `method/train_own_confidence` count.

    Returns:
      The figure.
    """
    rows = [row for row in rows if "method/train_own_confidence" in row]
    if not rows:
        raise ValueError("rows: expected some with method/train_own_confidence, found none")
    epochs = [row["epoch"] for row in rows]
    num_bins = len(rows[0]["method/train_own_confidence"])
    chosen = _low_middle_high(num_bins)
    blue, orange = "#0072b2", "#d55e00"
    figure, panels = panel_grid(2 * len(chosen), len(chosen))
    above, below = panels[: len(chosen)], panels[len(chosen) :]

    def draw(axes: Axes, key: str, b: int, color: str, label: str, style: str = "-") -> None:
        values = _per_bin(rows, f"method/{key}", num_bins)[:, b]
        values = np.where(values == 0, np.nan, values)  # no example was there
        marker = "*" if len(epochs) == 1 else ""
        axes.plot(epochs, values, style, color=color, lw=1.5, label=label, marker=marker)

    for axes, lower, b in zip(above, below, chosen, strict=True):
        draw(axes, "train_confidence", b, blue, "training: true class")
        draw(axes, "train_top_confidence", b, "#000000", "training: predicted class", "--")
        axes.set_title(f"bin {b + 1} of {num_bins}, of validation", fontsize=10)
        for key, color in (("train_own_edges", blue), ("val_edges", orange)):
            inner = _per_bin(rows, f"method/{key}", num_bins - 1)
            ends = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
            lower.fill_between(epochs, ends[:, b], ends[:, b + 1], color=color, alpha=0.15, lw=0)
        draw(lower, "train_own_confidence", b, blue, "training: true class")
        draw(lower, "val_confidence", b, orange, "validation: predicted class")
        lower.set_title(f"bin {b + 1} of {num_bins}, each set its own", fontsize=10)
        lower.set_xlabel("epoch")
        for panel in (axes, lower):
            panel.set_xlim(0, epochs[-1])
            panel.grid(alpha=0.25)
    above[0].set_ylabel("mean probability")
    below[0].set_ylabel("mean probability; shaded: the bins")
    legend_below(figure, panels)
    return figure


def _entry(row: Row, key: str, b: int, scale: float = 1.0) -> float:
    """Return the value of a bin in a row; NaN for a confidence of 0, which is that of no example."""
    value = row[key][b]
    return np.nan if value == 0 and key.endswith("confidence") else scale * value


def _low_middle_high(num_bins: int) -> list[int]:
    return sorted({0, num_bins // 2, num_bins - 1})


def _per_bin(rows: Rows, key: str, num_bins: int) -> np.ndarray:
    """Return values `[rows, bins]`; NaN where a row has none."""
    return np.array([row.get(key, [np.nan] * num_bins) for row in rows], float)


def _draw_gap(axes: Axes, epochs: list[float], gap: np.ndarray, every_bin: np.ndarray) -> None:
    gap, limit = 100 * gap, 1.1 * np.nanmax(100 * np.abs(every_bin), initial=1.0)
    axes.fill_between(epochs, 0, gap, where=gap >= 0, interpolate=True, color=OVER, lw=0)
    axes.fill_between(epochs, 0, gap, where=gap <= 0, interpolate=True, color=UNDER, lw=0)
    axes.axhline(0, color="0.3", lw=0.7, ls=":")
    axes.set_ylim(-limit, limit)


def _draw_gamma(axes: Axes, epochs: list[float], gamma: np.ndarray, every_bin: np.ndarray) -> None:
    limits = 1.25 * min(every_bin.min(), -0.2), 1.25 * max(every_bin.max(), 1.0)
    # γ jumps from 0.2 to -0.2 when it changes sides: nothing happens in between.
    axes.set_yscale("symlog", linthresh=0.2, linscale=0.25)
    axes.set_ylim(*limits)
    ticks = [t for t in (-2, -0.2, 0.2, 1, 5, 20, *_UNBOUNDED) if limits[0] <= t <= limits[1]]
    axes.set_yticks(ticks, [f"{t:g}".replace("-", "−") for t in ticks])
    axes.minorticks_off()
    axes.axhspan(0, limits[1], color=OVER, alpha=0.10, lw=0)
    axes.axhspan(limits[0], 0, color=UNDER, alpha=0.13, lw=0)
    axes.axhline(0, color="0.3", lw=0.7)
    axes.plot(epochs, gamma, color="#222222", lw=1.4)
    side = OVER if gamma[-1] >= 0 else UNDER
    axes.plot(epochs[-1:], gamma[-1:], "o", ms=4, color=side, clip_on=False, zorder=3)
    above = gamma[-1] < 1  # where there is room for the number
    number = f"{gamma[-1]:.0f}" if 100 <= gamma[-1] < 1e4 else f"{gamma[-1]:.2g}"
    axes.annotate(
        number.replace("-", "−"), (epochs[-1], gamma[-1]), xytext=(-4, 5 if above else -12),
        textcoords="offset points", ha="right", fontsize=8, color=side, weight="bold",
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )  # fmt: skip


def _bin_names(edges: Sequence[float] | None, num_bins: int) -> list[str]:
    if edges is None:
        return [f"bin {b + 1}" for b in range(num_bins)]
    ends = [_probability(p) for p in (0.0, *edges, 1.0)]
    return [f"bin {b + 1}:  p {ends[b]} to {ends[b + 1]}" for b in range(num_bins)]


def _probability(p: float) -> str:
    """Return p with as many digits as tell it from 1, near which most bins are."""
    if p in (0, 1):
        return f"{p:g}"
    digits = min(max(2, 1 - math.floor(math.log10(1 - p))), 7)
    return f"{p:.{digits}f}"
