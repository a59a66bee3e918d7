"""What every arrays-only room does first: check shapes, go to float32, read labels of either kind."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def as_logits(logits: ArrayLike) -> jax.Array:
    """`logits` as float32 `[..., num_classes]`; statistics are never kept in a narrower type."""
    logits = jnp.asarray(logits, jnp.float32)
    if logits.ndim < 1 or logits.shape[-1] < 2:
        raise ValueError(f"logits: expected [batch, num_classes >= 2], got shape {logits.shape}")
    return logits


def as_labels(labels: ArrayLike, logits: jax.Array) -> jax.Array:
    """Labels that fit `logits`: integers `[batch]` or soft float32 `[batch, num_classes]`."""
    labels = jnp.asarray(labels)
    if jnp.issubdtype(labels.dtype, jnp.integer) and labels.shape == logits.shape[:-1]:
        return labels
    if jnp.issubdtype(labels.dtype, jnp.floating) and labels.shape == logits.shape:
        return labels.astype(jnp.float32)
    raise ValueError(
        f"labels: expected integers {logits.shape[:-1]} or floats {logits.shape} "
        f"to go with logits {logits.shape}, got {labels.dtype} {labels.shape}"
    )


def as_hard_labels(labels: ArrayLike, logits: jax.Array) -> jax.Array:
    """Integer labels `[batch]`, for what has no meaning with soft ones."""
    labels = jnp.asarray(labels)
    if jnp.issubdtype(labels.dtype, jnp.integer) and labels.shape == logits.shape[:-1]:
        return labels
    raise ValueError(
        f"labels: expected integers {logits.shape[:-1]}, got {labels.dtype} {labels.shape}"
    )


def as_per_example(name: str, x: ArrayLike, shape: tuple[int, ...]) -> jax.Array:
    """`x`, the argument called `name`, as a float32 scalar or one number per example."""
    x = jnp.asarray(x, jnp.float32)
    if x.shape not in ((), shape):
        raise ValueError(f"{name}: expected a scalar or shape {shape}, got {x.shape}")
    return x


def centred(logits: jax.Array) -> jax.Array:
    """`logits` with the largest of each row at 0: the same softmax, and digits to spare.

    What is subtracted is no part of the function, so it takes no part in its gradient.
    """
    return logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))


def is_soft(labels: jax.Array) -> bool:
    return bool(jnp.issubdtype(labels.dtype, jnp.floating))


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a @ b` in full float32; accelerators would round the factors to 8 bits."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def take_label(values: jax.Array, labels: jax.Array) -> jax.Array:
    """`values[i, labels[i]]`."""
    return jnp.take_along_axis(values, labels[..., None], axis=-1)[..., 0]


def expect(values: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean of `values` `[batch, num_classes]` under the labels: `sum_k y_k values_k`."""
    if not is_soft(labels):
        return take_label(values, labels)
    # A class with no label mass contributes nothing, even where its value is infinite (a masked class).
    return jnp.sum(jnp.where(labels == 0, 0.0, labels * values), axis=-1)


def correct_prediction(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Float32 `[batch]`: 1 where the first largest score is the (most likely) label."""
    if is_soft(labels):
        labels = jnp.argmax(labels, axis=-1)
    return (jnp.argmax(scores, axis=-1) == labels).astype(jnp.float32)


def as_weights(weights: ArrayLike | None, batch: tuple[int, ...]) -> jax.Array | None:
    """Float32 weights of that shape, or `None` for equal ones; there must be examples to weigh."""
    if 0 in batch:
        raise ValueError("there are no examples (n = 0)")
    if weights is None:
        return None
    weights = jnp.asarray(weights, jnp.float32)
    if weights.shape != batch:
        raise ValueError(f"weights: expected shape {batch}, got {weights.shape}")
    return weights


def weighted_mean(values: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """Mean over the batch in which a row of weight 0 does not exist."""
    weights = as_weights(weights, values.shape)
    if weights is None:
        return jnp.mean(values)
    # where, not a bare product: a padded row may hold anything, NaN included.
    return jnp.sum(jnp.where(weights == 0, 0.0, weights * values)) / jnp.sum(weights)
