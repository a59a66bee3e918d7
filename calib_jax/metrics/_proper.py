"""Proper scores and what they are made of."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_labels,
    as_logits,
    as_weights,
    below_top,
    check_labels,
    expect,
    indicator,
    is_soft,
    nan_where_invalid,
    take_label,
    weighted_mean,
)
from calib_jax.metrics._binning import bin_stats


def nll(logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> jax.Array:
    """Compute the mean negative log likelihood, in nats.

    Args:
      logits: `[n, num_classes]`.
      labels: integers `[n]` or soft `[n, num_classes]`.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar

    >>> round(float(metrics.nll([[2.0, 0.0]], [0])), 4)
    0.1269
    """
    logits, labels, weights = _checked(logits, labels, weights)
    return _nll(logits, labels, weights)


@partial(jax.jit, inline=True)
def _nll(logits: jax.Array, labels: jax.Array, weights: jax.Array | None) -> jax.Array:
    distance, numeric = below_top(logits)
    log_norm = jnp.log(jnp.sum(jnp.exp(distance), axis=-1))
    if is_soft(labels):
        each = -expect(distance - log_norm[..., None], labels)
    else:
        each = log_norm - take_label(distance, labels)
    each = _nan_unless(numeric, each, labels, logits)
    return weighted_mean(each, weights)


def brier_score(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the mean of `sum_k (p_k - y_k)^2`, in [0, 2]. Arguments as in `nll`.

    >>> round(float(metrics.brier_score([[2.0, 0.0]], [0])), 4)
    0.0284
    """
    logits, labels, weights = _checked(logits, labels, weights)
    return _brier_score(logits, labels, weights)


@partial(jax.jit, inline=True)
def _brier_score(logits: jax.Array, labels: jax.Array, weights: jax.Array | None) -> jax.Array:
    distance, numeric = below_top(logits)
    target = labels if is_soft(labels) else indicator(labels, logits.shape[-1])
    squared = jnp.square(jax.nn.softmax(distance) - target.astype(logits.dtype))
    each = _nan_unless(numeric, jnp.sum(squared, axis=-1), labels, logits)
    return weighted_mean(each, weights)


