"""Losses that couple the examples of a batch. They return a scalar and are added to another loss."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_hard_labels, as_labels, as_logits, correct_prediction, is_soft


def mmce(logits: ArrayLike, labels: ArrayLike, *, width: float = 0.4) -> jax.Array:
    """Maximum mean calibration error of the batch, squared: a scalar.

    `sum_ij (c_i - r_i)(c_j - r_j) exp(-|r_i - r_j| / width) / batch^2` with confidence r and
    correctness c.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]`.
      width: of the Laplacian kernel.

    Returns:
      scalar
    """
    r, c = _confidence_and_correct(logits, labels)
    return _quadratic(c - r, c - r, _laplacian(r, width)) / r.shape[0] ** 2


def mmce_weighted(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    width: float = 0.4,
    double_normalised: bool = False,
) -> jax.Array:
    """Weighted MMCE, which balances correct and incorrect examples: a scalar.

    With m correct and n incorrect examples, confidence r and kernel k it is the root of

        sum_cc (1-r)(1-r')k / m^2  +  sum_ii r r' k / n^2  -  2 sum_ci (1-r) r' k / (m n),

    and 0 where either group is empty. Paper: this; published codes: means over the pairs, divided
    once more by m^2, n^2 and mn, which makes the term vanish for large batches.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]`.
      width: of the Laplacian kernel.
      double_normalised: reproduce the published codes.

    Returns:
      scalar
    """
    r, c = _confidence_and_correct(logits, labels)
    kernel = _laplacian(r, width)
    right, wrong = c * (1 - r), (1 - c) * r
    m, n = jnp.sum(c), jnp.sum(1 - c)
    both = (m > 0) & (n > 0)
    m, n = jnp.maximum(m, 1), jnp.maximum(n, 1)

    def norm(pairs: jax.Array) -> jax.Array:
        return pairs * (pairs + 1e-5) if double_normalised else pairs

    squared = (
        _quadratic(right, right, kernel) / norm(m * m)
        + _quadratic(wrong, wrong, kernel) / norm(n * n)
        - 2 * _quadratic(right, wrong, kernel) / norm(m * n)
    )
    # A squared norm in the kernel's space; below zero only by rounding, and sqrt has no slope at 0.
    squared = jnp.where(both, jnp.maximum(squared, 0.0) + 1e-10, 1.0)
    return jnp.where(both, jnp.sqrt(squared), 0.0)


def mdca(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Mean over classes of |mean probability - frequency| in the batch: a scalar.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      scalar
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    if not is_soft(labels):
        labels = jax.nn.one_hot(labels, logits.shape[-1])
    return jnp.mean(jnp.abs(jnp.mean(jax.nn.softmax(logits), 0) - jnp.mean(labels, 0)))


def mbls(logits: ArrayLike, labels: ArrayLike, *, margin: float = 10.0) -> jax.Array:
    """Margin-based label smoothing's penalty, `mean relu(max_j z_j - z_k - margin)`: a scalar.

    To be added to a loss; `labels` are checked for shape and not used.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.
      margin: logit distances up to this are free.

    Returns:
      scalar
    """
    logits = as_logits(logits)
    as_labels(labels, logits)
    distance = jnp.max(logits, axis=-1, keepdims=True) - logits
    return jnp.mean(jax.nn.relu(distance - margin))


def _confidence_and_correct(logits: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    logits = as_logits(logits)
    labels = as_hard_labels(labels, logits)
    return jnp.max(jax.nn.softmax(logits), axis=-1), correct_prediction(logits, labels)


def _laplacian(r: jax.Array, width: float) -> jax.Array:
    return jnp.exp(-jnp.abs(r[:, None] - r[None, :]) / width)


def _quadratic(a: jax.Array, b: jax.Array, kernel: jax.Array) -> jax.Array:
    return a @ kernel @ b
