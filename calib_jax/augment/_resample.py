"""Blurring, scaling and bending of one image `[h, w, c]`.

What does the same to every image along one axis is a matrix, made once with NumPy: a blur or a change of
size is then two small matrix products, which every backend does fast.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates


def scale(image: jax.Array) -> float:
    """How much larger an image is than the 32 pixels that lengths are given for."""
    return max(image.shape[:2]) / 32


def along(image: jax.Array, rows: np.ndarray, columns: np.ndarray) -> jax.Array:
    """`rows @ image @ columns.T` for every channel; matrices `[new, old]`."""
    precision = jax.lax.Precision.HIGHEST
    half = jnp.einsum("ij,jkc->ikc", jnp.asarray(rows, jnp.float32), image, precision=precision)
    return jnp.einsum("ikc,lk->ilc", half, jnp.asarray(columns, jnp.float32), precision=precision)


def gaussian(image: jax.Array, sigma: float) -> jax.Array:
    """Gaussian blur with the image's edge going on beyond it."""
    return along(image, *(_gaussian_matrix(n, sigma) for n in image.shape[:2]))


def pixelated(image: jax.Array, share: float) -> jax.Array:
    """As if there were only `share` as many pixels along each axis."""
    return along(image, *(_box_matrix(n, max(1, int(share * n))) for n in image.shape[:2]))


def zoomed_mean(image: jax.Array, factors: np.ndarray) -> jax.Array:
    """The mean of the image enlarged about its middle by each of the factors."""
    parts = [along(image, *(_zoom_matrix(n, f) for n in image.shape[:2])) for f in factors]
    return sum(parts[1:], parts[0]) / len(parts)


def filtered(image: jax.Array, kernel: np.ndarray) -> jax.Array:
    """Convolution with a symmetric kernel of odd size, mirrored at the edge."""
    reach = kernel.shape[0] // 2
    height, width, _ = image.shape
    padded = jnp.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="symmetric")
    taps = [(i, j) for i, j in np.ndindex(*kernel.shape) if kernel[i, j] != 0]
    if len(taps) <= 121:
        parts = [padded[i : i + height, j : j + width] * kernel[i, j] for i, j in taps]
        return sum(parts[1:], parts[0])
    weights = jnp.asarray(kernel, jnp.float32)[:, :, None, None]
    rows = padded.transpose(2, 0, 1)[..., None]
    out = jax.lax.conv_general_dilated(
        rows, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out[..., 0].transpose(1, 2, 0)


def streaked(image: jax.Array, radius: float, sigma: float, angle: jax.Array) -> jax.Array:
    """Blurred along a line from each pixel, in a direction in radians, as by motion."""
    steps = 2 * math.ceil(radius) + 1
    weights = np.exp(-(np.arange(steps) ** 2) / (2 * sigma**2))
    height, width, _ = image.shape
    y, x = jnp.arange(height), jnp.arange(width)
    parts = []
    for i, weight in enumerate(weights / weights.sum()):
        if weight < 1e-4:
            break
        rows = jnp.clip(y + jnp.round(i * jnp.sin(angle)).astype(jnp.int32), 0, height - 1)
        columns = jnp.clip(x + jnp.round(i * jnp.cos(angle)).astype(jnp.int32), 0, width - 1)
        parts.append(weight * image[rows][:, columns])
    return sum(parts[1:], parts[0])


def sampled(image: jax.Array, y: jax.Array, x: jax.Array) -> jax.Array:
    """Values at places `[h, w]` between the pixels, mirrored at the edge."""

    def one(channel: jax.Array) -> jax.Array:
        return map_coordinates(channel, [y, x], order=1, mode="reflect")

    return jax.vmap(one, -1, -1)(image)


def plasma(key: jax.Array, image: jax.Array, decay: float) -> jax.Array:
    """Clouds from 0 to 1, `[h, w]` like the image: midpoint displacement on a torus.

    Each round halves the distance of the points and divides the size of the displacements by `decay`.
    """
    height, width, _ = image.shape
    rounds = math.ceil(math.log2(max(height, width)))
    # All noise at once: a draw for each round and place takes the compiler a while.
    noise = jax.random.uniform(key, (4**rounds,), minval=-1.0, maxval=1.0)
    field, strength = jnp.zeros((1, 1)), 100.0
    for i in range(rounds):
        n = 2**i
        # Before this round n² values have been used (the first of them by nothing).
        here = noise[n * n : 4 * n * n].reshape(3, n, n) * strength**2
        right, down = jnp.roll(field, -1, 1), jnp.roll(field, -1, 0)
        middle = (field + right + down + jnp.roll(down, -1, 1)) / 4 + here[0]
        between = (field + right + middle + jnp.roll(middle, 1, 0)) / 4 + here[1]
        below = (field + down + middle + jnp.roll(middle, 1, 1)) / 4 + here[2]
        top = jnp.stack([field, between], axis=-1).reshape(n, -1)
        bottom = jnp.stack([below, middle], axis=-1).reshape(n, -1)
        field = jnp.stack([top, bottom], axis=1).reshape(2 * n, -1)
        strength /= decay
    field = field - jnp.min(field)
    return (field / jnp.maximum(jnp.max(field), 1e-6))[:height, :width]


@functools.cache
def _gaussian_matrix(size: int, sigma: float) -> np.ndarray:
    if sigma <= 0:
        return np.eye(size)
    reach = max(1, math.ceil(4 * sigma))
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    matrix = np.zeros((size, size))
    for i in range(size):
        places = np.clip(np.arange(i - reach, i + reach + 1), 0, size - 1)
        np.add.at(matrix[i], places, weights / weights.sum())
    return matrix


@functools.cache
def _box_matrix(size: int, coarse: int) -> np.ndarray:
    """Down to `coarse` pixels and up again, each a mean over what it covers."""

    def resize(old: int, new: int) -> np.ndarray:
        matrix = np.zeros((new, old))
        for i in range(new):
            # A pixel of the old image counts by its middle, as in Pillow; never none of them.
            low, high = i * old / new, (i + 1) * old / new
            if new > old:
                low = high = (low + high) / 2
                matrix[i, min(old - 1, int(low))] = 1
                continue
            inside = [j for j in range(old) if low <= j + 0.5 < high]
            matrix[i, inside] = 1 / len(inside)
        return matrix

    return resize(coarse, size) @ resize(size, coarse)


@functools.cache
def _zoom_matrix(size: int, factor: float) -> np.ndarray:
    """Linear interpolation at places that lie closer to the middle by `factor`."""
    middle = (size - 1) / 2
    places = middle + (np.arange(size) - middle) / factor
    below = np.clip(np.floor(places).astype(int), 0, size - 2) if size > 1 else np.zeros(1, int)
    matrix = np.zeros((size, size))
    rows, part = np.arange(size), places - below
    np.add.at(matrix, (rows, below), 1 - part)
    np.add.at(matrix, (rows, np.minimum(below + 1, size - 1)), part)
    return matrix
