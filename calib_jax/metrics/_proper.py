"""Proper scores and what they are made of."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_labels, as_logits, expect, is_soft, weighted_mean
from calib_jax.metrics._binning import bin_stats


def nll(logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> jax.Array:
    """Mean negative log likelihood, in nats.

    Args:
      logits: `[n, num_classes]`.
      labels: integers `[n]` or soft `[n, num_classes]`.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar
    """
    logits = as_logits(logits)
    return weighted_mean(-expect(jax.nn.log_softmax(logits), as_labels(labels, logits)), weights)


def brier_score(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean of `sum_k (p_k - y_k)^2`, in [0, 2]. Arguments as in `nll`."""
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    if not is_soft(labels):
        labels = jax.nn.one_hot(labels, logits.shape[-1])
    squared = jnp.sum(jnp.square(jax.nn.softmax(logits) - labels), axis=-1)
    return weighted_mean(squared, weights)


class BrierDecomposition(NamedTuple):
    """Murphy's parts of the Brier score: score = reliability - resolution + uncertainty."""

    reliability: jax.Array
    resolution: jax.Array
    uncertainty: jax.Array


def brier_decomposition(
    confidence: ArrayLike, correct: ArrayLike, **binning: Any
) -> BrierDecomposition:
    """Splits the top-label Brier score of the binned confidences.

    Reliability is how far confidence is from accuracy (0 is calibrated), resolution how far the bins'
    accuracies are from the overall one (more is better), uncertainty the variance of being right.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      **binning: `num_bins`, `scheme`, `closed`, `weights` as in `bin_stats`.

    Returns:
      `BrierDecomposition` of scalars
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
    """NLL after the best temperature: the part of the NLL that scaling cannot repair.

    `nll - refinement` is the calibration error in nats that one temperature removes. Arguments as in
    `nll`.
    """
    logits = as_logits(logits)
    beta = inverse_temperature(logits, labels, weights=weights)
    return nll(beta * logits, labels, weights=weights)


@jax.jit
def inverse_temperature(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """`1 / T` of the temperature with the lowest NLL. Arguments as in `nll`.

    The NLL is convex in beta = 1/T and its derivative, the mean of `E_p[z] - z_y` with
    `p = softmax(beta z)`, rises through zero once. That zero is found by halving an interval of
    log beta, [-16, 16]: no step size, no divergence, never a temperature <= 0, the same relative
    precision for logits of any scale. Where no finite temperature is best (all predictions right, or
    worse than guessing) the end of the interval is the answer.
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    below_top = logits - jnp.max(logits, axis=-1, keepdims=True)
    own = expect(below_top, labels)

    def slope(log_beta: jax.Array) -> jax.Array:
        # The largest is 1: softmax without its own shift.
        p = jnp.exp(jnp.exp(log_beta) * below_top)
        # A masked class (logit -inf) has p = 0, and 0 * -inf is no number.
        mean = jnp.sum(jnp.where(p > 0, p * below_top, 0.0), axis=-1) / jnp.sum(p, axis=-1)
        return weighted_mean(mean - own, weights)

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        falling = slope(middle) < 0
        return jnp.where(falling, middle, low), jnp.where(falling, high, middle)

    low, high = jax.lax.fori_loop(0, 28, halve, (jnp.float32(-16.0), jnp.float32(16.0)))
    return jnp.exp((low + high) / 2)
