"""Proper losses: cross entropy and Brier."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_labels, as_logits, centred, expect, is_soft, take_label


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """`-sum_k y_k log p_k` with `p = softmax(logits)`.

    Label smoothing is this loss on `targets.smooth(labels, num_classes, smoothing)`.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      `[batch]`
    """
    logits = centred(as_logits(logits))
    labels = as_labels(labels, logits)
    if is_soft(labels):
        return -expect(jax.nn.log_softmax(logits), labels)
    return jax.nn.logsumexp(logits, axis=-1) - take_label(logits, labels)


def brier(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """`sum_k (p_k - y_k)^2`, the multi-class Brier loss in [0, 2]; no factor 1/2.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      `[batch]`
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    if not is_soft(labels):
        labels = jax.nn.one_hot(labels, logits.shape[-1])
    return jnp.sum(jnp.square(jax.nn.softmax(logits) - labels), axis=-1)
