"""From scores to what top-label calibration compares: confidence and correctness."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_labels,
    as_logits,
    below_top,
    check_labels,
    check_not_probs,
    check_probs,
    correct_prediction,
    is_soft,
    nan_where_invalid,
    take_label,
)


def top_label(
    logits: ArrayLike, labels: ArrayLike, *, check: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Return the confidence of the predicted class and whether the prediction is right.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]` (their largest class counts).
      check: whether probabilities are refused; inside jit they never are.

    Returns:
      confidence `[batch]`, correct `[batch]` in {0, 1}

    >>> confidence, correct = metrics.top_label([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> [round(float(x), 3) for x in confidence], correct.tolist()
    ([0.881, 0.731], [1.0, 0.0])
    """
    logits = as_logits(logits)
    if check:
        check_not_probs(logits, instead="metrics.top_label_probs")
    labels = as_labels(labels, logits)
    check_labels(labels, logits)
    return top_label_of(logits, labels)


@partial(jax.jit, inline=True)
def top_label_of(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return `top_label` of arrays that were checked."""
    _, correct = _first_max(logits, labels)
    distance, numeric = below_top(logits)
    confidence = 1 / jnp.sum(jnp.exp(distance), axis=-1)
    return jnp.where(numeric, confidence, jnp.nan), correct


def top_label_probs(
    probs: ArrayLike, labels: ArrayLike, *, check: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Return `top_label` for probabilities `[batch, num_classes]`; `check` refuses logits.

    >>> confidence, correct = metrics.top_label_probs([[0.75, 0.25]], [1])
    >>> confidence.tolist(), correct.tolist()
    ([0.75], [0.0])
    """
    probs = as_logits(probs)
    if check:
        check_probs(probs)
    labels = as_labels(labels, probs)
    check_labels(labels, probs)
    return _first_max(probs, labels)


@partial(jax.jit, inline=True)
def _first_max(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the largest score, and whether its first class is the label (NaN: no class)."""
    top = jnp.max(scores, axis=-1)
    if scores.shape[-1] < 32:
        return top, correct_prediction(scores, labels)
    if is_soft(labels):
        labels = jnp.argmax(labels, axis=-1)
    # A CPU finds out ten times faster whether the label wins than which of many classes does.
    own = take_label(scores, labels)[..., None]
    classes = jax.lax.broadcasted_iota(labels.dtype, scores.shape, scores.ndim - 1)
    not_before = classes >= labels[..., None]
    wins = jnp.all((scores < own) | ((scores == own) & not_before), axis=-1)
    return top, nan_where_invalid(wins.astype(scores.dtype), labels, scores.shape[-1])
