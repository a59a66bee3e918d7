"""Cross entropy and Brier loss, and two variants of the first that limit confidence."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    FLOOR,
    above_floor,
    as_labels,
    as_logits,
    centered,
    expect,
    indicator,
    is_soft,
    nan_where_invalid,
    take_label,
)


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Compute `-sum_k y_k log p_k` with `p = softmax(logits)`.

    Label smoothing is this loss on `targets.smooth(labels, num_classes, smoothing)`.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      `[batch]`

    >>> round(float(losses.cross_entropy([[2.0, 0.0]], [0])[0]), 4)
    0.1269
    """
    logits = centered(above_floor(as_logits(logits)))
    labels = as_labels(labels, logits)
    if is_soft(labels):
        return -expect(jax.nn.log_softmax(logits), labels)
    loss = jax.nn.logsumexp(logits, axis=-1) - take_label(logits, labels)
    return nan_where_invalid(loss, labels, logits.shape[-1])


def brier(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Compute `sum_k (p_k - y_k)^2`, the multi-class Brier loss in [0, 2]; no factor 1/2.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      `[batch]`

    References:
      Brier (1950), "Verification of forecasts expressed in terms of probability", Monthly Weather
      Review 78.

    >>> round(float(losses.brier([[2.0, 0.0]], [0])[0]), 4)
    0.0284
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    loss = jnp.sum(jnp.square(jax.nn.softmax(logits) - _soft(labels, logits)), axis=-1)
    return nan_where_invalid(loss, labels, logits.shape[-1])


def bsce_gra(logits: ArrayLike, labels: ArrayLike, *, norm: float = 2.0) -> jax.Array:
    """Compute cross entropy whose gradient is scaled by the example's Brier score.

    The weight `sum_k |p_k - y_k|^norm` of an example is a constant for the gradient: what is predicted
    well already moves little.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      norm: Power of the differences, 2 for the Brier score.

    Returns:
      `[batch]`

    References:
      Lin, Tao, Dong and Xu (2025), arXiv:2503.22725.

    >>> round(float(losses.bsce_gra([[2.0, 0.0]], [0])[0]), 4)
    0.0036
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    weight = jnp.sum(jnp.abs(jax.nn.softmax(logits) - _soft(labels, logits)) ** norm, axis=-1)
    return jax.lax.stop_gradient(weight) * cross_entropy(logits, labels)


def logit_norm(logits: ArrayLike, labels: ArrayLike, *, tau: float = 0.04) -> jax.Array:
    """Compute cross entropy of `logits / (tau |logits|)`: longer logits give no more confidence.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      tau: Temperature of the unit vectors.

    Returns:
      `[batch]`

    References:
      Wei, Xie, Cheng, Feng, An and Li (2022), arXiv:2205.09310.

    >>> round(float(losses.logit_norm([[2.0, 0.0]], [0], tau=1.0)[0]), 4)
    0.3133
    """
    logits = as_logits(logits)
    masked = jnp.isneginf(logits)
    logits = jnp.where(masked, 0.0, logits)
    # Scaled to a largest entry of 1 first, so that no square overflows; a zero vector stays zero.
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(logits), axis=-1, keepdims=True))
    scaled = logits / jnp.maximum(largest, 1e-30)
    length = jnp.sqrt(jnp.sum(jnp.square(scaled), axis=-1, keepdims=True) + 1e-14)
    return cross_entropy(jnp.where(masked, FLOOR, scaled / (tau * length)), labels)


def _soft(labels: jax.Array, logits: jax.Array) -> jax.Array:
    """Return the labels as `[batch, num_classes]`."""
    if is_soft(labels):
        return labels
    return indicator(labels, logits.shape[-1]).astype(logits.dtype)
