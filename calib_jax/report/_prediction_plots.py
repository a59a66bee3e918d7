"""Plots of predictions: reliability diagrams, risk-coverage curves and ROC curves."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calib_jax import metrics
from calib_jax.report._style import COLORS, LINE_STYLES

_BAR, _GAP, _CURVE = "#92b5d8", "#d65f5f", "#222222"


def plot_reliability(
    panels: Sequence[tuple[str, np.ndarray, np.ndarray]], *, num_bins: int = 15
) -> Figure:
    """Plot reliability diagrams side by side, one per set of predictions.

    Above: accuracy per confidence bin, its gap to the diagonal, and the smoothed curve with a 95 %
    bootstrap band. Below: the distribution of the confidences.

    Args:
      panels: Title, confidence `[n]` and correctness `[n]` of each set.
      num_bins: Number of bins of equal width.

    Returns:
      The figure.
    """
    figure = Figure(figsize=(0.6 + 3.5 * len(panels), 5.2), layout="constrained")
    axes = figure.subplots(
        2, len(panels), sharex=True, sharey="row", squeeze=False, height_ratios=(3, 1)
    )
    for (title, confidence, correct), (top, bottom) in zip(panels, axes.T, strict=True):
        bins = metrics.bin_stats(confidence, correct, num_bins=num_bins)
        edges, accuracy = np.asarray(bins.edges), np.asarray(bins.accuracy)
        gap, share = np.asarray(bins.gap), np.asarray(bins.weight)
        where = share > 0
        left, width = edges[:-1][where], np.diff(edges)[where]
        _bars(top, left, accuracy[where], gap[where], width)
        _smooth_curve(top, confidence, correct)
        smooth = float(metrics.smooth_ece(confidence, correct))
        top.set_title(f"{title}\nECE-{num_bins} {100 * float(bins.ece()):.2f} %, "
                      f"smooth {100 * smooth:.2f} %", fontsize=10)  # fmt: skip
        bottom.bar(left, share[where], width, align="edge", color=_BAR, edgecolor="white")
        mean = float(np.mean(confidence)), float(np.mean(correct))
        bottom.axvline(mean[0], color=_GAP, ls="--", lw=1.2, label=f"confidence {mean[0]:.1%}")
        bottom.axvline(mean[1], color=_CURVE, lw=1.2, label=f"accuracy {mean[1]:.1%}")
        bottom.legend(fontsize=7, loc="upper left", frameon=False)
        bottom.set_xlabel("confidence")
    axes[0, 0].set_ylabel("accuracy")
    axes[0, 0].legend(fontsize=8, loc="upper left", frameon=False)
    axes[1, 0].set_ylabel("share of examples")
    axes[0, 0].set(xlim=(0, 1), ylim=(0, 1))
    return figure


def plot_risk_coverage(panels: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> Figure:
    """Plot the error rate among the most confident examples against how many are kept.

    Args:
      panels: Name, confidence `[n]` and correctness `[n]` of each set of predictions.

    Returns:
      The figure.
    """
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.subplots()
    for i, (name, confidence, correct) in enumerate(panels):
        coverage, risk = map(np.asarray, metrics.risk_coverage(confidence, correct))
        area = float(metrics.aurc(confidence, correct))
        style = LINE_STYLES[i % 4]
        axes.plot(coverage, 100 * risk, style, lw=1.6, label=f"{name}  AURC {100 * area:.2f} %")
    n = len(correct)
    error = 1 - float(np.mean(correct))
    ideal = np.maximum(0, np.arange(1, n + 1) / n - (1 - error)) / (np.arange(1, n + 1) / n)
    axes.fill_between(coverage, 0, 100 * ideal, color="0.88", label="unavoidable at this accuracy")
    axes.set(
        xlabel="coverage: share of examples kept", ylabel="error rate among them, %", xlim=(0, 1)
    )
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, loc="upper left", frameon=False)
    axes.grid(alpha=0.25)
    return figure


def plot_roc(methods: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Plot ROC curves of telling two sets apart, with a color per method.

    Args:
      methods: Scores `[n]` and positives `[n]` of each method before temperature scaling (solid) and,
        if there is any, after it (dashed).

    Returns:
      The figure.
    """
    figure = Figure(figsize=(5.6, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.5", ls=":", lw=1)
    for i, (name, pairs) in enumerate(methods.items()):
        areas = [f"{100 * float(metrics.auroc(*pair)):.2f} %" for pair in pairs]
        label = f"{name}  AUROC {', +T '.join(areas)}"
        for pair, style in zip(pairs, ("-", (0, (4, 2))), strict=False):
            false, true = map(np.asarray, metrics.roc_curve(*pair))
            axes.plot(false, true, ls=style, lw=1.5, color=COLORS[i % len(COLORS)], label=label)
            label = "_"  # one entry per method
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1))
    axes.set_aspect("equal")
    axes.legend(fontsize=8, loc="lower right")
    axes.grid(alpha=0.25)
    return figure


def _bars(
    axes: Axes, left: np.ndarray, accuracy: np.ndarray, gap: np.ndarray, width: np.ndarray
) -> None:
    axes.bar(left, accuracy, width, align="edge", color=_BAR, edgecolor="white", label="accuracy")
    axes.bar(
        left, gap, width, bottom=accuracy, align="edge", color="none", edgecolor=_GAP,
        hatch="////", lw=0.8, label="gap to confidence",
    )  # fmt: skip
    axes.plot([0, 1], [0, 1], color="0.5", ls=":", lw=1)


_POINTS = np.linspace(0, 4095, 200).astype(int)


def _smooth_curve(axes: Axes, confidence: np.ndarray, correct: np.ndarray) -> None:
    # The bandwidth of the metric follows single examples where there are few: too noisy for a plot.
    sigma = max(float(metrics.smooth_curve(confidence, correct).bandwidth), 0.04)
    curve = metrics.smooth_curve(confidence, correct, bandwidth=sigma)
    key = jax.random.key(0)
    band = metrics.bootstrap(_smoothed, confidence, correct, sigma, key=key, num_samples=200)
    x, density = np.asarray(curve.confidence)[_POINTS], np.asarray(curve.density)[_POINTS]
    # Where there are fewer than five examples under the kernel, the curve is that of its tail.
    is_supported = density * len(correct) * sigma * np.sqrt(2 * np.pi) > 5
    low, middle, high = (
        np.where(is_supported, y, np.nan) for y in (band.low, band.estimate, band.high)
    )
    axes.fill_between(x, low, high, color=_CURVE, alpha=0.18, lw=0)
    axes.plot(x, middle, color=_CURVE, lw=1.4, label="smoothed")


def _smoothed(
    confidence: jax.Array, correct: jax.Array, sigma: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    curve = metrics.smooth_curve(confidence, correct, bandwidth=sigma, weights=weights)
    return curve.accuracy[_POINTS]
