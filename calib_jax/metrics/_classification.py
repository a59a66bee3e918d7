"""How often the prediction is right."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_hard_labels,
    as_labels,
    as_logits,
    as_weights,
    correct_prediction,
    weighted_mean,
)


def accuracy(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Fraction of rows whose first largest logit is the label.

    Args:
      logits: `[n, num_classes]`; probabilities serve as well.
      labels: integers `[n]` or soft `[n, num_classes]` (their largest class counts).
      weights: `[n]`, 0 for padding.

    Returns:
      scalar
    """
    logits = as_logits(logits)
    return weighted_mean(correct_prediction(logits, as_labels(labels, logits)), weights)


def confusion_matrix(
    logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Counts by true class (rows) and predicted class (columns).

    Args:
      logits: `[n, num_classes]`; probabilities serve as well.
      labels: integers `[n]`.
      weights: `[n]`, 0 for padding.

    Returns:
      float32 `[num_classes, num_classes]`
    """
    logits = as_logits(logits)
    labels = as_hard_labels(labels, logits)
    k = logits.shape[-1]
    weights = as_weights(weights, labels.shape)
    count = jnp.ones(labels.shape) if weights is None else weights
    cell = labels * k + jnp.argmax(logits, axis=-1)
    return jax.ops.segment_sum(count, cell, k * k).reshape(k, k)


def f1(
    logits: ArrayLike,
    labels: ArrayLike,
    average: str = "macro",
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """F1 score averaged over classes; a class neither present nor predicted scores 0.

    Args:
      logits: `[n, num_classes]`; probabilities serve as well.
      labels: integers `[n]`.
      average: `'macro'` weighs all `num_classes` classes alike, `'weighted'` by their frequency.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar
    """
    matrix = confusion_matrix(logits, labels, weights=weights)
    true, predicted = jnp.sum(matrix, axis=1), jnp.sum(matrix, axis=0)
    scores = 2 * jnp.diagonal(matrix) / jnp.maximum(true + predicted, 1e-30)
    if average == "macro":
        return jnp.mean(scores)
    if average == "weighted":
        return jnp.sum(true * scores) / jnp.sum(true)
    raise ValueError(f"average={average!r}: expected 'macro' or 'weighted'")
