"""Plots of training dynamics: how each training example was learned."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

_MAX_POINTS = 10_000  # more of them hide one another


def plot_dynamics(records: Mapping[str, np.ndarray]) -> Figure:
    """Plot area under the margin against confidence, and confidence against variability (data map).

    Lines are the medians of AUM and of confidence, which divide easy from hard examples.

    Args:
      records: Arrays `aum`, `confidence`, `variability` and `correctness`, each `[n]`; of more than
        ten thousand examples a random subset is shown.

    References:
      Pleiss, Zhang, Elenberg and Weinberger (2020), arXiv:2001.10528 (AUM); Swayamdipta et al. (2020),
      arXiv:2009.10795 (data maps).

    Returns:
      The figure.
    """
    n = len(records["aum"])
    shown = np.sort(np.random.default_rng(0).permutation(n)[:_MAX_POINTS])
    aum, confidence, variability, correct = (
        records[key][shown] for key in ("aum", "confidence", "variability", "correctness")
    )
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    look = {"c": correct, "cmap": "viridis", "vmin": 0, "vmax": 1, "s": 9, "lw": 0}
    left.scatter(aum, confidence, **look)
    line = {"color": "0.3", "ls": "--", "lw": 1}
    box = {"fc": "white", "alpha": 0.8, "lw": 0, "pad": 1}  # the text may lie on dots
    text = {"textcoords": "offset points", "fontsize": 8, "bbox": box}
    median = float(np.nanmedian(records["aum"]))
    left.axvline(median, **line)
    left.annotate(f"median {median:.2f}", (median, 0.03), (4, 0), **text)
    left.set(xlabel="area under the margin (AUM)", ylabel="mean confidence in the label")
    dots = right.scatter(variability, confidence, **look)
    median = float(np.nanmedian(records["confidence"]))
    right.axhline(median, **line)
    right.annotate(f"median {median:.2f}", (0, median), (4, 4), **text)
    right.set(xlabel="variability of that confidence", xlim=(0, None))
    for axes in (left, right):
        axes.set_ylim(-0.02, 1.02)
        axes.grid(alpha=0.25)
    figure.colorbar(dots, ax=right, label="share of epochs predicted correctly")
    figure.suptitle(
        f"{n:,} training examples"
        + (f", {_MAX_POINTS:,} of them shown" if n > _MAX_POINTS else ""),
        fontsize=10,
    )
    return figure
