"""Corruptions by blur: `(key, image [h, w, c] in [0, 1], severity) -> image`, to be clipped.

Lengths are those for images of 32 pixels and grow with the image.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._resample import filtered, gaussian, scale, streaked, zoomed_mean


def gaussian_blur(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    return gaussian(image, (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1] * scale(image))


def defocus_blur(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """A lens that makes a disc of every point."""
    settings = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
    radius, soft = (x * scale(image) for x in settings[severity - 1])
    return filtered(image, _disc(radius, soft))


def glass_blur(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Seen through frosted glass: pixels change places with their neighbours.

    Published: they are swapped one after the other. Here: each is taken from a random neighbour, all at
    once.
    """
    settings = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))
    sigma, rounds = settings[severity - 1]
    reach = max(1, round(scale(image)))
    height, width, _ = image.shape
    y, x = jnp.arange(height)[:, None], jnp.arange(width)
    image = gaussian(image, sigma * scale(image))
    for i in range(rounds):
        shift = jax.random.randint(
            jax.random.fold_in(key, i), (2, height, width), -reach, reach + 1
        )
        rows = jnp.clip(y + shift[0], 0, height - 1)
        image = image[rows, jnp.clip(x + shift[1], 0, width - 1)]
    return gaussian(image, sigma * scale(image))


def motion_blur(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """A camera that moved, at most 45 degrees from level."""
    settings = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))
    radius, sigma = (x * scale(image) for x in settings[severity - 1])
    angle = jax.random.uniform(key, minval=-math.pi / 4, maxval=math.pi / 4)
    return streaked(image, radius, sigma, angle)


def zoom_blur(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """A camera that came nearer: by up to 5, 10, 15, 20 or 25 %."""
    return zoomed_mean(image, 1 + 0.01 * np.arange(5 * severity + 1))


def _disc(radius: float, soft: float) -> np.ndarray:
    """The image of a point: a disc with its edge softened by a Gaussian."""
    reach = max(1, int(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disc = (x**2 + y**2 <= radius**2).astype(float)
    edge = max(1, round(1.5 * soft))
    weights = np.exp(-(np.arange(-edge, edge + 1) ** 2) / (2 * soft**2))
    disc = np.pad(disc, edge)
    for axis in (0, 1):
        disc = np.apply_along_axis(lambda line: np.convolve(line, weights, "same"), axis, disc)
    kernel = np.where(disc < 1e-4 * disc.sum(), 0, disc)
    return kernel / kernel.sum()