def _checked(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Logits, labels and weights of one dtype, with labels that are classes."""
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    weights = as_weights(weights, logits.shape[:-1], logits.dtype)
    check_labels(labels, logits, weights)
    return logits, labels, weights


def _nan_unless(
    numeric: jax.Array, each: jax.Array, labels: jax.Array, logits: jax.Array
) -> jax.Array:
    """`each` `[n]`, NaN for rows without a softmax and for labels that are no class."""
    return nan_where_invalid(jnp.where(numeric, each, jnp.nan), labels, logits.shape[-1])


class BrierDecomposition(NamedTuple):
    """Murphy's parts of the Brier score: score = reliability - resolution + uncertainty."""

    reliability: jax.Array
    resolution: jax.Array
    uncertainty: jax.Array


def brier_decomposition(
    confidence: ArrayLike, correct: ArrayLike, **binning: Any
) -> BrierDecomposition:
    """Split the top-label Brier score of the binned confidences.

    Reliability is how far confidence is from accuracy (0 is calibrated), resolution how far the bins'
    accuracies are from the overall one (more is better), uncertainty the variance of being right.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      **binning: `num_bins`, `scheme`, `closed`, `weights` as in `bin_stats`.

    Returns:
      `BrierDecomposition` of scalars

    >>> parts = metrics.brier_decomposition([0.75] * 4, [1, 1, 0, 0])
    >>> [float(x) for x in parts]
    [0.0625, 0.0, 0.25]
    """
    bins = bin_stats(confidence, correct, **binning)
    overall = jnp.sum(bins.weight * bins.accuracy)
    return BrierDecomposition(
        reliability=jnp.sum(bins.weight * bins.gap**2),
        resolution=jnp.sum(bins.weight * (bins.accuracy - overall) ** 2),
        uncertainty=overall * (1 - overall),
    )


def refinement(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the lowest NLL that a temperature reaches: the part that scaling cannot repair.

    `nll - refinement` is the calibration error in nats that one temperature removes. Arguments as in
    `nll`.

    >>> round(float(metrics.refinement([[2.0, 0.0]] * 4, [0, 0, 0, 1])), 4)
    0.5623
    """
    logits, labels, weights = _checked(logits, labels, weights)
    # The NLL has no slope at the best temperature: the logits move it by themselves only.
    beta = jax.lax.stop_gradient(_lowest_nll(*_distances(logits, labels), weights))
    return _nll(beta * logits, labels, weights)


def inverse_temperature(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Find `1 / T` of the temperature with the lowest NLL. Arguments as in `nll`.

    The NLL is convex in beta = 1/T and its derivative, the mean of `E_p[z] - z_y` with
    `p = softmax(beta z)`, rises through zero once. That zero is found by halving an interval of
    log beta, [-16, 16]: no step size, no divergence, never a temperature <= 0, the same relative
    precision for logits of any scale. Where no temperature between 0 and infinity is best:

    - All predictions are right, and T -> 0 is best: the likelihood is smoothed. One of n + 2 right
      predictions is taken to be of the runner-up's class, n being the total weight (Laplace's rule of
      succession; with two classes, Platt's targets).
    - The predictions are no better than guesses, and T -> infinity is best: T is at most 1,000, or
      1,000 times the typical distance of the two largest logits (the geometric mean over the rows) if
      that is more than 1. The probabilities are nearly uniform there.
    - All logits of a row are equal, in every row: T = 1.

    No gradient flows through the search.

    References:
      Guo et al., 2017, arXiv:1706.04599 (temperature scaling).

    >>> logits = [[2.0, 0.0]] * 4
    >>> round(float(metrics.inverse_temperature(logits, [0, 0, 0, 1])), 3)  # log(3) / 2
    0.549
    """
    logits, labels, weights = _checked(logits, labels, weights)
    return _inverse_temperature(logits, labels, weights)


@jax.jit
def _inverse_temperature(
    logits: jax.Array, labels: jax.Array, weights: jax.Array | None
) -> jax.Array:
    distance, own = _distances(jax.lax.stop_gradient(logits), labels)
    weight = jnp.ones_like(own) if weights is None else weights
    gap, has_gap = _runner_up(distance)
    mean_own = weighted_mean(own, weight)
    all_right = mean_own == 0
    smoothed = jnp.where(has_gap & all_right, -gap / (jnp.sum(weight) + 2), own)
    beta = _lowest_nll(distance, smoothed, weight)

    with_gap = jnp.sum(jnp.where(has_gap, weight, 0.0))
    log_gap = jnp.sum(weight * jnp.log(gap)) / jnp.where(with_gap > 0, with_gap, 1.0)
    least = 1e-3 * jnp.exp(-jnp.maximum(log_gap, 0.0))
    beta = jnp.where(with_gap > 0, jnp.maximum(beta, least), 1.0)
    return jnp.where(jnp.isnan(mean_own), jnp.nan, beta)


def _runner_up(distance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How far the runner-up is behind `[n]`, and where there is one.

    There is none (and a 1 stands for its distance) where all logits that are not masked are equal.
    """
    gap = -jnp.max(jnp.where(distance < 0, distance, -jnp.inf), axis=-1)
    has_gap = jnp.isfinite(gap)
    return jnp.where(has_gap, gap, 1.0), has_gap


def _distances(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How far each logit `[n, num_classes]` and the label's `[n]` are from the row's largest, <= 0."""
    distance, numeric = below_top(logits)
    return distance, _nan_unless(numeric, expect(distance, labels), labels, logits)


def _lowest_nll(distance: jax.Array, own: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """The inverse temperature with the lowest NLL in [e^-16, e^16], by halving."""

    def slope(log_beta: jax.Array) -> jax.Array:
        # The largest is 1: softmax without its own shift.
        p = jnp.exp(jnp.exp(log_beta) * distance)
        # A masked class (logit -inf) has p = 0, and 0 * -inf is no number.
        mean = jnp.sum(jnp.where(p > 0, p * distance, 0.0), axis=-1) / jnp.sum(p, axis=-1)
        return weighted_mean(mean - own, weights)

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        falling = slope(middle) < 0
        return jnp.where(falling, middle, low), jnp.where(falling, high, middle)

    ends = jnp.asarray(-16.0, own.dtype), jnp.asarray(16.0, own.dtype)
    halvings = 28 if own.dtype == jnp.float32 else 56
    low, high = jax.lax.fori_loop(0, halvings, halve, ends)
    return jnp.exp((low + high) / 2)
