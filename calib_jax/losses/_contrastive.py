"""Label-aware contrastive loss (LCL)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    FLOOR,
    above_floor,
    as_hard_labels,
    as_logits,
    as_weights,
    float_dtype,
    is_valid,
    matmul,
    nan_where_invalid,
    take_label,
    without_padding,
)


def label_aware_contrastive(
    features: ArrayLike,
    labels: ArrayLike,
    helper_logits: ArrayLike,
    *,
    tau: float,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the supervised contrastive loss in which confusable classes repel more.

    With unit features f, similarities `s_ij = f_i . f_j` and the helper network's weights
    `w_ij = softmax(helper_i)[label_j]`, an anchor's loss is

        -w_{i, y_i} mean_{p: y_p = y_i, p != i} ( s_ip / tau - log sum_{j != i} w_ij exp(s_ij / tau) )

    and 0 for an anchor alone in its class. The helper network receives gradient too.

    Args:
      features: Features `[batch, dim]`, normalized here.
      labels: Integers `[batch]`.
      helper_logits: Weighting network's logits `[batch, num_classes]`.
      tau: Temperature of the similarities.
      weights: Weights `[batch]`, 0 for padding: the loss of such a row is 0, and no other row is
        compared with it, nor with one whose label is invalid.

    Returns:
      `[batch]`

    References:
      Suresh and Ong (2021), arXiv:2109.05427.

    >>> features, helper_logits = [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], [[0.0, 0.0]] * 3
    >>> loss = losses.label_aware_contrastive(features, [0, 0, 1], helper_logits, tau=0.3)
    >>> [round(float(x), 3) for x in loss]
    [-0.313, -0.139, -0.0]
    """
    dtype = float_dtype(features, helper_logits)
    helper_logits = above_floor(as_logits(helper_logits).astype(dtype))
    labels = as_hard_labels(labels, helper_logits)
    features = jnp.asarray(features, dtype)
    if features.ndim != 2 or features.shape[:1] != labels.shape:
        raise ValueError(f"features: expected [{labels.shape[0]}, dim], got {features.shape}")
    weights = as_weights(weights, labels.shape, dtype)
    features = without_padding(features, weights)
    helper_logits = without_padding(helper_logits, weights)
    features *= jax.lax.rsqrt(jnp.sum(jnp.square(features), -1, keepdims=True) + 1e-12)
    similarity = matmul(features, features.T) / tau

    log_w = jax.nn.log_softmax(helper_logits)
    counts = is_valid(labels, helper_logits.shape[-1])
    if weights is not None:
        counts &= weights > 0
    other = ~jnp.eye(labels.shape[0], dtype=bool) & counts[None, :]
    log_w_pair = jnp.take(log_w, labels, axis=-1, mode="clip")
    # Not -inf, whose slope is NaN for an anchor without others.
    log_total = jax.nn.logsumexp(jnp.where(other, similarity + log_w_pair, FLOOR), axis=-1)
    positive = (labels[:, None] == labels[None, :]) & other
    count = jnp.sum(positive, axis=-1, dtype=dtype)
    mean_log_prob = jnp.sum(
        jnp.where(positive, similarity - log_total[:, None], 0.0), axis=-1
    ) / jnp.maximum(count, 1)
    loss = -jnp.exp(take_label(log_w, labels)) * mean_log_prob
    return without_padding(nan_where_invalid(loss, labels, log_w.shape[-1]), weights)
