"""Corruptions by processing: `(key, image [h, w, c] in [0, 1], setting) -> image`, to be clipped.

A setting is an entry of `STRENGTHS`.

References:
  Hendrycks and Dietterich (2019), arXiv:1903.12261.
"""

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._resample import gaussian, pixelated, sampled

# The example tables of quantization in annex K of ISO/IEC 10918-1: brightness and color.
_LUMA = np.array([
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56], [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99],
])  # fmt: skip
_CHROMA = np.full((8, 8), 99)
_CHROMA[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
_GRAY = (0.299, 0.587, 0.114)


def contrast(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Move values toward the mean of each channel; the setting is what remains of the difference."""
    mean = jnp.mean(image, axis=(0, 1), keepdims=True)
    return mean + setting * (image - mean)


def saturate(key: jax.Array, image: jax.Array, setting: tuple[float, float]) -> jax.Array:
    """Scale the saturation and add an offset; an image of one channel stays as it is."""
    if image.shape[-1] != 3:
        return image
    factor, offset = setting
    value = jnp.max(image, axis=-1, keepdims=True)
    lack = value - image
    saturation = jnp.max(lack, axis=-1, keepdims=True) / jnp.maximum(value, 1e-6)
    new = jnp.clip(factor * saturation + offset, 0, 1)
    # A gray pixel becomes red when it is given a saturation, as by any conversion to HSV and back.
    red = value * new * jnp.asarray([[[0.0, 1.0, 1.0]]], image.dtype)
    return value - jnp.where(saturation > 0, lack * new / jnp.maximum(saturation, 1e-6), red)


def pixelate(key: jax.Array, image: jax.Array, setting: float) -> jax.Array:
    """Keep a share of the pixels along each axis; the setting is the share."""
    return _levels(255 * pixelated(image, setting)) / 255


def elastic_transform(
    key: jax.Array, image: jax.Array, setting: tuple[float, float, float]
) -> jax.Array:
    """Apply a random affine map, then a smooth random displacement.

    The corners of a triangle around the center move by at most `shift`; then every pixel is displaced
    by uniform noise, blurred with `sigma` and multiplied by `strength`. Setting: `strength`, `sigma` and
    `shift`, as shares of the shorter edge.
    """
    height, width, _ = image.shape
    size = min(height, width)
    strength, sigma, shift = (share * size for share in setting)
    point_key, field_key = jax.random.split(key)
    draws = jax.random.uniform(point_key, (3, 2), image.dtype, -1.0, 1.0)
    middle = (height // 2, width // 2)
    corners = (size // 3) * jnp.asarray([[1, 1], [-1, 1], [-1, -1]], image.dtype)  # (y, x)
    moved = corners + shift * draws
    # The inverse map, from the moved corners back to the corners: where a pixel comes from.
    affine = jnp.linalg.solve(jnp.concatenate([moved, jnp.ones((3, 1), image.dtype)], 1), corners)
    y, x = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    y, x = y.astype(image.dtype), x.astype(image.dtype)
    from_middle = y - middle[0], x - middle[1]
    rows, columns = (
        affine[0, i] * from_middle[0] + affine[1, i] * from_middle[1] + affine[2, i] + middle[i]
        for i in range(2)
    )
    image = sampled(image, rows, columns, "mirror")
    field = jax.random.uniform(field_key, (height, width, 2), image.dtype, -1.0, 1.0)
    field = strength * gaussian(field, sigma, 3.0, "symmetric")
    return sampled(image, y + field[..., 0], x + field[..., 1], "reflect")


def jpeg_compression(key: jax.Array, image: jax.Array, setting: int) -> jax.Array:
    """Compress as a JPEG file: quantize the cosines of 8x8 blocks, halve the color resolution.

    The setting is the quality.
    """
    if image.shape[-1] != 3:
        levels = _quantized(255 * image - 128, _table(_LUMA, setting), 8) + 128
        return _levels(levels) / 255
    red, green, blue = (255 * image[..., i : i + 1] for i in range(3))
    luma = _GRAY[0] * red + _GRAY[1] * green + _GRAY[2] * blue
    chroma = jnp.concatenate([(blue - luma) / 1.772, (red - luma) / 1.402], -1)
    height, width = image.shape[:2]
    luma = _levels(_quantized(_levels(luma) - 128, _table(_LUMA, setting), 8) + 128)
    padded = _padded(_levels(chroma + 128) - 128, 16)
    halved = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2, 2).mean((1, 3))
    # Means of four levels, rounded up from 3/4 and from 1/2 on, in alternate columns.
    turns = jnp.asarray(np.resize([0.25, 0.5], halved.shape[1]), halved.dtype)
    halved = jnp.floor(halved + turns[None, :, None])
    halved = _levels(_quantized(halved, _table(_CHROMA, setting), 8) + 128) - 128
    chroma = jnp.round(jax.image.resize(halved, padded.shape, "linear")[:height, :width])
    cb, cr = chroma[..., :1], chroma[..., 1:]
    red, blue = luma + 1.402 * cr, luma + 1.772 * cb
    green = (luma - _GRAY[0] * red - _GRAY[2] * blue) / _GRAY[1]
    return _levels(jnp.concatenate([red, green, blue], -1)) / 255


def gray(image: jax.Array) -> jax.Array:
    """Return the brightness `[h, w, 1]`."""
    if image.shape[-1] != 3:
        return jnp.mean(image, axis=-1, keepdims=True)
    return jnp.sum(image * jnp.asarray(_GRAY, image.dtype)[None, None], axis=-1, keepdims=True)


def _levels(values: jax.Array) -> jax.Array:
    """Return whole levels from 0 to 255, as in a file."""
    return jnp.clip(jnp.round(values), 0, 255)


def _table(table: np.ndarray, quality: int) -> np.ndarray:
    """Return the quantization table of a quality, by the convention of the Independent JPEG Group."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((table * percent + 50) // 100, 1, 255)


def _quantized(channels: jax.Array, table: np.ndarray, block: int) -> jax.Array:
    """Return channels `[h, w, c]` with their blocks' cosine coefficients rounded by the table."""
    height, width, _ = channels.shape
    padded = _padded(channels, block)
    rows, columns = padded.shape[0] // block, padded.shape[1] // block
    blocks = padded.reshape(rows, block, columns, block, -1)
    n = np.arange(block)
    cosines = np.sqrt(2 / block) * np.cos((2 * n + 1) * n[:, None] * np.pi / (2 * block))
    cosines[0] /= np.sqrt(2)
    basis = jnp.asarray(cosines, channels.dtype)
    exact = jax.lax.Precision.HIGHEST
    coefficients = jnp.einsum("ui,aibjc,vj->aubvc", basis, blocks, basis, precision=exact)
    steps = jnp.asarray(table, channels.dtype)[None, :, None, :, None]
    number = coefficients / steps
    # Halves, frequent in the means of blocks, are rounded away from 0.
    coefficients = steps * jnp.sign(number) * jnp.floor(jnp.abs(number) + 0.5 + 1e-4)
    blocks = jnp.einsum("ui,aubvc,vj->aibjc", basis, coefficients, basis, precision=exact)
    return blocks.reshape(padded.shape)[:height, :width]


def _padded(channels: jax.Array, multiple: int) -> jax.Array:
    """Return channels whose edges are repeated until both lengths are multiples of a number."""
    height, width, _ = channels.shape
    return jnp.pad(channels, ((0, -height % multiple), (0, -width % multiple), (0, 0)), mode="edge")
