"""How often the prediction is right."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_hard_labels,
    as_labels,
    as_logits,
    as_weights,
    check_labels,
    correct_prediction,
    nan_where_invalid,
    weighted_mean,
)
from calib_jax._hints import check_choice
from calib_jax.metrics._binning import bin_sums


def accuracy(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the fraction of rows whose first largest logit is the label.

    Args:
      logits: `[n, num_classes]`; probabilities serve as well.
      labels: integers `[n]` or soft `[n, num_classes]` (their largest class counts).
      weights: `[n]`, 0 for padding.

    Returns:
      scalar

    >>> float(metrics.accuracy([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
    0.5
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    check_labels(labels, logits, weights)
    weights = as_weights(weights, logits.shape[:-1], logits.dtype)
    return _accuracy(logits, labels, weights)


@partial(jax.jit, inline=True)
def _accuracy(logits: jax.Array, labels: jax.Array, weights: jax.Array | None) -> jax.Array:
    return weighted_mean(correct_prediction(logits, labels), weights)


def confusion_matrix(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Count by true class (rows) and predicted class (columns).

    Args:
      logits: `[n, num_classes]`; probabilities serve as well.
      labels: integers `[n]`.
      weights: `[n]`, 0 for padding.

    Returns:
      `[num_classes, num_classes]`

    >>> metrics.confusion_matrix([[2.0, 0.0], [0.0, 1.0]], [0, 0]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    logits = as_logits(logits)
    labels, predicted, weight = _classes(logits, labels, weights)
    k = logits.shape[-1]
    counts = jnp.zeros((k, k), logits.dtype).at[labels, predicted].add(weight)
    # A label that is no class would be counted in some row: no count is to be trusted then.
    return jnp.where(jnp.isnan(jnp.sum(weight)), jnp.nan, counts)


def f1(
    logits: ArrayLike,
    labels: ArrayLike,
    average: str = "macro",
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the F1 score averaged over classes; a class neither present nor predicted scores 0.

    Args:
      logits: `[n, num_classes]`; probabilities serve as well.
      labels: integers `[n]`.
      average: `'macro'` weighs all `num_classes` classes alike, `'weighted'` by their frequency.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar

    >>> round(float(metrics.f1([[2.0, 0.0], [0.0, 1.0]], [0, 0])), 3)
    0.333
    """
    check_choice("average", average, ("macro", "weighted"))
    logits = as_logits(logits)
    labels, predicted, weight = _classes(logits, labels, weights)
    k = logits.shape[-1]
    hit = jnp.where(labels == predicted, weight, 0.0)
    # Three sums by class: the matrix of all pairs of classes would not fit where there are many.
    true, right = bin_sums(labels, k, weight, hit)
    (guessed,) = bin_sums(predicted, k, weight)
    scores = 2 * right / jnp.maximum(true + guessed, 1e-30)
    total = jnp.sum(true)
    if average == "macro":
        return jnp.where(total == 0, jnp.nan, jnp.mean(scores))
    return jnp.sum(true * scores) / total


def _classes(
    logits: jax.Array, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return label, predicted class and weight of each row `[n]`; the weight is NaN for no class."""
    labels = as_hard_labels(labels, logits)
    check_labels(labels, logits, weights)
    weight = as_weights(weights, labels.shape, logits.dtype)
    weight = jnp.ones(labels.shape, logits.dtype) if weight is None else weight
    k = logits.shape[-1]
    weight = jnp.where(weight == 0, 0.0, nan_where_invalid(weight, labels, k))
    predicted = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    return jnp.clip(labels, 0, k - 1).astype(jnp.int32), predicted, weight
