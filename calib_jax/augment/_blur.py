"""Corruptions by blur: `(key, image [h, w, c] in [0, 1], setting) -> image`, to be clipped.

A setting is a row of `STRENGTHS`; lengths are in pixels.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._resample import filtered, gaussian, streaked, zoomed

# A chain goes on with a probability of at most 0.43: one in 10^23 is longer than 2^6.
_DOUBLINGS = 6


def gaussian_blur(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Blur with a standard deviation."""
    return gaussian(image, setting)


def defocus_blur(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """A lens that makes of every point a disc with a radius, softened by a standard deviation."""
    return filtered(image, _disc(*setting))


def glass_blur(key: jax.Array, image: jax.Array, setting: tuple[float, int, int]) -> jax.Array:
    """Seen through frosted glass: blurred, shuffled, and blurred again.

    From the last pixel to the first each takes the value of one that is -reach … reach - 1 rows and
    columns away, which a pixel before it may have changed. Such a chain of pixels is followed to its
    end by doubling.
    """
    sigma, reach, rounds = setting
    height, width, channels = image.shape
    image = gaussian(image, sigma)
    y, x = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    place = y * width + x
    moves = (y > reach) & (y <= height - reach) & (x > reach) & (x <= width - reach)
    for i in range(rounds):
        shift = jax.random.randint(jax.random.fold_in(key, i), (2, height, width), -reach, reach)
        source = jnp.where(moves, place + shift[0] * width + shift[1], place).ravel()
        # The source's own source, where that pixel comes earlier: it has its new value by then.
        earlier = jnp.where(source > jnp.arange(height * width), source, height * width)
        end = jnp.append(jnp.where(moves.ravel(), source, jnp.arange(height * width)), 0)
        following = jnp.append(earlier, height * width)
        for _ in range(_DOUBLINGS if reach > 1 else 0):
            end = jnp.where(following < height * width, end[following], end)
            following = following[following]
        image = image.reshape(-1, channels)[end[:-1]].reshape(image.shape)
    return gaussian(image, sigma)


def motion_blur(key: jax.Array, image: jax.Array, setting: tuple[int, float]) -> jax.Array:
    """A camera that moved, at most 45 degrees from level: radius and standard deviation."""
    angle = jax.random.uniform(key, (), image.dtype, -math.pi / 4, math.pi / 4)
    return streaked(image, *setting, angle)


def zoom_blur(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """A camera that came nearer, in steps, by less than a factor: the mean of what it saw.

    The image as it is counts once more, beside the first step.
    """
    end, step = setting
    factors = np.arange(1, end, step)
    seen = [zoomed(image, factor) for factor in factors]
    return sum(seen, image) / (len(seen) + 1)


def _disc(radius: float, soft: float) -> np.ndarray:
    """The image of a point: a disc, its edge softened by a small Gaussian.

    The Gaussian mirrors at the edge of the kernel, so that large discs do not add up to 1 quite.
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
