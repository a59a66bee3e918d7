"""Cross entropy and Brier, and two ways to hold the first one back."""

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


def bsce_gra(logits: ArrayLike, labels: ArrayLike, *, norm: float = 2.0) -> jax.Array:
    """Cross entropy whose gradient is scaled by the example's own Brier score.

    `sum_k |p_k - y_k|^norm` weighs the example and is a constant for the gradient: what is predicted
    well already moves little, whichever class is ahead.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.
      norm: 2 for the Brier score.

    Returns:
      `[batch]`
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    target = labels if is_soft(labels) else jax.nn.one_hot(labels, logits.shape[-1])
    weight = jnp.sum(jnp.abs(jax.nn.softmax(logits) - target) ** norm, axis=-1)
    return jax.lax.stop_gradient(weight) * cross_entropy(logits, labels)


def logit_norm(logits: ArrayLike, labels: ArrayLike, *, tau: float = 0.04) -> jax.Array:
    """Cross entropy of `logits / (tau |logits|)`: confidence cannot grow by the logits' length.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.
      tau: temperature of the unit vectors.

    Returns:
      `[batch]`
    """
    logits = as_logits(logits)
    # Scaled to a largest entry of 1 first, so that no square overflows; a zero vector stays zero.
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(logits), axis=-1, keepdims=True))
    scaled = logits / jnp.maximum(largest, 1e-30)
    length = jnp.sqrt(jnp.sum(jnp.square(scaled), axis=-1, keepdims=True) + 1e-14)
    return cross_entropy(scaled / (tau * length), labels)
