"""Conversion of images: bytes, or floats in [0, 1]."""

import jax
import jax.numpy as jnp

from calib_jax._arrays import check_not_empty, float_dtype


def check_images(images: jax.Array) -> None:
    """Raise a ValueError unless images are `[batch >= 1, h, w, c]`, uint8 or floats."""
    if images.ndim != 4:
        raise ValueError(f"images: expected [batch, h, w, c], got shape {images.shape}")
    if images.dtype != jnp.uint8 and not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(f"images: expected uint8 or floats in [0, 1], got {images.dtype}")
    check_not_empty(images.shape[:1])


def as_bytes(images: jax.Array) -> jax.Array:
    """Return images as uint8, for operations on gray levels."""
    check_images(images)
    if not 1 <= images.shape[-1] <= 4:
        raise ValueError(f"images: expected 1 to 4 channels, got shape {images.shape}")
    if images.dtype == jnp.uint8:
        return images
    return jnp.round(255 * images.astype(jnp.float32)).astype(jnp.uint8)


def as_unit(images: jax.Array) -> jax.Array:
    """Return images as float32 (float64 if they are) in [0, 1]."""
    check_images(images)
    values = images.astype(float_dtype(images))
    return values / 255 if images.dtype == jnp.uint8 else values


def like(levels: jax.Array, images: jax.Array) -> jax.Array:
    """Return gray levels from 0 to 255, whole or not, as images of the type of `images`."""
    if images.dtype == jnp.uint8:
        return levels if levels.dtype == jnp.uint8 else jnp.round(levels).astype(jnp.uint8)
    return (levels.astype(float_dtype(images)) / 255).astype(images.dtype)
