"""The standard augmentation of small images, on the device."""

import jax
import jax.numpy as jnp


def pad_crop(key: jax.Array, images: jax.Array, padding: int) -> jax.Array:
    """Each image `[batch, h, w, c]` padded with zeros and cropped back at a place of its own."""
    batch, height, width, _ = images.shape
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    corner = jax.random.randint(key, (batch, 2), 0, 2 * padding + 1)
    rows = corner[:, :1] + jnp.arange(height)
    columns = corner[:, 1:] + jnp.arange(width)
    return padded[jnp.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]


def flip(key: jax.Array, images: jax.Array) -> jax.Array:
    """Each image mirrored left to right with probability 1/2."""
    mirrored = jax.random.bernoulli(key, shape=(images.shape[0], 1, 1, 1))
    return jnp.where(mirrored, images[:, :, ::-1], images)
