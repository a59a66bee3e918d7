"""Plots of losses as functions of the label's probability."""

import numpy as np
from matplotlib.figure import Figure

_ACCURACY = 0.8  # of CalFocal's bin
_WARM, _COOL = ("#e9a48f", "#c8553d", "#7d2413"), ("#2f6db5", "#8fb4de")


def plot_focal_losses() -> Figure:
    """Plot the focal losses against the probability of the label, as in AdaFocal's figure 3a.

    Left: for a confident example focal loss is below cross entropy, inverse focal loss above it.
    Right: CalFocal, which vanishes once the probability exceeds the accuracy of its bin.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.

    >>> len(plot_focal_losses().axes)
    2
    """
    p = np.linspace(0.01, 1, 400)
    plain = ("cross entropy", 1 + 0 * p, "#000000")
    inverse = [
        (f"inverse focal, γ = {g}", (1 + p) ** g, c) for g, c in zip((2, 1), _COOL, strict=True)
    ]
    focal = [(f"focal, γ = {g}", (1 - p) ** g, c) for g, c in zip((1, 3, 5), _WARM, strict=True)]
    calfocal = [
        (f"CalFocal, λ = {lam}", (1 - p) ** np.exp(lam * (p - _ACCURACY)), c)
        for lam, c in zip((1, 10, 100), _WARM, strict=True)
    ]
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, curves in ((left, [*inverse, plain, *focal]), (right, [plain, *calfocal])):
        for label, weight, color in curves:
            style = "--" if label == plain[0] else "-"
            axes.plot(p, -weight * np.log(p), style, color=color, lw=1.6, label=label)
        axes.set(xlabel="probability of the label", xlim=(0, 1), ylim=(0, 3))
        axes.grid(alpha=0.25)
    right.axvline(_ACCURACY, color="0.5", ls=":", lw=1, label=f"accuracy of the bin: {_ACCURACY}")
    left.set_ylabel("loss")
    for axes in (left, right):
        axes.legend(
            fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False
        )
    return figure
