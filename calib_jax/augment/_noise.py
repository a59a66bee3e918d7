"""Corruptions by noise: `(key, image [h, w, c] in [0, 1], setting) -> image`, to be clipped.

A setting is an entry of `STRENGTHS`.

References:
  Hendrycks and Dietterich (2019), arXiv:1903.12261.
"""

import jax
import jax.numpy as jnp


def gaussian_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Add Gaussian noise; the setting is its standard deviation."""
    return image + setting * jax.random.normal(key, image.shape, image.dtype)


def shot_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Add Poisson noise; the setting is the number of photons where the image is white."""
    return _poisson(key, setting * image) / setting


def impulse_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Set a share of the values to black or white; the setting is the share."""
    draw = jax.random.uniform(key, image.shape, image.dtype)
    return jnp.where(draw < setting / 2, 0.0, jnp.where(draw < setting, 1.0, image))


def speckle_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Add noise proportional to the values; the setting is its standard deviation at white."""
    return image * (1 + setting * jax.random.normal(key, image.shape, image.dtype))


_FEW = 12.0  # rate from which on counts are drawn from a normal distribution
_TERMS = 32


def _poisson(key: jax.Array, rate: jax.Array) -> jax.Array:
    """Draw Poisson counts without rejections, a hundred times faster than `jax.random.poisson`.

    Below a rate of 12 by inverting the distribution function; above, a normal number with the skewness of
    the counts, rounded: right to 1 % of the standard deviation.
    """
    few_key, many_key = jax.random.split(key)
    draw = jax.random.uniform(few_key, rate.shape, rate.dtype)
    few = jnp.minimum(rate, _FEW)

    term = total = jnp.exp(-few)
    counted = jnp.zeros_like(rate)
    for i in range(1, _TERMS):  # unrolled: one pass over the image, unlike a loop of XLA
        counted = counted + (draw >= total).astype(rate.dtype)
        term = term * few / i
        total = total + term
    z = jax.random.normal(many_key, rate.shape, rate.dtype)
    normal = jnp.round(rate + jnp.sqrt(rate) * z + (z * z - 1) / 6)
    return jnp.where(rate < _FEW, counted, jnp.maximum(normal, 0))
