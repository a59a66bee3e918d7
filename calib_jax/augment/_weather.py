"""Corruptions by weather: `(key, image [h, w, c] in [0, 1], severity) -> image`, to be clipped."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._digital import grey
from calib_jax.augment._resample import gaussian, plasma, scale, streaked, zoomed_mean

_WATER, _MUD = (175 / 255, 238 / 255, 238 / 255), (63 / 255, 42 / 255, 20 / 255)
_ICE = (0.86, 0.94, 1.0)


def snow(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Flakes on their way down, before a scene that has lost its colours."""
    settings = (
        (0.1, 0.2, 1.0, 0.60, 8, 3, 0.95),
        (0.1, 0.2, 1.0, 0.50, 10, 4, 0.90),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.90),
        (0.25, 0.3, 2.25, 0.60, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.80),
    )
    mean, std, zoom, threshold, radius, sigma, kept = settings[severity - 1]
    layer_key, angle_key = jax.random.split(key)
    layer = mean + std * jax.random.normal(layer_key, (*image.shape[:2], 1))
    layer = zoomed_mean(layer, np.array([zoom]))
    layer = jnp.where(layer < threshold, 0.0, jnp.clip(layer, 0, 1))
    angle = jax.random.uniform(angle_key, minval=-3 * math.pi / 4, maxval=-math.pi / 4)
    layer = streaked(layer, radius * scale(image), sigma * scale(image), angle)
    whitened = jnp.maximum(image, 1.5 * grey(image) + 0.5)
    return kept * image + (1 - kept) * whitened + layer + layer[::-1, ::-1]


def frost(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Ice on the window.

    Published: parts of six photographs of frost. Here: crystals are the ridges of two clouds, so that
    nothing has to be shipped.
    """
    settings = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
    kept, share = settings[severity - 1]
    coarse, fine = (plasma(k, image, d) for k, d in zip(
        jax.random.split(key), (1.6, 1.25), strict=True
    ))  # fmt: skip
    ridges = (1 - jnp.abs(2 * fine - 1)) ** 2
    ice = (0.25 + 0.5 * coarse + 0.5 * ridges)[..., None]
    return kept * image + share * ice * _tint(_ICE, image)


def fog(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Clouds in between."""
    settings = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
    strength, decay = settings[severity - 1]
    top = jnp.max(image)
    image = image + strength * plasma(key, image, decay)[..., None]
    return image * top / (top + strength)


def brightness(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """More light of the same hue and saturation."""
    value = jnp.max(image, axis=-1, keepdims=True)
    more = jnp.clip(value + (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1], 0, 1)
    return jnp.where(value > 0, image * more / jnp.maximum(value, 1e-6), more)


def spatter(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Drops of water on the lens, or, from severity 4 on, of mud.

    Published: drops of water are shaded by their distance to an edge that a detector finds. Here: by how
    thick the layer is.
    """
    settings = (
        (0.62, 0.1, 0.7, 0.70, 0.5),
        (0.65, 0.1, 0.8, 0.70, 0.5),
        (0.65, 0.3, 1.0, 0.69, 0.5),
        (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    )
    mean, std, sigma, threshold, strength = settings[severity - 1]
    layer = mean + std * jax.random.normal(key, (*image.shape[:2], 1))
    layer = gaussian(layer, sigma * scale(image))
    wet = layer > threshold
    if severity <= 3:
        thickness = jnp.where(wet, layer - threshold, 0.0)
        thickness = thickness / jnp.maximum(jnp.max(thickness), 1e-6)
        drops = strength * jnp.where(wet, 0.4 + 0.6 * thickness, 0.0)
        return image + drops * _tint(_WATER, image)
    drops = gaussian(wet.astype(jnp.float32), strength * scale(image))
    drops = jnp.where(drops < 0.8, 0.0, drops)
    return image * (1 - drops) + drops * _tint(_MUD, image)


def _tint(colour: tuple[float, ...], image: jax.Array) -> jax.Array:
    """A colour, or its mean for an image that has other channels."""
    if image.shape[-1] == 3:
        return jnp.asarray(colour)
    return jnp.asarray(sum(colour) / 3)
