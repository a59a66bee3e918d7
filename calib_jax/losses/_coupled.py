"""Losses that couple the examples of a batch: scalars, to be added to another loss."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_labels,
    as_logits,
    as_weights,
    correct_prediction,
    indicator,
    is_soft,
    matmul,
    nan_where_invalid,
    weighted_mean,
    without_padding,
)


def mmce(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    width: float = 0.4,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the squared maximum mean calibration error of the batch, a scalar.

    `sum_ij (c_i - r_i)(c_j - r_j) exp(-|r_i - r_j| / width) / batch^2` with confidence r and
    correctness c.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]` (their largest class counts).
      width: Width of the Laplacian kernel.
      weights: Weights `[batch]`, 0 for padding.

    Returns:
      Scalar.

    References:
      Kumar, Sarawagi and Jain (2018), "Trainable calibration measures for neural networks from
      kernel mean embeddings", ICML.

    >>> round(float(losses.mmce([[2.0, 0.0], [0.0, 1.0]], [0, 0])), 4)
    0.1072
    """
    r, c, w = _confidence_and_correct(logits, labels, weights)
    gap = w * (c - r)
    return _quadratic(gap, gap, _laplacian(r, width)) / jnp.sum(w) ** 2


def mmce_weighted(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    width: float = 0.4,
    double_normalized: bool = False,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the weighted MMCE, which balances correct and incorrect examples, a scalar.

    With m correct and n incorrect examples, confidence r and kernel k it is the root of

        sum_cc (1-r)(1-r')k / m^2  +  sum_ii r r' k / n^2  -  2 sum_ci (1-r) r' k / (m n),

    and 0 where either group is empty. Paper: this; published codes: means over the pairs, divided
    once more by m^2, n^2 and mn, which makes the term vanish for large batches.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]` (their largest class counts).
      width: Width of the Laplacian kernel.
      double_normalized: Whether to divide twice as the published codes do.
      weights: Weights `[batch]`, 0 for padding.

    Returns:
      Scalar.

    References:
      Kumar, Sarawagi and Jain (2018), "Trainable calibration measures for neural networks from
      kernel mean embeddings", ICML.

    >>> round(float(losses.mmce_weighted([[2.0, 0.0], [0.0, 1.0]], [0, 0])), 4)
    0.6548
    """
    r, c, w = _confidence_and_correct(logits, labels, weights)
    kernel = _laplacian(r, width)
    right, wrong = w * c * (1 - r), w * (1 - c) * r
    m, n = jnp.sum(w * c), jnp.sum(w * (1 - c))
    some, both = m + n > 0, (m > 0) & (n > 0)
    m, n = jnp.where(both, m, 1.0), jnp.where(both, n, 1.0)

    def norm(pairs: jax.Array) -> jax.Array:
        return pairs * (pairs + 1e-5) if double_normalized else pairs

    squared = (
        _quadratic(right, right, kernel) / norm(m * m)
        + _quadratic(wrong, wrong, kernel) / norm(n * n)
        - 2 * _quadratic(right, wrong, kernel) / norm(m * n)
    )
    # A squared norm in the kernel's space; below zero only by rounding, and sqrt has no slope at 0.
    squared = jnp.where(both, jnp.maximum(squared, 0.0) + 1e-10, 1.0)
    # Without weight, or with an invalid label, the numbers of examples are 0 or NaN.
    return jnp.where(some, jnp.where(both, jnp.sqrt(squared), 0.0), jnp.nan)


def mdca(logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> jax.Array:
    """Compute the mean over classes of |mean probability - frequency| in the batch, a scalar.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      weights: Weights `[batch]`, 0 for padding.

    Returns:
      Scalar.

    References:
      Hebbalaguppe, Prakash, Madan and Arora (2022), arXiv:2203.13834.

    >>> round(float(losses.mdca([[2.0, 0.0], [0.0, 1.0]], [0, 0])), 4)
    0.4251
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    known = as_weights(weights, logits.shape[:-1], logits.dtype)
    if not is_soft(labels):
        one_hot = indicator(labels, logits.shape[-1]).astype(logits.dtype)
        labels = nan_where_invalid(one_hot.T, labels, logits.shape[-1]).T
    logits, labels = without_padding(logits, known), without_padding(labels, known)
    mean = jax.vmap(lambda per_class: weighted_mean(per_class, weights), in_axes=-1)
    return jnp.mean(jnp.abs(mean(jax.nn.softmax(logits)) - mean(labels)))


def mbls(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    margin: float = 10.0,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute margin-based label smoothing's penalty `mean relu(max_j z_j - z_k - margin)`, a scalar.

    To be added to a loss; `labels` are checked and not used. The mean is over the examples and, for each
    of them, over the classes that are not masked.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      margin: Largest logit distance without a penalty.
      weights: Weights `[batch]`, 0 for padding.

    Returns:
      Scalar.

    References:
      Liu, Ben Ayed, Galdran and Dolz (2022), arXiv:2111.15430.

    >>> float(losses.mbls([[15.0, 0.0]], [0], margin=10.0))
    2.5
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    logits = without_padding(logits, as_weights(weights, logits.shape[:-1], logits.dtype))
    present = ~jnp.isneginf(logits)
    distance = jnp.max(logits, axis=-1, keepdims=True) - jnp.where(present, logits, 0.0)
    penalty = jnp.sum(jnp.where(present, jax.nn.relu(distance - margin), 0.0), axis=-1)
    penalty = penalty / jnp.sum(present, axis=-1, dtype=logits.dtype)
    return weighted_mean(nan_where_invalid(penalty, labels, logits.shape[-1]), weights)


def _confidence_and_correct(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the confidence, correctness and weight of each example."""
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    known = as_weights(weights, logits.shape[:-1], logits.dtype)
    logits = without_padding(logits, known)
    confidence = jnp.max(jax.nn.softmax(logits), axis=-1)
    correct = without_padding(correct_prediction(logits, labels), known)
    return confidence, correct, jnp.ones_like(confidence) if known is None else known


def _laplacian(r: jax.Array, width: float) -> jax.Array:
    return jnp.exp(-jnp.abs(r[:, None] - r[None, :]) / width)


def _quadratic(a: jax.Array, b: jax.Array, kernel: jax.Array) -> jax.Array:
    return matmul(matmul(a, kernel), b)
