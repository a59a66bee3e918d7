"""Blurring, scaling and sampling of one image `[h, w, c]`.

A linear operation along one axis is a matrix, made once with NumPy: a blur or a change of size is then
two small matrix products, which every backend does fast.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates


def along(image: jax.Array, rows: np.ndarray, columns: np.ndarray) -> jax.Array:
    """Return `rows @ image @ columns.T` for every channel; matrices `[new, old]`."""
    precision = jax.lax.Precision.HIGHEST
    half = jnp.einsum("ij,jkc->ikc", jnp.asarray(rows, image.dtype), image, precision=precision)
    return jnp.einsum("ikc,lk->ilc", half, jnp.asarray(columns, image.dtype), precision=precision)


def gaussian(
    image: jax.Array, sigma: float, truncate: float = 4.0, border: str = "edge"
) -> jax.Array:
    """Return an image after a Gaussian blur.

    Args:
      image: Image `[h, w, c]`.
      sigma: Standard deviation in pixels; 0 for none.
      truncate: Radius of the kernel, in standard deviations.
      border: Mode of `np.pad` beyond the edge of the image.

    Returns:
      `[h, w, c]`
    """
    return along(image, *(_gaussian_matrix(n, sigma, truncate, border) for n in image.shape[:2]))


def pixelated(image: jax.Array, share: float) -> jax.Array:
    """Return an image with only a share of the pixels along each axis, at its former size."""
    return along(image, *(_box_matrix(n, max(1, int(share * n))) for n in image.shape[:2]))


def zoomed(image: jax.Array, factor: float) -> jax.Array:
    """Return the center of an image, enlarged by a factor to the size of the image."""
    return along(image, *(_zoom_matrix(n, factor) for n in image.shape[:2]))


def filtered(image: jax.Array, kernel: np.ndarray) -> jax.Array:
    """Correlate with a kernel of odd size; the image is mirrored about its outermost pixels."""
    reach = kernel.shape[0] // 2
    height, width, _ = image.shape
    padded = jnp.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    taps = [(i, j) for i, j in np.ndindex(*kernel.shape) if kernel[i, j] != 0]
    if len(taps) <= 9:
        terms = [padded[i : i + height, j : j + width] * float(kernel[i, j]) for i, j in taps]
        return sum(terms[1:], terms[0])
    weights = jnp.asarray(kernel, image.dtype)[:, :, None, None]
    rows = padded.transpose(2, 0, 1)[..., None]
    out = jax.lax.conv_general_dilated(
        rows,
        weights,
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )
    return out[..., 0].transpose(1, 2, 0)


def streaked(image: jax.Array, radius: int, sigma: float, angle: jax.Array) -> jax.Array:
    """Return an image blurred along a direction in radians, as by motion.

    Pixel p becomes `Σ w_i image[p + round(i (sin, cos))]` for i = 0 … 2 radius, with
    `w_i ∝ exp(-i² / 2 sigma²)`; the edge of the image is repeated beyond it.
    """
    steps = np.arange(2 * radius + 1, dtype=np.float32)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    height, width, _ = image.shape
    y, x = jnp.arange(height, dtype=jnp.int32), jnp.arange(width, dtype=jnp.int32)

    def nearest(length: jax.Array) -> jax.Array:
        return jnp.ceil(length - 0.5).astype(jnp.int32)

    def add(total: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        weight, down, right = step
        rows, columns = jnp.clip(y + down, 0, height - 1), jnp.clip(x + right, 0, width - 1)
        return total + weight * image[rows][:, columns], None

    shares = jnp.asarray(weights / weights.sum(), image.dtype)
    offsets = (nearest(jnp.asarray(steps, image.dtype) * f(angle)) for f in (jnp.sin, jnp.cos))
    return jax.lax.scan(add, jnp.zeros_like(image), (shares, *offsets))[0]


def sampled(image: jax.Array, y: jax.Array, x: jax.Array, border: str) -> jax.Array:
    """Return the values at coordinates `[h, w]` between the pixels, by linear interpolation.

    `border` is `'mirror'` about the outermost pixels, or `'reflect'` about their outer edges.
    """

    def one(channel: jax.Array) -> jax.Array:
        return map_coordinates(channel, [y, x], order=1, mode=border)

    return jax.vmap(one, -1, -1)(image)


def plasma(key: jax.Array, image: jax.Array, decay: float) -> jax.Array:
    """Return random clouds from 0 to 1, `[h, w]` like the image: midpoint displacement on a torus.

    Each round halves the distance of the points and divides the size of the displacements by `decay`.
    """
    height, width, _ = image.shape
    rounds = math.ceil(math.log2(max(height, width)))
    # All noise at once: separate draws take long to compile.
    noise = jax.random.uniform(key, (4**rounds,), image.dtype, -1.0, 1.0)
    field, strength = jnp.zeros((1, 1), image.dtype), 100.0
    for i in range(rounds):
        n = 2**i
        # Before this round n² values have been used (the first of them by nothing).
        displacement = noise[n * n : 4 * n * n].reshape(3, n, n) * strength**2
        right, down = jnp.roll(field, -1, 1), jnp.roll(field, -1, 0)
        middle = (field + right + down + jnp.roll(down, -1, 1)) / 4 + displacement[0]
        between = (field + right + middle + jnp.roll(middle, 1, 0)) / 4 + displacement[1]
        below = (field + down + middle + jnp.roll(middle, 1, 1)) / 4 + displacement[2]
        top = jnp.stack([field, between], axis=-1).reshape(n, -1)
        bottom = jnp.stack([below, middle], axis=-1).reshape(n, -1)
        field = jnp.stack([top, bottom], axis=1).reshape(2 * n, -1)
        strength /= decay
    field = field - jnp.min(field)
    return (field / jnp.maximum(jnp.max(field), 1e-6))[:height, :width]


@functools.cache
def _gaussian_matrix(size: int, sigma: float, truncate: float, border: str) -> np.ndarray:
    """Return the matrix of a Gaussian blur along an axis."""
    reach = int(truncate * sigma + 0.5)
    if reach == 0:
        return np.eye(size)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    sources = np.pad(np.arange(size), reach, mode=border)  # type: ignore[call-overload]
    matrix = np.zeros((size, size))
    for i in range(size):
        np.add.at(matrix[i], sources[i : i + 2 * reach + 1], weights / weights.sum())
    return matrix


@functools.cache
def _box_matrix(size: int, coarse: int) -> np.ndarray:
    """Return the matrix that averages down to `coarse` pixels and repeats the nearest up again."""
    edges = np.arange(coarse + 1) * size / coarse
    centers = np.arange(size) + 0.5
    covers = (edges[:-1, None] < centers) & (centers <= edges[1:, None])
    nearest = np.floor(centers * coarse / size).astype(int)
    return (covers / covers.sum(1, keepdims=True))[nearest]


@functools.cache
def _zoom_matrix(size: int, factor: float) -> np.ndarray:
    """Return the matrix that stretches the central `size / factor` pixels to `size` or a little more.

    Ends map to ends, with linear interpolation; all lengths are rounded to whole pixels, and the result
    is cropped to its center.
    """
    cropped = math.ceil(size / factor)
    new = round(cropped * factor)
    positions = (np.arange(size) + (new - size) // 2) * (cropped - 1) / max(new - 1, 1)
    below = np.minimum(np.floor(positions).astype(int), max(cropped - 2, 0))
    matrix = np.zeros((size, size))
    rows, first, share = np.arange(size), (size - cropped) // 2, positions - below
    np.add.at(matrix, (rows, first + below), 1 - share)
    np.add.at(matrix, (rows, np.minimum(first + below + 1, size - 1)), share)
    return matrix
