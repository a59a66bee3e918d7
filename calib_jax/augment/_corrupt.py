"""Corruptions of test images, as in CIFAR-10-C and ImageNet-C."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._hints import check_choice
from calib_jax.augment import _blur, _digital, _noise, _weather
from calib_jax.augment._images import as_unit, check_images, like
from calib_jax.augment._strengths import STRENGTHS, nearest_edition

# A corruption is a function of (key, image `[h, w, c]` with values in [0, 1], its setting in
# `STRENGTHS`); the result is clipped. To add one, write it, name it here and give its settings there.
# First the 15 of the benchmark, then its 4 extra.
_CORRUPTIONS: dict[str, Callable[[jax.Array, jax.Array, Any], jax.Array]] = {
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
_TOLERANCE = 1e-3  # of a level, for whole levels that float32 falls short of


def corrupt(key: jax.Array, images: ArrayLike, name: str, severity: int) -> jax.Array:
    """Corrupt images as a camera, the weather or a file format would, each with other random numbers.

    The random numbers of an image depend on `key` and on its position in the batch. Strengths are the
    published ones for the size of the images: those of CIFAR-10-C for 32 pixels, Tiny-ImageNet-C for 64
    and ImageNet-C for 224, and for other sizes those of the nearest of the three (by the longer edge;
    `corruption_strengths` names it). As in those sets, values are truncated to whole levels; their
    larger images were also stored as JPEG files, which is not done here. Where a corruption differs from
    the published one, its docstring says so.

    Args:
      key: Random key.
      images: Images `[batch, h, w, c]`, uint8 or floats in [0, 1].
      name: Name of the corruption, one of `CORRUPTIONS`.
      severity: Severity, 1 (slight) to 5.

    Returns:
      Images of the same shape and type.

    References:
      Hendrycks and Dietterich (2019), arXiv:1903.12261.

    >>> images = np.full((1, 32, 32, 3), 100, np.uint8)
    >>> int(augment.corrupt(jax.random.key(0), images, "brightness", 5)[0, 0, 0, 0])
    176
    """
    images = jnp.asarray(images)
    check_choice("name", name, CORRUPTIONS)
    if not isinstance(severity, int) or not 1 <= severity <= 5:
        raise ValueError(f"severity={severity!r}: expected 1, 2, 3, 4 or 5")
    check_images(images)
    setting = STRENGTHS[name][nearest_edition(*images.shape[1:3])][severity - 1]

    def one(key: jax.Array, image: jax.Array) -> jax.Array:
        return jnp.clip(_CORRUPTIONS[name](key, image, setting), 0.0, 1.0)

    corrupted = jax.vmap(one)(jax.random.split(key, images.shape[0]), as_unit(images))
    if images.dtype != jnp.uint8:
        return corrupted.astype(images.dtype)
    return like(jnp.floor(255 * corrupted + _TOLERANCE), images)
