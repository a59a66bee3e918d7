"""Whom to mix an example with: saliency of its loss, and the others that are most and least like it."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_labels, as_logits, is_soft, matmul

# Similarities closer than this are equal: below it, rounding would choose the partner.
_RESOLUTION = 2.0**-18


def saliency(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """`|softmax(logits) - y|`: the size of cross entropy's slope along each logit, in closed form.

    With two classes it is `(1 - p_y) (1, 1)` whatever the example: all directions are the same, and
    only another saliency (of features, say, by `jax.vmap(jax.grad(...))`) can tell examples apart.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      `[batch, num_classes]`
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    target = labels if is_soft(labels) else jax.nn.one_hot(labels, logits.shape[-1])
    return jnp.abs(jax.nn.softmax(logits) - target)


def partners(
    saliency: ArrayLike, candidates: ArrayLike, *, valid: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """The most and the least similar candidate of each example, by cosine; one matrix product.

    Among equals the first counts, and what differs by rounding only is equal. A vector of zeros has
    similarity 0 to everything.

    Args:
      saliency: `[batch, width]`.
      candidates: `[number, width]`.
      valid: `[number]`, false for candidates that must not be chosen (padding); one must be true.

    Returns:
      nearest and farthest: indices into the candidates `[batch]`.
    """
    a, b = _unit(saliency), _unit(candidates)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(
            f"saliency and candidates: expected [batch, width] and [number, width], "
            f"got {a.shape} and {b.shape}"
        )
    similarity = jnp.round(matmul(a, b.T) / _RESOLUTION)
    if valid is None:
        return jnp.argmax(similarity, axis=1), jnp.argmin(similarity, axis=1)
    ok = jnp.asarray(valid, bool)
    if ok.shape != b.shape[:1]:
        raise ValueError(f"valid: expected shape {b.shape[:1]}, got {ok.shape}")
    nearest = jnp.argmax(jnp.where(ok, similarity, -jnp.inf), axis=1)
    return nearest, jnp.argmin(jnp.where(ok, similarity, jnp.inf), axis=1)


def _unit(x: ArrayLike) -> jax.Array:
    x = jnp.asarray(x, jnp.float32)
    # By the largest entry first: the square of a tiny number is zero.
    x = x / jnp.maximum(jnp.max(jnp.abs(x), axis=-1, keepdims=True), 1e-30)
    length = jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True))
    return x / jnp.maximum(length, 1e-30)
