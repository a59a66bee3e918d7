"""The standard augmentation of small images, on the device."""

import jax
import jax.numpy as jnp

from calib_jax.augment._images import check_images


def pad_crop(key: jax.Array, images: jax.Array, padding: int) -> jax.Array:
    """Pad each image with zeros and crop it back at a random position.

    Args:
      key: Random key.
      images: Images `[batch, h, w, c]`, uint8 or floats.
      padding: Number of pixels to pad on each side.

    References:
      He, Zhang, Ren and Sun (2016), arXiv:1512.03385, section 4.2.

    >>> images = np.zeros((2, 4, 4, 3), np.uint8)
    >>> augment.pad_crop(jax.random.key(0), images, padding=1).shape
    (2, 4, 4, 3)
    """
    images = jnp.asarray(images)
    check_images(images)
    batch, height, width, _ = images.shape
    padded = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    corner = jax.random.randint(key, (batch, 2), 0, 2 * padding + 1, jnp.int32)
    rows = corner[:, :1] + jnp.arange(height, dtype=jnp.int32)[None]
    columns = corner[:, 1:] + jnp.arange(width, dtype=jnp.int32)[None]
    return padded[jnp.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]


def flip(key: jax.Array, images: jax.Array) -> jax.Array:
    """Mirror each image left to right with probability 1/2.

    Args:
      key: Random key.
      images: Images `[batch, h, w, c]`, uint8 or floats.

    >>> images = np.zeros((2, 4, 4, 3), np.uint8)
    >>> augment.flip(jax.random.key(0), images).shape
    (2, 4, 4, 3)
    """
    images = jnp.asarray(images)
    check_images(images)
    mirrored = jax.random.bernoulli(key, shape=(images.shape[0], 1, 1, 1))
    return jnp.where(mirrored, images[:, :, ::-1], images)
