"""The ten image operations of RandAug in one pass: any of them on any image of a batch.

There are no branches. A warp that moves nothing, a mask that keeps all bits, a threshold that no level
reaches, a range that is full already and a color factor of 1 leave an image unchanged: so every image
passes all of them, with the parameters of its operation. Only equalize needs a histogram, which is
computed for the images of that operation alone. Tone operations are arithmetic on the levels: a look-up
in a table of 256 entries for every value would cost more.

Rounding is Pillow's: coordinates have 16 fractional bits, fractions of a gray level are truncated.

References:
  Cubuk, Zoph, Shlens and Le (2020), arXiv:1909.13719.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

OPS = (
    "rotate", "shear_x", "shear_y", "translate_x", "translate_y",
    "posterize", "solarize", "autocontrast", "equalize", "color",
)  # fmt: skip
IDENTITY = len(OPS)  # the number of doing nothing

_ONE = 65536  # 1 with 16 fractional bits
_AT_A_TIME = 16  # images equalized together


def transform(
    images: jax.Array, op: jax.Array, magnitude: jax.Array, sign: jax.Array, fill: int
) -> jax.Array:
    """Return each image after its operation.

    Args:
      images: Images, uint8 `[batch, h, w, c]` with at most four channels.
      op: Indices into `OPS` `[batch]`; `IDENTITY` for none.
      magnitude: Magnitudes, float32 `[batch]`, 0 to 10.
      sign: Signs -1 or 1, float32 `[batch]`: the direction of a warp, more color or less.
      fill: Gray level of pixels from outside the image.

    Returns:
      Images, uint8 `[batch, h, w, c]`.
    """
    batch, height, width, channels = images.shape
    signed = sign * magnitude
    packed = _pack([images[..., i].reshape(batch, -1) for i in range(channels)])
    packed = _warp(packed, _matrix((height, width), op, signed), fill, (height, width))
    # The loop inside also keeps XLA from computing the warp again for each use of its result.
    packed = _equalize_some(packed, op == _number("equalize"), channels)
    packed = _pack(_color(_tone(packed, op, magnitude, channels), op, signed))
    return _bytes(packed)[..., :channels].reshape(batch, height, width, channels)


def _number(name: str) -> int:
    return OPS.index(name)


def _pack(levels: list[jax.Array]) -> jax.Array:
    """Return all channels of a pixel in one uint32 `[batch, h * w]`: one memory access for all."""
    shifted = [level.astype(jnp.uint32) << (8 * i) for i, level in enumerate(levels)]
    return functools.reduce(jnp.bitwise_or, shifted)


def _bytes(packed: jax.Array) -> jax.Array:
    """Return packed pixels as uint8 `[batch, h * w, 4]`, the first channel first."""
    return jax.lax.bitcast_convert_type(packed, jnp.uint8)


def _level(packed: jax.Array, channel: int) -> jax.Array:
    """Return one channel of packed pixels, int32 `[batch, h * w]`."""
    return ((packed >> (8 * channel)) & 255).astype(jnp.int32)


def _matrix(size: tuple[int, int], op: jax.Array, signed: jax.Array) -> tuple[jax.Array, ...]:
    """Return `(a, b, c, d, e, f)`, each `[batch]`, of the affine map of the warps.

    Pixel (x, y) comes from `(a x + b y + c, d x + e y + f)`.
    """
    height, width = size

    def of(name: str, value: jax.Array) -> jax.Array:
        return jnp.where(op == _number(name), value, 0.0)

    angle = of("rotate", jnp.deg2rad(3.0 * signed))
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    middle_x = width / 2 * (1 - cos) + height / 2 * sin
    middle_y = height / 2 * (1 - cos) - width / 2 * sin
    # At most a third of the image, in whole pixels.
    right = of("translate_x", jnp.trunc(signed * width / 30))
    down = of("translate_y", jnp.trunc(signed * height / 30))
    shear_x, shear_y = (of(name, 0.03 * signed) for name in ("shear_x", "shear_y"))
    return cos, shear_x - sin, middle_x + right, sin + shear_y, cos, middle_y + down


def _warp(
    packed: jax.Array, matrix: tuple[jax.Array, ...], fill: int, size: tuple[int, int]
) -> jax.Array:
    """Return for each pixel the nearest one to its source."""
    height, width = size
    a, b, c, d, e, f = matrix

    def fixed(value: jax.Array) -> jax.Array:
        return jnp.floor(value * _ONE + 0.5).astype(jnp.int32)[:, None, None]

    x = jnp.arange(width, dtype=jnp.int32)[None, None, :]
    y = jnp.arange(height, dtype=jnp.int32)[None, :, None]
    # Coordinates of a pixel are those of its center.
    from_x = (fixed(c + (a + b) / 2) + fixed(a) * x + fixed(b) * y) >> 16
    from_y = (fixed(f + (d + e) / 2) + fixed(d) * x + fixed(e) * y) >> 16
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    outside = height * width  # the index of a pixel that is appended
    source = jnp.where(inside, from_y * width + from_x, outside).reshape(packed.shape)
    padded = jnp.pad(packed, ((0, 0), (0, 1)), constant_values=np.uint32(fill * 0x01010101))
    return jnp.take_along_axis(padded, source, axis=1, mode="promise_in_bounds")


def _tone(packed: jax.Array, op: jax.Array, magnitude: jax.Array, channels: int) -> list[jax.Array]:
    """Posterize, solarize and autocontrast; return each channel, int32 `[batch, h * w]`."""

    def of(name: str, value: jax.Array, neutral: int) -> jax.Array:
        return jnp.where(op == _number(name), value.astype(jnp.int32), neutral)[:, None]

    # At least one bit is left: without any, all images would be the same.
    bits_lost = jnp.minimum(4 + jnp.trunc(4 * magnitude / 10), 7).astype(jnp.int32)
    mask = of("posterize", -(1 << bits_lost), -1)
    threshold = of("solarize", 256 - jnp.trunc(256 * magnitude / 10), 256)
    # Rows of 64 bytes: CPUs reduce along them fast.
    rows = jnp.pad(packed, ((0, 0), (0, -packed.shape[1] % 16)), mode="edge")
    values = _bytes(rows).reshape(packed.shape[0], -1, 64)
    low, high = (
        reduce(reduce(values, axis=1).reshape(-1, 16, 4), axis=1).astype(jnp.int32)
        for reduce in (jnp.min, jnp.max)
    )
    stretch = (op == _number("autocontrast"))[:, None] & (low < high)
    low, high = jnp.where(stretch, low, 0), jnp.where(stretch, high, 255)
    levels = []
    for i in range(channels):
        x = _level(packed, i) & mask
        x = jnp.where(x < threshold, x, 255 - x)
        levels.append(_stretched(x, low[:, i : i + 1], high[:, i : i + 1]))
    return levels


def _stretched(x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Return `255 (x - low) / (high - low)` in whole numbers, equal to Pillow's.

    Pillow computes in float64, where some whole quotients fall short and lose a level.
    """
    width = high - low
    index, masks = _short()
    step, bits = jnp.asarray(_STEPS)[width], jnp.asarray(masks)[jnp.asarray(index)[low, high]]
    numerator = 255 * (x - low)
    quotient = _quotient(numerator, width)
    number = jnp.minimum(_quotient(quotient, step), 31)
    short = (quotient * width == numerator) & ((bits >> number) & 1 == 1)
    return jnp.where(short, quotient - 1, quotient)


