"""Proper scores and what they are made of."""

from functools import partial
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import _cpu
from calib_jax._arrays import (
    as_labels,
    as_logits,
    as_weights,
    below_top,
    check_labels,
    check_not_probs,
    expect,
    indicator,
    is_soft,
    nan_where_invalid,
    take_label,
    weighted_mean,
)
from calib_jax.metrics._binning import Binning, bin_stats


def nll(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> jax.Array:
    """Compute the mean negative log likelihood, in nats.

    Args:
      logits: `[n, num_classes]`.
      labels: integers `[n]` or soft `[n, num_classes]`.
      weights: `[n]`, 0 for padding.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    Returns:
      scalar

    >>> round(float(metrics.nll([[2.0, 0.0]], [0])), 4)
    0.1269
    """
    logits, labels, weights = _checked(logits, labels, weights, check)
    return _nll(logits, labels, weights)


@partial(jax.jit, inline=True)
def _nll(logits: jax.Array, labels: jax.Array, weights: jax.Array | None) -> jax.Array:
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1))
    numeric = jnp.isfinite(top)
    log_norm = _log_norm(logits, top)
    if is_soft(labels):
        distance = jnp.where(numeric[..., None], logits - top[..., None], 0.0)
        each = -expect(distance - log_norm[..., None], labels)
    else:
        each = log_norm - jnp.where(numeric, take_label(logits, labels) - top, 0.0)
    each = _nan_unless(numeric, each, labels, logits)
    return weighted_mean(each, weights)


@jax.custom_jvp
def _log_norm(logits: jax.Array, top: jax.Array) -> jax.Array:
    """Return `logsumexp(logits) - top` `[n]`, `top` being a constant: the largest of each row.

    The gradient is 0 where a row has no softmax. The custom rule is there because a select for every
    logit, which automatic differentiation would need for that, makes the sum three times slower.
    """
    safe = jnp.where(jnp.isfinite(top), top, 0.0)
    return jnp.log(jnp.sum(jnp.exp(logits - safe[..., None]), axis=-1))


@_log_norm.defjvp
def _log_norm_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (logits, top), (slope, _) = primals, tangents
    value = _log_norm(logits, top)
    numeric = jnp.isfinite(top)[..., None]
    log_probs = jnp.where(numeric, logits - top[..., None] - value[..., None], -jnp.inf)
    return value, jnp.sum(jnp.where(numeric, jnp.exp(log_probs) * slope, 0.0), axis=-1)


