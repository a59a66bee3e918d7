"""Corruptions by blur: `(key, image [h, w, c] in [0, 1], setting) -> image`, to be clipped.

A setting is a row of `STRENGTHS`; lengths are in pixels.

References:
  Hendrycks and Dietterich (2019), arXiv:1903.12261.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._resample import filtered, gaussian, streaked, zoomed

# A chain continues with a probability of at most 0.43: one in 10^23 is longer than 2^6.
_DOUBLINGS = 6


def gaussian_blur(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Blur by a Gaussian; the setting is its standard deviation."""
    return gaussian(image, setting)


def defocus_blur(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """Blur by a disc; the setting is its radius, and the standard deviation of its edge."""
    return filtered(image, _disc(*setting))


def glass_blur(key: jax.Array, image: jax.Array, setting: tuple[float, int, int]) -> jax.Array:
    """Blur, shuffle nearby pixels, and blur again, as frosted glass does.

    From the last pixel to the first, each takes the value of one that is -reach … reach - 1 rows and
    columns away, which may have changed already. Such a chain of pixels is followed to its
    end by pointer doubling. Setting: standard deviation, reach, number of rounds.
    """
    sigma, reach, rounds = setting
    height, width, channels = image.shape
    image = gaussian(image, sigma)
    y, x = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    position = y * width + x
    moves = (y > reach) & (y <= height - reach) & (x > reach) & (x <= width - reach)
    for i in range(rounds):
        shift = jax.random.randint(jax.random.fold_in(key, i), (2, height, width), -reach, reach)
        source = jnp.where(moves, position + shift[0] * width + shift[1], position).ravel()
        # Pixels are visited from the last to the first: a later source already has its new value.
        earlier = jnp.where(source > jnp.arange(height * width), source, height * width)
        end = jnp.append(jnp.where(moves.ravel(), source, jnp.arange(height * width)), 0)
        following = jnp.append(earlier, height * width)
        for _ in range(_DOUBLINGS if reach > 1 else 0):
            end = jnp.where(following < height * width, end[following], end)
            following = following[following]
        image = image.reshape(-1, channels)[end[:-1]].reshape(image.shape)
    return gaussian(image, sigma)


def motion_blur(key: jax.Array, image: jax.Array, setting: tuple[int, float]) -> jax.Array:
    """Blur along a line at most 45 degrees from level; setting: radius and standard deviation."""
    angle = jax.random.uniform(key, (), image.dtype, -math.pi / 4, math.pi / 4)
    return streaked(image, *setting, angle)


def zoom_blur(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """Return the mean of zoomed images; setting: the factor they stay below, and the step.

    As published, the unchanged image counts twice: as itself and as the first step.
    """
    end, step = setting
    factors = np.arange(1, end, step)
    zooms = [zoomed(image, factor) for factor in factors]
    return sum(zooms, image) / (len(zooms) + 1)


def _disc(radius: float, soft: float) -> np.ndarray:
    """Return a disc-shaped kernel whose edge is smoothed by a small Gaussian.

    The Gaussian mirrors at the edge of the kernel, so that large discs do not sum to exactly 1.
    """
    reach, edge = (8, 1) if radius <= 8 else (int(radius), 2)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disc = (x**2 + y**2 <= radius**2).astype(float)
    weights = np.exp(-(np.arange(-edge, edge + 1) ** 2) / (2 * soft**2))
    weights /= weights.sum()
    disc = np.pad(disc / disc.sum(), edge, mode="reflect")
    for axis in (0, 1):
        disc = np.apply_along_axis(lambda line: np.convolve(line, weights, "valid"), axis, disc)
    used = np.flatnonzero(disc.max(0) > 1e-9)
    return disc[used[0] : used[-1] + 1, used[0] : used[-1] + 1]
