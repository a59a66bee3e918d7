"""Expected calibration error in its binned forms.

All are top-label metrics over `(confidence, correct)`, as `top_label(logits, labels)` returns them,
except `classwise_ece`; all are fractions.
"""

from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_hard_labels,
    as_logits,
    as_weights,
    check_labels,
    check_probs,
    indicator,
    nan_where_invalid,
)
from calib_jax._hints import check_choice
from calib_jax.metrics._binning import (
    Binning,
    BinStats,
    bin_stats,
    check_binary,
    check_binning,
    cut_ranks,
    root,
    width_l1,
)
from calib_jax.metrics._sorting import argsort_floats, running_sums


@partial(jax.jit, static_argnames=("num_bins", "scheme", "closed", "norm"))
def ece(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 15,
    scheme: str = "width",
    closed: str = "right",
    weights: ArrayLike | None = None,
    norm: float = 1,
) -> jax.Array:
    """Compute the expected calibration error.

    That is `(sum_b n_b/n |confidence_b - accuracy_b|^norm)^(1/norm)`.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      num_bins, scheme, closed, weights: as in `bin_stats`.
      norm: 1 is the usual ECE; 2 the root-mean-square calibration error.

    Returns:
      scalar in [0, 1]

    References:
      Naeini et al., 2015 (AAAI); Guo et al., 2017, arXiv:1706.04599.

    >>> round(float(metrics.ece([0.9, 0.9, 0.6, 0.6], [1, 1, 1, 0])), 3)
    0.1
    """
    if norm == 1 and scheme == "width":
        check_binning(num_bins, scheme, closed)
        return width_l1(*check_binary(confidence, correct, weights), num_bins, closed)
    return bin_stats(
        confidence, correct, num_bins=num_bins, scheme=scheme, closed=closed, weights=weights
    ).ece(norm)


def mce(confidence: ArrayLike, correct: ArrayLike, **binning: Unpack[Binning]) -> jax.Array:
    """Compute the maximum calibration error: the largest |confidence - accuracy| of a non-empty bin.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      **binning: `num_bins`, `scheme`, `closed`, `weights` as in `bin_stats`.

    Returns:
      scalar in [0, 1]

    References:
      Naeini et al., 2015 (AAAI).

    >>> round(float(metrics.mce([0.9, 0.9, 0.6, 0.6], [1, 0, 1, 0])), 3)
    0.4
    """
    return bin_stats(confidence, correct, **binning).mce()


def classwise_ece(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    num_bins: int = 15,
    scheme: str = "width",
    closed: str = "right",
    weights: ArrayLike | None = None,
    norm: float = 1,
    check: bool = True,
) -> jax.Array:
    """Compute the mean over the classes of the ECE of `p_k` against `[y == k]` (static error).

    Args:
      probs: `[n, num_classes]`.
      labels: integers `[n]`; classes without an example count too.
      num_bins, scheme, closed, weights: as in `bin_stats`, for each class.
      norm: as in `ece`.
      check: whether logits in place of probabilities are refused; inside jit they never are.

    Returns:
      scalar in [0, 1]

    References:
      Nixon et al., 2019, arXiv:1904.01685 (SCE); Kull et al., 2019, arXiv:1910.12656.

    >>> round(float(metrics.classwise_ece([[0.9, 0.1], [0.2, 0.8]], [0, 1])), 3)
    0.15
    """
    probs = as_logits(probs)
    labels = as_hard_labels(labels, probs)
    check_labels(labels, probs, weights)
    if check:
        check_probs(probs, weights)
    check_binning(num_bins, scheme, closed)
    return _classwise_ece(
        probs, labels, weights, num_bins=num_bins, scheme=scheme, closed=closed, norm=norm
    )


