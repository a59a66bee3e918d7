"""Corruptions of test images, after the CIFAR-C benchmark (Hendrycks and Dietterich, 2019)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._hints import expected_one_of
from calib_jax.augment import _blur, _digital, _noise, _weather
from calib_jax.augment._images import as_unit, check_images, like

# A corruption is a function of (key, image `[h, w, c]` with values in [0, 1], severity); the result
# is clipped. To add one, write it and name it here. First the 15 of the benchmark, then its 4 extra.
_CORRUPTIONS: dict[str, Callable[[jax.Array, jax.Array, int], jax.Array]] = {
    function.__name__: function
    for function in (
        _noise.gaussian_noise, _noise.shot_noise, _noise.impulse_noise,
        _blur.defocus_blur, _blur.glass_blur, _blur.motion_blur, _blur.zoom_blur,
        _weather.snow, _weather.frost, _weather.fog, _weather.brightness,
        _digital.contrast, _digital.elastic_transform, _digital.pixelate, _digital.jpeg_compression,
        _noise.speckle_noise, _blur.gaussian_blur, _weather.spatter, _digital.saturate,
    )
}  # fmt: skip
CORRUPTIONS = tuple(_CORRUPTIONS)


def corrupt(key: jax.Array, images: ArrayLike, name: str, severity: int) -> jax.Array:
    """Images damaged as a camera, the weather or a file format would, each in its own way.

    What happens to an image depends on `key`, its place in the batch and nothing else. Strengths are
    those of the benchmark's edition for 32 x 32 pixels; lengths grow with the image. Published 8-bit
    sets cut off the fraction of a grey level; here it is rounded, so that zero-mean noise leaves the
    mean where it was. Where a corruption is not made as published, its own docstring says so.

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
        raise ValueError(f"name={name!r}: {expected_one_of(name, CORRUPTIONS)}")
    if not isinstance(severity, int) or not 1 <= severity <= 5:
        raise ValueError(f"severity={severity!r}: expected 1, 2, 3, 4 or 5")
    check_images(images)

    def one(key: jax.Array, image: jax.Array) -> jax.Array:
        return jnp.clip(_CORRUPTIONS[name](key, image, severity), 0.0, 1.0)

    made = jax.vmap(one)(jax.random.split(key, images.shape[0]), as_unit(images))
    return like(255 * made, images) if images.dtype == jnp.uint8 else made.astype(images.dtype)