def _quotient(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """Divide integers `[batch, h * w]` up to 65,025 by integers `[batch, 1]` up to 255, rounding down.

    By a product with the reciprocal, one per image. Exact for quotients up to 255 however it is
    compiled: with the half they are at least 1/510 away from a whole number, and rounding moves them
    by less than 1e-4.
    """
    half = numerator.astype(jnp.float32) + 0.5
    return (half * (1 / denominator.astype(jnp.float32))).astype(jnp.int32)


# The whole numbers among `255 n / width` are the multiples of `_STEPS[width]`; [0] is never used.
_STEPS = np.array([1, *(255 // math.gcd(255, width) for width in range(1, 256))], np.int32)


@functools.cache
def _short() -> tuple[np.ndarray, np.ndarray]:
    """Return which whole quotients fall short in float64: `masks[index[low, high]]` has a bit for each.

    Bit k stands for k times the smallest whole quotient.

    Returns:
      `index` uint8 `[256, 256]`, `masks` int32 `[distinct]`.
    """
    bits = np.zeros((256, 256), np.int32)
    for width in range(1, 256):
        low = np.arange(256 - width)[:, None]
        number = np.arange(1, min(255 // _STEPS[width], 30) + 1)
        scale = 255.0 / width
        x = low + number * width * _STEPS[width] // 255
        short = np.trunc(x * scale + -low * scale) < number * _STEPS[width]
        bits[low[:, 0], low[:, 0] + width] = (short << number).sum(1)
    masks, index = np.unique(bits, return_inverse=True)
    return index.reshape(bits.shape).astype(np.uint8), masks


def _color(levels: list[jax.Array], op: jax.Array, signed: jax.Array) -> list[jax.Array]:
    """Return levels moved away from gray or toward it; an image without colors stays as it is."""
    if len(levels) != 3:
        return levels
    factor = jnp.where(op == _number("color"), 1 + 0.09 * signed, 1.0)[:, None]
    red, green, blue = levels
    gray = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    levels, gray = [x.astype(jnp.float32) for x in levels], gray.astype(jnp.float32)
    # Rounded to 1/4096 first, so that whole products do not fall short.
    differences = [jnp.round(factor * (x - gray) * 4096) / 4096 for x in levels]
    return [jnp.clip(gray + x, 0, 255).astype(jnp.int32) for x in differences]


def _equalize_some(packed: jax.Array, wanted: jax.Array, channels: int) -> jax.Array:
    """Equalize the images that are `wanted`, one block of images at a time."""
    batch = packed.shape[0]
    block = min(_AT_A_TIME, batch)
    count = jnp.sum(wanted, dtype=jnp.int32)
    order = jnp.argsort(~wanted, stable=True).astype(jnp.int32)
    order = jnp.where(
        jnp.arange(batch, dtype=jnp.int32) < count, order, batch
    )  # `batch` is no image
    order = jnp.pad(order, (0, -batch % block), constant_values=batch)

    def one_block(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, packed = carry
        rows = jax.lax.dynamic_slice(order, (first,), (block,))
        some = packed.at[rows].get(mode="clip")
        some = _pack([_equalize(_level(some, i)) for i in range(channels)])
        return first + block, packed.at[rows].set(some, mode="drop")

    start = jnp.zeros((), jnp.int32), packed
    return jax.lax.while_loop(lambda carry: carry[0] < count, one_block, start)[1]


def _equalize(levels: jax.Array) -> jax.Array:
    """Return levels `[batch, h * w]` of one channel after histogram equalization."""
    batch, number = levels.shape
    first = 256 * jnp.arange(batch, dtype=jnp.int32)[:, None]
    counts = jnp.zeros(batch * 256, jnp.int32).at[first + levels].add(1).reshape(batch, 256)
    highest = jnp.max(levels, axis=1, keepdims=True)
    step = (number - jnp.take_along_axis(counts, highest, axis=1)) // 255
    # A cumulative sum as a matrix product, which is faster on every backend.
    less = jnp.triu(jnp.ones((256, 256), jnp.float32), 1)
    below = jnp.matmul(counts.astype(jnp.float32), less, precision=jax.lax.Precision.HIGHEST)
    half, whole = (s.astype(jnp.float32) for s in (step // 2, jnp.maximum(step, 1)))
    table = jnp.clip(jnp.floor((half + below) / whole), 0, 255).astype(jnp.int32)
    table = jnp.where(step == 0, jnp.arange(256, dtype=jnp.int32)[None], table)
    return table.reshape(-1).at[first + levels].get(mode="promise_in_bounds")