@partial(jax.jit, static_argnames=("num_bins", "scheme", "closed", "norm"))
def _classwise_ece(
    probs: jax.Array,
    labels: jax.Array,
    weights: ArrayLike | None,
    *,
    num_bins: int,
    scheme: str,
    closed: str,
    norm: float,
) -> jax.Array:
    weight = as_weights(weights, labels.shape, probs.dtype)
    hit = indicator(labels, probs.shape[1]).astype(probs.dtype)
    hit = nan_where_invalid(hit, labels[:, None], probs.shape[1])
    if norm == 1 and scheme == "width":
        return jnp.mean(width_l1(probs, hit, weight, num_bins, closed))

    def one_class(p: jax.Array, y: jax.Array) -> jax.Array:
        bins = bin_stats(p, y, num_bins=num_bins, scheme=scheme, closed=closed, weights=weight)
        return bins.ece(norm)

    return jnp.mean(jax.vmap(one_class, in_axes=1)(probs, hit))


@partial(jax.jit, static_argnames=("num_bins", "scheme", "closed", "norm"))
def ece_debiased(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 15,
    scheme: str = "mass",
    closed: str = "right",
    weights: ArrayLike | None = None,
    norm: int = 2,
) -> jax.Array:
    """Compute the ECE less the part that sampling noise alone would show.

    norm 2: `sqrt(sum_b w_b ((C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)))`; a bin with fewer than two
    examples says nothing about its noise and contributes 0.

    norm 1: twice the plug-in ECE less its mean when each `A_b` is drawn again with variance
    `A_b (1 - A_b) / n_b`. The original draws a thousand times; the mean of a folded normal is known in
    closed form, so here it is exact and needs no random key.

    An estimate below zero is 0. Integer weights count as repeated examples.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      num_bins, scheme, closed, weights: as in `bin_stats`.
      norm: 1 or 2.

    Returns:
      scalar

    References:
      Kumar et al., 2019, arXiv:1909.10155.

    >>> round(float(metrics.ece_debiased([0.9] * 4, [0, 0, 0, 0], num_bins=1)), 3)
    0.9
    """
    bins = bin_stats(
        confidence, correct, num_bins=num_bins, scheme=scheme, closed=closed, weights=weights
    )
    noise = bins.accuracy * (1 - bins.accuracy)
    if norm == 2:
        corrected = bins.gap**2 - noise / jnp.maximum(bins.count - 1, 1.0)
        total = jnp.sum(jnp.where(bins.count >= 2, bins.weight * corrected, 0.0))
        # Bins that are left out may hold what is no number, or there may be none else.
        nothing = (jnp.sum(bins.count) == 0) | jnp.isnan(jnp.sum(bins.correct))
        return jnp.where(nothing, jnp.nan, root(jnp.maximum(total, 0.0), 2))
    if norm == 1:
        spread = jnp.sqrt(noise / jnp.maximum(bins.count, 1.0))
        excess = _folded_normal_mean(jnp.abs(bins.gap), spread)
        return jnp.maximum(2 * bins.ece() - jnp.sum(bins.weight * excess), 0.0)
    raise ValueError(f"norm={norm}: expected 1 or 2")


@partial(jax.jit, static_argnames=("scheme", "norm", "max_bins"))
def ece_sweep(
    confidence: ArrayLike,
    correct: ArrayLike,
    scheme: str = "mass",
    *,
    norm: float = 1,
    weights: ArrayLike | None = None,
    max_bins: int = 4096,
) -> jax.Array:
    """Compute the ECE with the largest number of bins whose accuracies still rise.

    Bins are tried from 2 on; the first number that gives two non-empty bins with falling accuracy
    ends the sweep, and the ECE is that of the number before. Examples are sorted and summed up once;
    a number of bins then costs one look-up per bin.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      scheme: `'mass'` or `'width'` (left-closed, as published).
      norm: as in `ece`. Published code: 2 unless told otherwise; here 1, to compare with other ECEs.
      weights: as in `bin_stats`.
      max_bins: more bins than this (or than examples) are not tried.

    Returns:
      scalar in [0, 1]

    References:
      Roelofs et al., 2022, arXiv:2012.08668.

    >>> round(float(metrics.ece_sweep([0.9, 0.9, 0.6, 0.6], [1, 1, 1, 0])), 3)
    0.1
    """
    confidence, correct, weight = check_binary(confidence, correct, weights)
    check_choice("scheme", scheme, ("width", "mass"))
    n = confidence.shape[0]
    limit = min(max_bins, n)
    cumulative = _Cumulative(confidence, correct, weight)

    def rises(num_bins: jax.Array, room: int) -> jax.Array:
        bins = cumulative.bins(num_bins, room, scheme)
        accuracy = jnp.where(bins.count > 0, bins.accuracy, -1.0)
        best_before = jnp.pad(jax.lax.cummax(accuracy)[:-1], (1, 0), constant_values=-1.0)
        # Accuracies that are equal come out of different sums: allow for their rounding.
        return jnp.all((bins.count == 0) | (accuracy >= best_before - 1e-6))

    def sweep(state: tuple[jax.Array, jax.Array], room: int) -> tuple[jax.Array, jax.Array]:
        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rose = rises(state[0] + 1, room)
            return state[0] + rose.astype(jnp.int32), rose

        return jax.lax.while_loop(lambda s: s[1] & (s[0] < room), step, state)

    # Arrays with room for a few bins first: most sweeps end there.
    state = jnp.asarray(1, jnp.int32), jnp.asarray(True)
    for room in sorted({min(32, limit), min(256, limit), limit}):
        state = sweep(state, room)
    return cumulative.bins(state[0], limit, scheme).ece(norm)


