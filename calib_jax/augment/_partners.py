"""Mixup partners: saliency of examples, and the most and the least similar of others."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import _cpu
from calib_jax._arrays import as_labels, as_logits, check_not_empty, float_dtype, is_soft, matmul

PyTree = Any  # a pytree of arrays

# Similarities closer than this count as equal: below it, rounding would choose the partner.
_RESOLUTION = 2.0**-18


def saliency(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Compute `|softmax(logits) - y|`, the absolute gradient of cross entropy by the logits.

    The gold entry is `1 - p_y` as the sum of the others' probabilities: a difference from 1 would lose
    all its digits where `p_y` rounds to 1, which in float32 is at a margin of 17. (So does automatic
    differentiation in float32.)

    With two classes it is `(1 - p_y) (1, 1)` whatever the example: all directions are the same, and
    only another saliency (of features, say, by `gradient_saliency`) can tell examples apart.

    Args:
      logits: Logits `[batch, num_classes]`; a masked class has -inf.
      labels: Integers `[batch]`, or soft `[batch, num_classes]` that sum to 1.

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


def gradient_saliency(
    loss: Callable[[PyTree, PyTree], jax.Array], inputs: PyTree, labels: PyTree
) -> PyTree:
    """Compute the gradient of each example's loss with respect to its inputs.

    The inputs may be images, embeddings, features or logits. The gradients keep their signs; of cross
    entropy with respect to logits their absolute value is `saliency`. All examples are differentiated at
    once by `jax.vmap`, each as if it were alone.

    Args:
      loss: Function `(input, label) -> scalar` of one example, both without the batch axis.
      inputs: Arrays to differentiate with respect to, a pytree of arrays `[batch, …]`.
      labels: Other arrays of each example, a pytree of arrays `[batch, …]`, such as labels and masks.

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
    """Find the most and the least similar candidate of each example, by cosine.

    Similarities that differ by rounding only are equal. A vector of zeros has similarity 0 to all.

    Args:
      saliency: Saliency of the examples `[batch, width]`.
      candidates: Saliency of the candidates `[number, width]`.
      valid: Bools `[number]`, false for candidates that must not be chosen (padding); one must be true.
      key: Random key that chooses among equals, for each example and for nearest and farthest
        independently, with the same probability for each; without one the first counts.
      eps: Clamp of the similarity `a · b / max(|a| |b|, eps)`: of short vectors it depends on their
        lengths, too. 0 for the cosine.

    Returns:
      Indices of the nearest and of the farthest candidates, each `[batch]`.

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
    is_valid = jnp.ones(b.shape[:1], bool) if valid is None else jnp.asarray(valid, bool)
    if is_valid.shape != b.shape[:1]:
        raise ValueError(f"valid: expected shape {b.shape[:1]}, got {is_valid.shape}")
    near_key, far_key = (None, None) if key is None else jax.random.split(key)
    nearest = _largest(jnp.where(is_valid[None], similarity, -jnp.inf), near_key)
    farthest = _largest(jnp.where(is_valid[None], -similarity, -jnp.inf), far_key)
    return nearest, farthest


def _largest(values: jax.Array, key: jax.Array | None) -> jax.Array:
    """Return the index of the largest entry of each row; of several the first, or with a key any."""
    if key is None:
        return _cpu.argmax(values)
    ties = values == jnp.max(values, axis=1, keepdims=True)
    return _cpu.argmax(jnp.where(ties, jax.random.uniform(key, values.shape), -1.0))


def _unit(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the rows with length 1 `[n, width]`, and their former lengths `[n, 1]`."""
    # Divided by the largest entry first: the square of a tiny number is zero.
    largest = jnp.maximum(jnp.max(jnp.abs(x), axis=-1, keepdims=True), 1e-30)
    x = x / largest
    length = jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(x), axis=-1, keepdims=True)), 1e-30)
    return x / length, largest * length
