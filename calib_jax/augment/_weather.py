"""Corruptions by weather: `(key, image [h, w, c] in [0, 1], setting) -> image`, to be clipped.

A setting is a row of `STRENGTHS`; lengths are in pixels.

References:
  Hendrycks and Dietterich (2019), arXiv:1903.12261.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._digital import gray
from calib_jax.augment._drops import shading
from calib_jax.augment._resample import gaussian, plasma, streaked, zoomed

_COLORS = {"water": (175 / 255, 238 / 255, 238 / 255), "mud": (63 / 255, 42 / 255, 20 / 255)}

# Kinds of ice: color (levels of red, green, blue), standard deviation of the mean level between
# windows, and of the levels within one. Chosen so that images get as much brighter as behind the frost
# that was photographed for the published sets.
_ICE_COLORS = np.array([
    (77, 148, 164), (198, 202, 212), (198, 202, 212), (144, 159, 172), (101, 113, 125),
])  # fmt: skip
_ICE_LEVELS = np.array([(10, 14.5), (7, 18.5), (7, 18.5), (8, 25), (13, 33)])


def snow(key: jax.Array, image: jax.Array, setting: tuple[float, ...]) -> jax.Array:
    """Add streaks of snow to an image that has lost some of its colors.

    Setting: mean and standard deviation of noise, the factor it is enlarged by, the level from which
    on it is a flake, radius and standard deviation of a flake's streak, the weight of the image.
    """
    mean, std, zoom, threshold, radius, sigma, kept = setting
    layer_key, angle_key = jax.random.split(key)
    layer = mean + std * jax.random.normal(layer_key, (*image.shape[:2], 1), image.dtype)
    layer = zoomed(layer, zoom)
    layer = jnp.where(layer < threshold, 0.0, jnp.clip(layer, 0, 1))
    angle = jax.random.uniform(angle_key, (), image.dtype, -3 * math.pi / 4, -math.pi / 4)
    layer = streaked(layer, int(radius), sigma, angle)
    whitened = jnp.maximum(image, 1.5 * gray(image) + 0.5)
    return kept * image + (1 - kept) * whitened + layer + layer[::-1, ::-1]


def frost(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """Add frost; the setting is the weights of the image and of the frost.

    Published: crops of five photographs of frost. Here: one of five kinds of ice, whose crystals are the
    ridges of a random cloud, so that no image has to be shipped.
    """
    kept, share = setting
    return kept * image + share * ice(key, image)


def ice(key: jax.Array, image: jax.Array) -> jax.Array:
    """Return random frost like an image, from 0 to 1."""
    kind_key, level_key, *cloud_keys = jax.random.split(key, 4)
    kind = jax.random.randint(kind_key, (), 0, len(_ICE_COLORS))
    between, within = jnp.asarray(_ICE_LEVELS, image.dtype)[kind]
    coarse, fine = (plasma(k, image, d) for k, d in zip(cloud_keys, (1.6, 1.25), strict=True))
    crystals = coarse + (1 - jnp.abs(2 * fine - 1)) ** 2
    crystals = (crystals - jnp.mean(crystals)) / jnp.maximum(jnp.std(crystals), 1e-6)
    level = between * jax.random.normal(level_key, (), image.dtype) + within * crystals
    color = jnp.asarray(_ICE_COLORS, image.dtype)[kind]
    if image.shape[-1] != 3:
        color = jnp.mean(color, keepdims=True)
    return jnp.clip((color[None, None] + level[..., None]) / 255, 0, 1)


def fog(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """Add clouds; the setting is their strength, and the decay of their displacements."""
    strength, decay = setting
    top = jnp.max(image)
    image = image + strength * plasma(key, image, decay)[..., None]
    return image * top / (top + strength)


def brightness(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Add light of the same hue and saturation; the setting is how much."""
    value = jnp.max(image, axis=-1, keepdims=True)
    more = jnp.clip(value + setting, 0, 1)
    return jnp.where(value > 0, image * more / jnp.maximum(value, 1e-6), more)


def spatter(
    key: jax.Array, image: jax.Array, setting: tuple[float, float, float, float, float, str]
) -> jax.Array:
    """Add drops of water or of mud.

    Setting: mean, standard deviation and blur of noise, the level from which on it is liquid, then for
    water the strength of its color, for mud the blur of its edge, then which of them it is.
    """
    mean, std, sigma, threshold, strength, liquid = setting
    layer = mean + std * jax.random.normal(key, (*image.shape[:2], 1), image.dtype)
    layer = gaussian(layer, sigma)
    color = jnp.asarray(_COLORS[liquid], image.dtype)[None, None]
    if image.shape[-1] != 3:
        color = jnp.mean(color, keepdims=True)
    if liquid == "water":
        levels = jnp.floor(255 * jnp.where(layer < threshold, 0.0, jnp.clip(layer, 0, 1)))
        drops = levels * shading(levels)
        drops = strength * drops / jnp.maximum(jnp.max(drops), 1e-6)
        return image + drops * color
    drops = gaussian((layer > threshold).astype(image.dtype), strength)
    drops = jnp.where(drops < 0.8, 0.0, drops)
    return image * (1 - drops) + drops * color
