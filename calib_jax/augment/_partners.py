"""Whom to mix an example with: saliency of its loss, and the others that are most and least like it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_labels, as_logits, check_not_empty, float_dtype, is_soft, matmul

# Similarities closer than this are equal: below it, rounding would choose the partner.
_RESOLUTION = 2.0**-18


def saliency(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Compute `|softmax(logits) - y|`: cross entropy's slope along each logit without its sign.

    The gold entry is `1 - p_y` as the sum of the others' probabilities: a difference from 1 would lose
    all its digits where `p_y` rounds to 1, which in float32 is at a margin of 17. (So does automatic
    differentiation in float32.)

    With two classes it is `(1 - p_y) (1, 1)` whatever the example: all directions are the same, and
    only another saliency (of features, say, by `gradient_saliency`) can tell examples apart.

    Args:
      logits: `[batch, num_classes]`; a masked class has -inf.
      labels: integers `[batch]`, or soft `[batch, num_classes]` that sum to 1.

    Returns:
      `[batch, num_classes]`; NaN in the row of a label that is no class.

    References:
      Park and Caragea (2022), arXiv:2203.07559.

    >>> [round(float(s), 3) for s in saliency([[2.0, 0.0, 0.0]], jnp.array([0]))[0]]
    [0.213, 0.107, 0.107]
    """
    logits = as_logits(logits)
    labels = as_labels(labels, logits)
    num_classes = logits.shape[-1]
    gold = (jnp.argmax(labels, axis=-1) if is_soft(labels) else labels).astype(jnp.int32)
    is_gold = jax.nn.one_hot(gold, num_classes, dtype=bool)
    target = (labels if is_soft(labels) else is_gold).astype(logits.dtype)
    slope = jax.nn.softmax(logits) - target
    others = jnp.sum(jnp.where(is_gold, 0.0, slope), axis=-1, keepdims=True)
    known = ((gold >= 0) & (gold < num_classes))[..., None]
    return jnp.where(known, jnp.abs(jnp.where(is_gold, others, slope)), jnp.nan)


def gradient_saliency(loss: Callable[[Any, Any], jax.Array], inputs: Any, labels: Any) -> Any:
    """Compute the gradient of each example's own loss with respect to its inputs.

    The inputs may be any cut of a network: images, embeddings, features or logits. The gradients keep
    their signs; of cross entropy with respect to logits their absolute value is `saliency`. All examples
    are differentiated at once by `jax.vmap`, each as if it were alone: their losses need not sum up.

    Args:
      loss: `(input, label) -> scalar` of one example, both without the batch axis.
      inputs: what to differentiate with respect to: an array `[batch, …]` or a tree of such.
      labels: what else belongs to each example: an array `[batch, …]` or a tree of such, for example
        the labels and the masks of texts.

    Returns:
      Gradients, like `inputs`.

    References:
      Simonyan, Vedaldi and Zisserman (2014), arXiv:1312.6034.

    >>> squared = lambda x, y: jnp.sum((x - y) ** 2)
    >>> gradient_saliency(squared, jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 5.0])).tolist()
    [[0.0, 2.0], [-4.0, -2.0]]
    """
    return jax.vmap(jax.grad(loss))(inputs, labels)


def partners(
    saliency: ArrayLike,
    candidates: ArrayLike,
    *,
    valid: ArrayLike | None = None,
    key: jax.Array | None = None,
    eps: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Find the most and the least similar candidate of each example, by cosine; one matrix product.

    What differs by rounding only is equal. A vector of zeros has similarity 0 to everything.

    Args:
      saliency: `[batch, width]`.
      candidates: `[number, width]`.
      valid: `[number]`, false for candidates that must not be chosen (padding); one must be true.
      key: random key that chooses among equals, for each example and for nearest and farthest
        independently, with the same probability for each; without one the first counts.
      eps: clamp of the similarity `a · b / max(|a| |b|, eps)`: of short vectors it depends on their
        lengths, too. 0 for the cosine.

    Returns:
      nearest and farthest: indices into the candidates `[batch]`.

    References:
      Park and Caragea (2022), arXiv:2203.07559, algorithm 2.

    >>> nearest, farthest = partners([[1.0, 0.0]], [[0.0, 2.0], [3.0, 1.0], [1.0, 1.0]])
    >>> int(nearest[0]), int(farthest[0])
    (1, 0)
    """
    dtype = float_dtype(saliency, candidates)
    a, b = jnp.asarray(saliency, dtype), jnp.asarray(candidates, dtype)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(
            f"saliency and candidates: expected [batch, width] and [number, width], "
            f"got {a.shape} and {b.shape}"
        )
    check_not_empty((a.shape[0], b.shape[0]))
    (a, length_a), (b, length_b) = _unit(a), _unit(b)
    similarity = matmul(a, b.T)
    if eps:
        similarity *= jnp.minimum(length_a * length_b.T / eps, 1.0)
    similarity = jnp.round(similarity / _RESOLUTION)
    ok = jnp.ones(b.shape[:1], bool) if valid is None else jnp.asarray(valid, bool)
    if ok.shape != b.shape[:1]:
        raise ValueError(f"valid: expected shape {b.shape[:1]}, got {ok.shape}")
    keys = (None, None) if key is None else jax.random.split(key)
    ranked = (jnp.where(ok[None], sign * similarity, -jnp.inf) for sign in (1, -1))
    nearest, farthest = (_largest(x, k) for x, k in zip(ranked, keys, strict=True))
    return nearest, farthest


def _largest(values: jax.Array, key: jax.Array | None) -> jax.Array:
    """The place of the largest entry of each row; of several the first, or with a key any."""
    if key is None:
        return jnp.argmax(values, axis=1)
    ties = values == jnp.max(values, axis=1, keepdims=True)
    return jnp.argmax(jnp.where(ties, jax.random.uniform(key, values.shape), -1.0), axis=1)


def _unit(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows with length 1 `[n, width]`, and the lengths that they had `[n, 1]`."""
    # By the largest entry first: the square of a tiny number is zero.
    largest = jnp.maximum(jnp.max(jnp.abs(x), axis=-1, keepdims=True), 1e-30)
    x = x / largest
    length = jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True)), 1e-30)
    return x / length, largest * length