def brier_score(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> jax.Array:
    """Compute the mean of `sum_k (p_k - y_k)^2`, in [0, 2]. Arguments as in `nll`.

    >>> round(float(metrics.brier_score([[2.0, 0.0]], [0])), 4)
    0.0284
    """
    logits, labels, weights = _checked(logits, labels, weights, check)
    return _brier_score(logits, labels, weights)


@partial(jax.jit, inline=True)
def _brier_score(logits: jax.Array, labels: jax.Array, weights: jax.Array | None) -> jax.Array:
    distance, numeric = below_top(logits)
    target = labels if is_soft(labels) else indicator(labels, logits.shape[-1])
    squared = jnp.square(jax.nn.softmax(distance) - target.astype(logits.dtype))
    each = _nan_unless(numeric, jnp.sum(squared, axis=-1), labels, logits)
    return weighted_mean(each, weights)


def _checked(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None, check: bool
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return logits, labels and weights of one dtype, with labels that are classes."""
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    weights = as_weights(weights, logits.shape[:-1], logits.dtype)
    check_labels(labels, logits, weights)
    if check:
        check_not_probs(logits, weights)
    return logits, labels, weights


def _nan_unless(
    numeric: jax.Array, each: jax.Array, labels: jax.Array, logits: jax.Array
) -> jax.Array:
    """Return `each` `[n]`, NaN for rows without a softmax and for labels that are no class."""
    return nan_where_invalid(jnp.where(numeric, each, jnp.nan), labels, logits.shape[-1])


class BrierDecomposition(NamedTuple):
    """Murphy's parts of the Brier score: score = reliability - resolution + uncertainty."""

    reliability: jax.Array
    resolution: jax.Array
    uncertainty: jax.Array


def brier_decomposition(
    confidence: ArrayLike, correct: ArrayLike, **binning: Unpack[Binning]
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
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> jax.Array:
    """Compute the lowest NLL that a temperature reaches: the part that scaling cannot repair.

    `nll - refinement` is the calibration error in nats that one temperature removes. Arguments as in
    `nll`.

    >>> round(float(metrics.refinement([[2.0, 0.0]] * 4, [0, 0, 0, 1])), 4)
    0.5623
    """
    logits, labels, weights = _checked(logits, labels, weights, check)
    # The NLL has no slope at the best temperature: the logits move it by themselves only.
    beta = jax.lax.stop_gradient(_lowest_nll(*_distances(logits, labels), weights))
    return _nll(beta * logits, labels, weights)


def inverse_temperature(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> jax.Array:
    """Find `1 / T` of the temperature with the lowest NLL. Arguments as in `nll`.

    The NLL is convex in beta = 1/T and its derivative, the mean of `E_p[z] - z_y` with
    `p = softmax(beta z)`, rises through zero once. That zero is found by Newton's method within a
    shrinking interval of log beta, [-16, 16]: no step size, no divergence, never a temperature <= 0, the
    same relative precision for logits of any scale. Where no temperature between 0 and infinity is best:

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
    logits, labels, weights = _checked(logits, labels, weights, check)
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
    """Return how far the runner-up is behind `[n]`, and where there is one.

    There is none (and a 1 stands for its distance) where all logits that are not masked are equal.
    """
    gap = -jnp.max(jnp.where(distance < 0, distance, -jnp.inf), axis=-1)
    has_gap = jnp.isfinite(gap)
    return jnp.where(has_gap, gap, 1.0), has_gap


def _distances(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return each logit `[n, num_classes]` and the label's `[n]` less the row's largest."""
    distance, numeric = below_top(logits)
    return distance, _nan_unless(numeric, expect(distance, labels), labels, logits)


def _lowest_nll(distance: jax.Array, own: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """Return the inverse temperature with the lowest NLL in [e^-16, e^16].

    Newton's method on the logarithm, kept in the interval in which the slope changes its sign: that is
    halved instead where a step would leave it, or is more than half of the last one. A pass over the
    examples per step, and seven steps where halving alone takes 28.
    """
    distance, own, weights = jax.lax.stop_gradient((distance, own, weights))
    dtype = own.dtype
    # After a Newton step of this length the error is its square.
    close = 1e-4 if dtype == jnp.float32 else 1e-7

    def slope_and_curvature(log_beta: jax.Array) -> tuple[jax.Array, jax.Array]:
        beta = jnp.exp(log_beta)
        # The largest is 1: softmax without its own shift.
        p = jnp.exp(beta * distance)
        # A masked class (logit -inf) has p = 0, and 0 * -inf is no number.
        first = jnp.where(p > 0, p * distance, 0.0)
        second = jnp.where(p > 0, first * distance, 0.0)
        total, first, second = _cpu.row_sums(p, first, second)
        mean = first / total
        variance = second / total - mean**2
        return weighted_mean(mean - own, weights), beta * weighted_mean(variance, weights)

    def step(state: _Search) -> _Search:
        slope, curvature = slope_and_curvature(state.at)
        falling = slope < 0
        low, high = (
            jnp.where(falling, state.at, state.low),
            jnp.where(falling, state.high, state.at),
        )
        newton = state.at - slope / jnp.where(curvature > 0, curvature, 1.0)
        length = jnp.abs(newton - state.at)
        is_newton = (newton > low) & (newton < high) & (length < state.length / 2) & (curvature > 0)
        middle = (low + high) / 2
        at = jnp.where(is_newton, newton, middle)
        length = jnp.where(is_newton, length, high - low)
        finished = (is_newton & (length < close)) | (middle == low) | (middle == high)
        return _Search(low, high, at, length, finished)

    low, high, at = (jnp.asarray(x, dtype) for x in (-16.0, 16.0, 0.0))
    start = _Search(low, high, at, high - low, jnp.asarray(False))
    return jnp.exp(jax.lax.while_loop(lambda state: ~state.finished, step, start).at)


class _Search(NamedTuple):
    """Ends of the interval, where the search is, the length of its last step, whether it is over."""

    low: jax.Array
    high: jax.Array
    at: jax.Array
    length: jax.Array
    finished: jax.Array
