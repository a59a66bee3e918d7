"""Corruptions of test images, after the CIFAR-C benchmark (Hendrycks and Dietterich, 2019)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def corrupt(key: jax.Array, images: ArrayLike, name: str, severity: int) -> jax.Array:
    """Images damaged as a camera, the weather or a file format would, each in its own way.

    What happens to an image depends on `key`, its place in the batch and nothing else. Published
    8-bit sets cut off the fraction of a grey level; here it is rounded, so that zero-mean noise
    leaves the mean where it was.

    Args:
      key: random key.
      images: `[batch, h, w, c]`, uint8 or floats in [0, 1].
      name: one of `CORRUPTIONS`.
      severity: 1 (slight) to 5.

    Returns:
      Images of the same shape and type.
    """
    images = jnp.asarray(images)
    if name not in _CORRUPTIONS:
        raise ValueError(f"name={name!r}: expected one of {', '.join(CORRUPTIONS)}")
    if not isinstance(severity, int) or not 1 <= severity <= 5:
        raise ValueError(f"severity={severity!r}: expected 1, 2, 3, 4 or 5")
    if images.ndim != 4:
        raise ValueError(f"images: expected [batch, h, w, c], got shape {images.shape}")
    whole = images.dtype == jnp.uint8
    if not whole and not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(f"images: expected uint8 or floats in [0, 1], got {images.dtype}")

    def one(key: jax.Array, image: jax.Array) -> jax.Array:
        image = image.astype(jnp.float32) / (255 if whole else 1)
        image = jnp.clip(_CORRUPTIONS[name](key, image, severity), 0.0, 1.0)
        return (jnp.round(255 * image) if whole else image).astype(images.dtype)

    return jax.vmap(one)(jax.random.split(key, images.shape[0]), images)


def gaussian_noise(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Noise on every value: that of a sensor in low light. Levels of the 32x32 edition."""
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return image + std * jax.random.normal(key, image.shape)


# A corruption is a function of (key, image `[h, w, c]` with values in [0, 1], severity); the result
# is clipped. To add one, write it and name it here.
_CORRUPTIONS: dict[str, Callable[[jax.Array, jax.Array, int], jax.Array]] = {
    function.__name__: function for function in (gaussian_noise,)
}
CORRUPTIONS = tuple(_CORRUPTIONS)
