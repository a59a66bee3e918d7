"""Corruptions by processing: `(key, image [h, w, c] in [0, 1], severity) -> image`, to be clipped."""

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._resample import gaussian, pixelated, sampled

# What ISO/IEC 10918-1 gives as examples of quantisation, in its annex K: brightness and colour.
_LUMA = np.array([
    [16, 11, 10, 16, 24, 40, 51, 61], [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56], [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77], [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101], [72, 92, 95, 98, 112, 100, 103, 99],
])  # fmt: skip
_CHROMA = np.full((8, 8), 99)
_CHROMA[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
_GREY = (0.299, 0.587, 0.114)


def contrast(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = jnp.mean(image, axis=(0, 1), keepdims=True)
    return mean + factor * (image - mean)


def saturate(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Less colour at severities 1 and 2, more at 3 to 5; an image of one channel stays as it is."""
    if image.shape[-1] != 3:
        return image
    factor, offset = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    value = jnp.max(image, axis=-1, keepdims=True)
    lack = value - image
    saturation = jnp.max(lack, axis=-1, keepdims=True) / jnp.maximum(value, 1e-6)
    new = jnp.clip(factor * saturation + offset, 0, 1)
    # What has no hue is red when it is given a saturation, as by any conversion to HSV and back.
    red = value * new * jnp.asarray([0.0, 1.0, 1.0])
    return value - jnp.where(saturation > 0, lack * new / jnp.maximum(saturation, 1e-6), red)


def pixelate(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    return pixelated(image, (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1])


def elastic_transform(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """Stretched by a random affine map, then bent; lengths are shares of the image.

    Published: two interpolations, one after the other. Here: one, at the places where both lead.
    """
    settings = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05))
    strength, sigma, stretch = (*settings, (0.1, 0.03, 0.03))[severity - 1]
    height, width, _ = image.shape
    size = min(height, width)
    point_key, field_key = jax.random.split(key)
    # Three corners of a triangle about the middle move, and the plane with them.
    third = size / 3
    corners = jnp.asarray([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]) * third
    moved = corners + stretch * size * jax.random.uniform(
        point_key, (3, 2), minval=-1.0, maxval=1.0
    )
    ones = jnp.ones((3, 1))
    affine = jnp.linalg.solve(jnp.concatenate([corners, ones], 1), moved)
    field = jax.random.uniform(field_key, (height, width, 2), minval=-1.0, maxval=1.0)
    field = strength * size * gaussian(field, sigma * size)
    y, x = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    middle = jnp.asarray([(height - 1) / 2, (width - 1) / 2])
    places = jnp.stack([y, x], -1) + field - middle
    places = places @ affine[:2] + affine[2] + middle
    return sampled(image, places[..., 0], places[..., 1])


def jpeg_compression(key: jax.Array, image: jax.Array, severity: int) -> jax.Array:
    """What a JPEG file keeps: quantised cosines of 8x8 blocks, colours at half the resolution."""
    quality = (80, 65, 58, 50, 40)[severity - 1]
    if image.shape[-1] != 3:
        return _quantised(255 * image - 128, _table(_LUMA, quality), 8) / 255 + 128 / 255
    red, green, blue = (255 * image[..., i : i + 1] for i in range(3))
    luma = _GREY[0] * red + _GREY[1] * green + _GREY[2] * blue
    chroma = jnp.concatenate([(blue - luma) / 1.772, (red - luma) / 1.402], -1)
    height, width = image.shape[:2]
    luma = _quantised(luma - 128, _table(_LUMA, quality), 8) + 128
    padded = _padded(chroma, 16)
    halved = padded.reshape(padded.shape[0] // 2, 2, padded.shape[1] // 2, 2, 2).mean((1, 3))
    halved = _quantised(halved, _table(_CHROMA, quality), 8)
    chroma = jax.image.resize(halved, padded.shape, "linear")[:height, :width]
    cb, cr = chroma[..., :1], chroma[..., 1:]
    red, blue = luma + 1.402 * cr, luma + 1.772 * cb
    green = (luma - _GREY[0] * red - _GREY[2] * blue) / _GREY[1]
    return jnp.concatenate([red, green, blue], -1) / 255


def grey(image: jax.Array) -> jax.Array:
    """Brightness `[h, w, 1]`."""
    if image.shape[-1] != 3:
        return jnp.mean(image, axis=-1, keepdims=True)
    return jnp.sum(image * jnp.asarray(_GREY), axis=-1, keepdims=True)


def _table(table: np.ndarray, quality: int) -> np.ndarray:
    """The steps of quantisation for a quality, by the convention of the Independent JPEG Group."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((table * percent + 50) // 100, 1, 255)


def _quantised(channels: jax.Array, table: np.ndarray, block: int) -> jax.Array:
    """`[h, w, c]` after its blocks' cosine coefficients have been rounded to multiples of the table."""
    height, width, _ = channels.shape
    padded = _padded(channels, block)
    rows, columns = padded.shape[0] // block, padded.shape[1] // block
    blocks = padded.reshape(rows, block, columns, block, -1)
    n = np.arange(block)
    cosines = np.sqrt(2 / block) * np.cos((2 * n + 1) * n[:, None] * np.pi / (2 * block))
    cosines[0] /= np.sqrt(2)
    basis = jnp.asarray(cosines, jnp.float32)
    exact = jax.lax.Precision.HIGHEST
    parts = jnp.einsum("ui,aibjc,vj->aubvc", basis, blocks, basis, precision=exact)
    steps = jnp.asarray(table, jnp.float32)[None, :, None, :, None]
    parts = steps * jnp.round(parts / steps)
    blocks = jnp.einsum("ui,aubvc,vj->aibjc", basis, parts, basis, precision=exact)
    return blocks.reshape(padded.shape)[:height, :width]


def _padded(channels: jax.Array, multiple: int) -> jax.Array:
    height, width, _ = channels.shape
    return jnp.pad(channels, ((0, -height % multiple), (0, -width % multiple), (0, 0)), mode="edge")
