"""Metrics against the true label distribution p(y|x), where a data set knows it.

The probability of each label takes the place of one drawn label, so that label noise leaves the
measurement: all values are exact averages over the rows.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_logits,
    as_weights,
    check_not_empty,
    check_not_probs,
    check_probs,
    is_readable,
    take_label,
    weighted_mean,
    without_padding,
)
from calib_jax.metrics._binning import bin_stats
from calib_jax.metrics._proper import brier_score, nll
from calib_jax.metrics._top_label import top_label_of

_SUM_TOLERANCE = 1e-2  # rows in 16 bits sum to 1 no better


def true_calibration_error(
    probs: ArrayLike,
    true_probs: ArrayLike,
    *,
    num_bins: int = 15,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> jax.Array:
    """Compute the calibration error of predicted probabilities against the true ones.

    That is `sum_b n_b/n |confidence_b - mean_b p(ŷ|x)|` over bins of equal mass, ŷ being the predicted
    class. It is at most `E|p(ŷ|x) - confidence|`, which it reaches as bins become fine enough to tell
    all examples apart; double `num_bins` to see how far it depends on them.

    Args:
      probs: predicted probabilities `[n, num_classes]`.
      true_probs: p(y|x) of each row `[n, num_classes]`.
      num_bins: number of bins.
      weights: `[n]`, 0 for padding.
      check: whether logits, and rows of `true_probs` that are no distribution, are refused; inside
        jit they never are.

    Returns:
      scalar in [0, 1]

    >>> probs, true_probs = [[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.2, 0.8]]
    >>> round(float(metrics.true_calibration_error(probs, true_probs, num_bins=2)), 3)
    0.1
    """
    probs = as_logits(probs)
    true_probs, weights = _checked(probs, true_probs, weights, check)
    if check:
        check_probs(probs, weights)
    probs = without_padding(probs, weights)
    confidence, truth = jnp.max(probs, axis=-1), _probability_of_top(probs, true_probs)
    return _binned_error(confidence, truth, weights, num_bins)


def truth_summary(
    logits: ArrayLike,
    true_probs: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> dict[str, jax.Array]:
    """Compute accuracy, proper scores and calibration errors in expectation over the labels.

    Args:
      logits: `[n, num_classes]`; log-probabilities serve as well.
      true_probs: p(y|x) of each row `[n, num_classes]`.
      weights: `[n]`, 0 for padding.
      check: as in `true_calibration_error`, and whether probabilities in place of logits are refused.

    Returns:
      `{name: scalar}`: `true_accuracy`, `true_ece` of 15 bins of equal mass, `true_ece_30` of twice as
      many, `true_gap` E|p(ŷ|x) - confidence|, `expected_nll`, `expected_brier` and `bayes_error`.

    >>> values = metrics.truth_summary([[2.0, 0.0], [0.0, 3.0]], [[0.75, 0.25], [0.25, 0.75]])
    >>> float(values["true_accuracy"]), float(values["bayes_error"])
    (0.75, 0.25)
    """
    logits = as_logits(logits)
    true_probs, weights = _checked(logits, true_probs, weights, check)
    if check:
        check_not_probs(logits, weights)
    return _summary(logits, true_probs, weights)


@jax.jit
def _summary(
    logits: jax.Array, true_probs: jax.Array, weights: jax.Array | None
) -> dict[str, jax.Array]:
    logits = without_padding(logits, weights)
    confidence, _ = top_label_of(logits, true_probs)
    truth = _probability_of_top(logits, true_probs)
    # The squared distance from p(y|x) lacks the variance of the label around it, 1 - sum_k p_k^2.
    variance = 1 - weighted_mean(jnp.sum(jnp.square(true_probs), axis=-1), weights)
    return {
        "true_accuracy": weighted_mean(truth, weights),
        "true_ece": _binned_error(confidence, truth, weights, 15),
        "true_ece_30": _binned_error(confidence, truth, weights, 30),
        "true_gap": weighted_mean(jnp.abs(truth - confidence), weights),
        "expected_nll": nll(logits, true_probs, weights=weights),
        "expected_brier": brier_score(logits, true_probs, weights=weights) + variance,
        "bayes_error": 1 - weighted_mean(jnp.max(true_probs, axis=-1), weights),
    }


def _checked(
    scores: jax.Array, true_probs: ArrayLike, weights: ArrayLike | None, check: bool
) -> tuple[jax.Array, jax.Array | None]:
    """Return true probabilities and weights in the dtype of the scores."""
    if scores.ndim != 2 or np.shape(true_probs) != scores.shape:
        raise ValueError(
            "true_probs: expected p(y|x) of the shape of the predictions, [n, num_classes], "
            f"got {np.shape(true_probs)} for predictions {scores.shape}"
        )
    check_not_empty(scores.shape[:1])
    weights = as_weights(weights, scores.shape[:1], scores.dtype)
    true_probs = without_padding(jnp.asarray(true_probs, scores.dtype), weights)
    if check and all(map(is_readable, (true_probs, weights))):
        sums, used = np.asarray(true_probs).sum(axis=-1), np.ones(scores.shape[0], bool)
        if weights is not None:
            used = np.asarray(weights) != 0
        off = used & ~(np.abs(sums - 1) <= _SUM_TOLERANCE)
        if off.any() or float(np.min(true_probs)) < 0:
            row = int(np.argmax(off | (np.asarray(true_probs) < 0).any(axis=-1)))
            raise ValueError(
                f"true_probs: expected distributions over the classes, row {row} has "
                f"least entry {float(np.min(true_probs[row])):.3g} and sum {sums[row]:.4g}"
            )
    return true_probs, weights


def _probability_of_top(scores: jax.Array, true_probs: jax.Array) -> jax.Array:
    """Return p(ŷ|x) `[n]`; NaN where the scores are."""
    truth = take_label(true_probs, jnp.argmax(scores, axis=-1))
    return jnp.where(jnp.isnan(jnp.max(scores, axis=-1)), jnp.nan, truth)


@partial(jax.jit, static_argnames="num_bins")
def _binned_error(
    confidence: jax.Array, truth: jax.Array, weights: jax.Array | None, num_bins: int
) -> jax.Array:
    return bin_stats(confidence, truth, num_bins=num_bins, scheme="mass", weights=weights).ece()
