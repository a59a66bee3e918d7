"""Corruptions by noise: `(key, image [h, w, c] in [0, 1], setting) -> image`, to be clipped.

A setting is an entry of `STRENGTHS`.
"""

import jax
import jax.numpy as jnp


def gaussian_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Noise on every value, with a standard deviation: that of a sensor in low light."""
    return image + setting * jax.random.normal(key, image.shape, image.dtype)


def shot_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """As if so few photons had made the image that they can be counted: so many where it is white."""
    return _poisson(key, setting * image) / setting


def impulse_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """A share of the values all black or all white."""
    draw = jax.random.uniform(key, image.shape, image.dtype)
    return jnp.where(draw < setting / 2, 0.0, jnp.where(draw < setting, 1.0, image))


def speckle_noise(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Noise that is stronger where there is light: its standard deviation where it is white."""
    return image * (1 + setting * jax.random.normal(key, image.shape, image.dtype))


_FEW = 12.0  # below this rate numbers are counted out, above it they are almost normal
_TERMS = 32


def _poisson(key: jax.Array, rate: jax.Array) -> jax.Array:
    """Random counts without the rejections of `jax.random.poisson`, which take a hundred times longer.

    Above a rate of 12 a normal number with the skewness of the counts, rounded: right to 1 % of the
    standard deviation.
    """
    few_key, many_key = jax.random.split(key)
    draw = jax.random.uniform(few_key, rate.shape, rate.dtype)
    few = jnp.minimum(rate, _FEW)

    term = total = jnp.exp(-few)
    counted = jnp.zeros_like(rate)
    for i in range(1, _TERMS):  # in one pass over the image, which a loop of XLA's would not be
        counted = counted + (draw >= total).astype(rate.dtype)
        term = term * few / i
        total = total + term
    z = jax.random.normal(many_key, rate.shape, rate.dtype)
    normal = jnp.round(rate + jnp.sqrt(rate) * z + (z * z - 1) / 6)
    return jnp.where(rate < _FEW, counted, jnp.maximum(normal, 0))
