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


def is_soft(labels: jax.Array) -> bool:
    return bool(jnp.issubdtype(labels.dtype, jnp.floating))


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


def weighted_mean(values: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """Mean over the batch in which a row of weight 0 does not exist."""
    if weights is None:
        return jnp.mean(values)
    weights = jnp.asarray(weights, jnp.float32)
    # where, not a bare product: a padded row may hold anything, NaN included.
    return jnp.sum(jnp.where(weights == 0, 0.0, weights * values)) / jnp.sum(weights)