class _Cumulative:
    """Running sums over the sorted examples, from which any binning is a look-up at its edges."""

    def __init__(self, confidence: jax.Array, correct: jax.Array, weights: jax.Array | None):
        order = argsort_floats(confidence)
        weight = jnp.ones_like(confidence) if weights is None else weights[order]
        self.ascending = confidence[order]
        gap = jnp.where(weight > 0, self.ascending, 0.0) - correct[order]
        # The sum of gaps stays small where that of confidences grows, and keeps its digits.
        self.columns = [running_sums(c) for c in (weight, weight * correct[order], weight * gap)]
        self.count = self.columns[0]
        self.whole = None if weights is None else jnp.all(weights == jnp.round(weights))

    def bins(self, num_bins: jax.Array, limit: int, scheme: str) -> BinStats:
        """Return `num_bins` (traced) bins in arrays of static size `limit`, the others empty."""
        b = jnp.minimum(jnp.arange(limit + 1, dtype=jnp.int32), num_bins)
        if scheme == "width":
            edges = b.astype(self.count.dtype) / num_bins.astype(self.count.dtype)
            first = jnp.searchsorted(self.ascending, edges, side="left")
            # The last bin holds all that are left, 1 and NaN included.
            first = jnp.where(b == num_bins, self.ascending.shape[0], first)
            cuts = [c[first] for c in self.columns]
        else:
            cuts = self._mass_cuts(b, num_bins)
        count, correct, gap = (jnp.diff(c) for c in cuts)
        return BinStats(count, correct + gap, correct, edges=jnp.zeros(limit + 1, count.dtype))

    def _mass_cuts(self, b: jax.Array, num_bins: jax.Array) -> list[jax.Array]:
        n = self.ascending.shape[0]
        if self.whole is None:  # ceil(b n / num_bins), taken apart so that nothing overflows
            cut = b * (n // num_bins) + (b * (n % num_bins) + num_bins - 1) // num_bins
            rank = cut.astype(self.count.dtype)
        else:
            rank = cut_ranks(self.count[-1], self.whole, b, num_bins)
            cut = jnp.searchsorted(self.count[1:], rank, side="right")
        value = self.ascending[jnp.minimum(cut, n - 1)]
        first = jnp.searchsorted(self.ascending, value, side="left")
        last = jnp.searchsorted(self.ascending, value, side="right")
        tied = self.count[last] - self.count[first]
        share = (rank - self.count[first]) / jnp.where(tied > 0, tied, 1.0)
        return [c[first] + share * (c[last] - c[first]) for c in self.columns]


def _folded_normal_mean(mean: jax.Array, sd: jax.Array) -> jax.Array:
    """Return `E|x|` for x normal; |mean| where there is no spread."""
    safe = jnp.where(sd > 0, sd, 1.0)
    z = mean / safe
    spread = safe * jnp.sqrt(2 / jnp.pi) * jnp.exp(-(z**2) / 2)
    return jnp.where(sd > 0, spread + mean * jax.lax.erf(z / jnp.sqrt(2.0)), jnp.abs(mean))
