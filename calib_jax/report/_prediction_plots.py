"""Plots of predictions: reliability diagrams, risk-coverage curves and ROC curves."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calib_jax import metrics
from calib_jax.report._style import COLORS, OVER, UNDER, color_and_style, legend_below, panel_grid

Panel = tuple[str, np.ndarray, np.ndarray]  # title, confidence [n], correctness [n]

_BAR, _CURVE = "#92b5d8", "#222222"
_SMALL_BIN = 10  # examples; the accuracy of a smaller bin says little
_MAX_COLUMNS = 3
_MAX_POINTS = 1000  # of a curve; more cannot be seen
_BANDWIDTHS = (0.04, 0.08)  # smallest and largest of the smoothed curve
_CELLS = 512  # of the grid on which confidences are smoothed


def plot_reliability(
    panels: Sequence[Panel],
    *,
    num_bins: int = 15,
    words: tuple[str, str] = ("confidence", "accuracy"),
) -> Figure:
    """Plot reliability diagrams, one per set of predictions, in rows of three.

    Above: accuracy per confidence bin, its gap to the mean confidence of the bin, and the smoothed
    curve with a 95 % bootstrap band; bins of few examples are light. Below: the distribution of the
    confidences.

    Args:
      panels: Title, confidence `[n]` and correctness `[n]` of each set.
      num_bins: Number of bins of equal width.
      words: What the predictions and the outcomes are called.

    Returns:
      The figure.

    >>> import numpy as np
    >>> len(plot_reliability([("x", np.array([0.9, 0.6]), np.array([1, 0]))]).axes)
    2
    """
    columns = min(_MAX_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(0.6 + 3.5 * columns, 1.0 + 4.7 * rows), layout="constrained")
    grid = figure.add_gridspec(2 * rows, columns, height_ratios=(3, 1) * rows)
    all_bins = [metrics.bin_stats(c, y, num_bins=num_bins) for _, c, y in panels]
    largest_share = max(float(np.max(bins.weight)) for bins in all_bins)
    for i, ((title, confidence, correct), bins) in enumerate(zip(panels, all_bins, strict=True)):
        row, column = divmod(i, columns)
        top, bottom = (figure.add_subplot(grid[2 * row + j, column]) for j in (0, 1))
        curve = metrics.smooth_curve(confidence, correct)
        mean, accuracy = float(np.mean(confidence)), float(np.mean(correct))
        _draw_bins(top, bottom, bins)
        _draw_smoothed(top, confidence, correct, float(curve.bandwidth))
        bottom.axvline(mean, color=OVER, ls="--", lw=1.2)
        bottom.axvline(accuracy, color=_CURVE, ls="-.", lw=1.2)
        top.set_title(
            f"{title}\nECE-{num_bins} {100 * float(bins.ece()):.2f} %, "
            f"smooth {100 * float(curve.error):.2f} %\n{words[0]} {100 * mean:.1f} %, {words[1]} "
            f"{100 * accuracy:.1f} %, gap {100 * (mean - accuracy):+.1f}",
            fontsize=9.5,
        )
        ticks = (0, 0.25, 0.5, 0.75, 1)
        top.set(xlim=(0, 1), ylim=(0, 1), xticks=ticks, xticklabels=[])
        bottom.set(xlim=(0, 1), ylim=(0, 1.05 * largest_share), xlabel=words[0])
        bottom.set_xticks(ticks, ["0", ".25", ".5", ".75", "1"])
        if column == 0:
            top.set_ylabel(words[1])
            bottom.set_ylabel("share")
        else:
            top.set_yticklabels([])
            bottom.set_yticklabels([])
    figure.legend(
        handles=_handles(*words), loc="outside lower center", ncols=(2, 3, 4)[columns - 1], frameon=False,
        fontsize=8.5, columnspacing=1.2,
    )  # fmt: skip
    return figure


def _handles(confidence: str, accuracy: str) -> list[Patch | Line2D]:
    """Return the legend of a reliability diagram."""
    return [
        Patch(color=_BAR, label=accuracy),
        Patch(fc="none", ec=OVER, hatch="////", label=f"{confidence} above {accuracy}"),
        Patch(fc="none", ec=UNDER, hatch="\\\\\\\\", label=f"{confidence} below {accuracy}"),
        Patch(color=_BAR, alpha=0.3, label=f"fewer than {_SMALL_BIN} examples"),
        Line2D([], [], color=_CURVE, lw=1.4, label=f"smoothed {accuracy}"),
        Patch(color=_CURVE, alpha=0.18, lw=0, label="95 % bootstrap band"),
        Line2D([], [], color=OVER, ls="--", lw=1.2, label=f"mean {confidence}"),
        Line2D([], [], color=_CURVE, lw=1.2, ls="-.", label=f"mean {accuracy}"),
    ]


def _draw_bins(top: Axes, bottom: Axes, bins: metrics.BinStats) -> None:
    """Draw accuracy and gap of the bins above, their shares of the examples below."""
    edges, count = np.asarray(bins.edges), np.asarray(bins.count)
    accuracy, gap = np.asarray(bins.accuracy), np.asarray(bins.gap)
    for is_small in (False, True):
        shown = (count > 0) & ((count < _SMALL_BIN) == is_small)
        left, width = edges[:-1][shown], np.diff(edges)[shown]
        alpha = 0.3 if is_small else 1.0
        bar = {"width": width, "align": "edge", "alpha": alpha}
        top.bar(left, accuracy[shown], color=_BAR, edgecolor="white", **bar)
        colors = np.where(gap[shown] > 0, OVER, UNDER)
        top.bar(
            left, gap[shown], bottom=accuracy[shown], color="none", edgecolor=colors, lw=0.8,
            hatch=["////" if g > 0 else "\\\\\\\\" for g in gap[shown]], **bar,
        )  # fmt: skip
        bottom.bar(left, count[shown] / count.sum(), color=_BAR, edgecolor="white", **bar)
    top.plot([0, 1], [0, 1], color="0.5", ls=":", lw=1)


def _draw_smoothed(
    axes: Axes, confidence: np.ndarray, correct: np.ndarray, bandwidth: float
) -> None:
    """Draw the smoothed curve of `metrics.smooth_curve` and a Poisson bootstrap of it.

    Examples are counted on a grid once: a resample draws the numbers of right and wrong ones in each
    cell, whatever the number of examples.
    """
    # The bandwidth of the metric is its error: a small one follows single examples, a large one
    # smooths a curve into a line that contradicts the bars.
    sigma = min(max(bandwidth, _BANDWIDTHS[0]), _BANDWIDTHS[1])
    confidence, is_right = np.asarray(confidence, np.float64), np.asarray(correct) > 0.5
    cell = np.minimum((confidence * _CELLS).astype(int), _CELLS - 1)
    right, wrong = (
        np.bincount(cell[which], minlength=_CELLS).astype(float) for which in (is_right, ~is_right)
    )
    sums = np.bincount(cell, weights=confidence, minlength=_CELLS)
    mean = sums / np.maximum(right + wrong, 1)
    x, centers = np.linspace(0, 1, 201)[:, None], (np.arange(_CELLS) + 0.5) / _CELLS
    # Reflected at 0 and 1, where kernels would lose mass.
    images = np.stack([centers, -centers, 2 - centers])
    kernel = np.exp(-(((x - images[:, None]) / sigma) ** 2) / 2).sum(axis=0)

    def smoothed(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        count = right + wrong
        gap = (mean * count - right) @ kernel.T / np.maximum(count @ kernel.T, 1e-9)
        return np.clip(x[:, 0] - gap, 0, 1)

    rng = np.random.default_rng(0)
    samples = smoothed(rng.poisson(right, (200, _CELLS)), rng.poisson(wrong, (200, _CELLS)))
    # Where there are fewer than five examples under the kernel, the curve is that of its tail.
    is_supported = kernel @ (right + wrong) > 5
    low, high = np.percentile(samples, (2.5, 97.5), axis=0)
    low, middle, high = (
        np.where(is_supported, y, np.nan) for y in (low, smoothed(right, wrong), high)
    )
    axes.fill_between(x[:, 0], low, high, color=_CURVE, alpha=0.18, lw=0)
    axes.plot(x[:, 0], middle, color=_CURVE, lw=1.4)


def plot_risk_coverage(panels: Sequence[Panel]) -> Figure:
    """Plot the error rate among the most confident examples against how many are kept.

    Args:
      panels: Name, confidence `[n]` and correctness `[n]` of each set of predictions.

    Returns:
      The figure.

    >>> import numpy as np
    >>> len(plot_risk_coverage([("x", np.array([0.9, 0.6]), np.array([1, 0]))]).axes)
    1
    """
    figure, (axes,) = panel_grid(1, 1, (5.6, 4.2 + 0.1 * len(panels)))
    for i, (name, confidence, correct) in enumerate(panels):
        coverage, risk = _risk_coverage(confidence, correct)
        color, style = color_and_style(i)
        shown = np.unique(np.linspace(0, len(coverage) - 1, _MAX_POINTS).astype(int))
        label = f"{name}  AURC {100 * risk.mean():.2f} %"
        axes.plot(coverage[shown], 100 * risk[shown], style, color=color, lw=1.6, label=label)
    kept, accuracy = coverage[shown], max(float(np.mean(y)) for _, _, y in panels)
    ideal = np.maximum(0, kept - accuracy) / kept
    label = f"unavoidable at {100 * accuracy:.1f} % accuracy"
    axes.fill_between(kept, 0, 100 * ideal, color="0.88", label=label)
    axes.set(
        xlabel="coverage: share of examples kept", ylabel="error rate among them, %", xlim=(0, 1)
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    legend_below(figure, [axes], max_columns=2)
    return figure


def _risk_coverage(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the curve of `metrics.risk_coverage`; NumPy sorts a million rows sooner than XLA does."""
    _, index, counts = np.unique(-confidence, return_inverse=True, return_counts=True)
    errors = np.bincount(index, weights=1 - np.asarray(correct, float))
    number = np.arange(1, len(confidence) + 1)
    risk = np.cumsum(np.repeat(errors / counts, counts)) / number
    return number / len(confidence), risk


def plot_roc(methods: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]]) -> Figure:
    """Plot ROC curves of telling two sets apart, with a color per method.

    Args:
      methods: Scores `[n]` and positives `[n]` of each method before temperature scaling (solid) and,
        if there is any, after it (dashed).

    Returns:
      The figure.

    >>> import numpy as np
    >>> len(plot_roc({"ce": [(np.array([0.9, 0.1]), np.array([1, 0]))]}).axes)
    1
    """
    figure, (axes,) = panel_grid(1, 1, (5.0, 4.6 + 0.2 * len(methods)))
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
    axes.grid(alpha=0.25)
    legend_below(figure, [axes], max_columns=1)
    return figure
