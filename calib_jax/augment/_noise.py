"""Corruptions by noise: `(key, image [h, w, c] in [0, 1], severity) -> image`, to be clipped."""

import jax
import jax.numpy as jnp


def gaussian_noise(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Noise on every value: that of a sensor in low light."""
    std = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return image + std * jax.random.normal(key, image.shape)


def shot_noise(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """As if so few photons had made the image that they can be counted."""
    photons = (500, 250, 100, 75, 50)[severity - 1]
    return _poisson(key, photons * image) / photons


def impulse_noise(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Some values all black or all white."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    draw = jax.random.uniform(key, image.shape)
    return jnp.where(draw < share / 2, 0.0, jnp.where(draw < share, 1.0, image))


def speckle_noise(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Noise that is stronger where there is light."""
    std = (0.06, 0.10, 0.12, 0.16, 0.20)[severity - 1]
    return image * (1 + std * jax.random.normal(key, image.shape))


_FEW = 12.0  # below this rate numbers are counted out, above it they are almost normal
_TERMS = 32


def _poisson(key: jax.Array, rate: jax.Array) -> jax.Array:
    """Random counts without the rejections of `jax.random.poisson`, which take a hundred times longer.

    Above a rate of 12 a normal number with the skewness of the counts, rounded: right to 1 % of the
    standard deviation.
    """
    few_key, many_key = jax.random.split(key)
    draw = jax.random.uniform(few_key, rate.shape)
    few = jnp.minimum(rate, _FEW)

    term = total = jnp.exp(-few)
    counted = jnp.zeros_like(rate)
    for i in range(1, _TERMS):  # in one pass over the image, which a loop of XLA's would not be
        counted = counted + (draw >= total)
        term = term * few / i
        total = total + term
    z = jax.random.normal(many_key, rate.shape)
    normal = jnp.round(rate + jnp.sqrt(rate) * z + (z * z - 1) / 6)
    return jnp.where(rate < _FEW, counted, jnp.maximum(normal, 0))
