"""Ten image operations as one pass: any of them on any image of a batch.

Nothing branches. A warp that moves nothing, a mask that keeps all bits, a threshold that no level
reaches, a range that is full already and a color factor of 1 leave an image as it is: so every image
goes through all of them, with the numbers of its operation. Only equalize has to count, and counts
for those images that ask for it. What a tone operation does to a level is arithmetic here; a table of
256 entries would have to be looked up for every value, which costs more than to compute it.

Rounding is Pillow's: coordinates have 16 binary places, fractions of a grey level are cut off.
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

_ONE = 65536  # 1 with 16 binary places
_AT_A_TIME = 16  # images equalized together


def transform(
    images: jax.Array, op: jax.Array, magnitude: jax.Array, sign: jax.Array, fill: int
) -> jax.Array:
    """Each image under its own operation.

    Args:
      images: uint8 `[batch, h, w, c]` with at most four channels.
      op: numbers in `OPS` `[batch]`; `IDENTITY` for none.
      magnitude: float32 `[batch]`, 0 to 10.
      sign: float32 `[batch]`, -1 or 1: the direction of a warp, more color or less.
      fill: grey level of what a warp brings into view.

    Returns:
      uint8 `[batch, h, w, c]`
    """
    batch, height, width, channels = images.shape
    signed = sign * magnitude
    packed = _pack([images[..., i].reshape(batch, -1) for i in range(channels)])
    packed = _warp(packed, _matrix((height, width), op, signed), fill, (height, width))
    # A loop between the two also keeps XLA from doing the warp again for each use of its result.
    packed = _equalize_some(packed, op == _number("equalize"), channels)
    packed = _pack(_color(_tone(packed, op, magnitude, channels), op, signed))
    return _bytes(packed)[..., :channels].reshape(batch, height, width, channels)


def _number(name: str) -> int:
    return OPS.index(name)


def _pack(levels: list[jax.Array]) -> jax.Array:
    """All channels of a pixel in one number, uint32 `[batch, h * w]`: one access to memory for all."""
    shifted = [level.astype(jnp.uint32) << (8 * i) for i, level in enumerate(levels)]
    return functools.reduce(jnp.bitwise_or, shifted)


def _bytes(packed: jax.Array) -> jax.Array:
    """uint8 `[batch, h * w, 4]`, the first channel first."""
    return jax.lax.bitcast_convert_type(packed, jnp.uint8)


def _level(packed: jax.Array, channel: int) -> jax.Array:
    """One channel, int32 `[batch, h * w]`."""
    return ((packed >> (8 * channel)) & 255).astype(jnp.int32)


def _matrix(size: tuple[int, int], op: jax.Array, signed: jax.Array) -> tuple[jax.Array, ...]:
    """`(a, b, c, d, e, f)`, each `[batch]`: pixel (x, y) comes from `(a x + b y + c, d x + e y + f)`."""
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
    """For each pixel the nearest one to where it comes from."""
    height, width = size
    a, b, c, d, e, f = matrix

    def fixed(value: jax.Array) -> jax.Array:
        return jnp.floor(value * _ONE + 0.5).astype(jnp.int32)[:, None, None]

    x = jnp.arange(width, dtype=jnp.int32)[None, None, :]
    y = jnp.arange(height, dtype=jnp.int32)[None, :, None]
    # A pixel is where its middle is.
    from_x = (fixed(c + (a + b) / 2) + fixed(a) * x + fixed(b) * y) >> 16
    from_y = (fixed(f + (d + e) / 2) + fixed(d) * x + fixed(e) * y) >> 16
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    outside = height * width  # the place of one more pixel
    place = jnp.where(inside, from_y * width + from_x, outside).reshape(packed.shape)
    padded = jnp.pad(packed, ((0, 0), (0, 1)), constant_values=np.uint32(fill * 0x01010101))
    return jnp.take_along_axis(padded, place, axis=1, mode="promise_in_bounds")


def _tone(packed: jax.Array, op: jax.Array, magnitude: jax.Array, channels: int) -> list[jax.Array]:
    """Posterize, solarize and autocontrast: levels of each channel, int32 `[batch, h * w]`."""

    def of(name: str, value: jax.Array, neutral: int) -> jax.Array:
        return jnp.where(op == _number(name), value.astype(jnp.int32), neutral)[:, None]

    # A bit is left: without any, nothing could be told of an image.
    bits_lost = jnp.minimum(4 + jnp.trunc(4 * magnitude / 10), 7).astype(jnp.int32)
    mask = of("posterize", -(1 << bits_lost), -1)
    threshold = of("solarize", 256 - jnp.trunc(256 * magnitude / 10), 256)
    # Rows of 64 bytes: a reduction along them, one after the other, is what processors do fast.
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
    """`255 (x - low) / (high - low)` in whole numbers, as Pillow has it.

    Pillow computes in float64, where some quotients that are whole fall short and lose a level.
    """
    width = high - low
    index, masks = _short()
    step, bits = jnp.asarray(_STEPS)[width], jnp.asarray(masks)[jnp.asarray(index)[low, high]]
    numerator = 255 * (x - low)
    quotient = _quotient(numerator, width)
    number = jnp.minimum(_quotient(quotient, step), 31)
    short = (quotient * width == numerator) & ((bits >> number) & 1 == 1)
    return quotient - short.astype(jnp.int32)


def _quotient(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
    """Divide integers `[batch, h * w]` up to 65,025 by ones `[batch, 1]` up to 255, rounding down.

    By a product with the reciprocal, of which there is one per image. Exact for quotients up to 255,
    however it is compiled: with the half they are 1/510 away from a whole number at least, and rounding
    moves them by less than 1e-4.
    """
    half = numerator.astype(jnp.float32) + 0.5
    return (half * (1 / denominator.astype(jnp.float32))).astype(jnp.int32)


# Of `255 n / width`, whole numbers are the multiples of this; [0] is never used.
_STEPS = np.array([1, *(255 // math.gcd(255, width) for width in range(1, 256))], np.int32)


@functools.cache
def _short() -> tuple[np.ndarray, np.ndarray]:
    """Which whole quotients fall short in float64: `masks[index[low, high]]` has a bit for each.

    Bit k stands for k times the smallest whole quotient.

    Returns:
      `index` uint8 `[256, 256]`, `masks` int32 `[distinct]`
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
    """Away from grey or towards it; an image without colors stays as it is."""
    if len(levels) != 3:
        return levels
    factor = jnp.where(op == _number("color"), 1 + 0.09 * signed, 1.0)[:, None]
    red, green, blue = levels
    grey = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    levels, neutral = [x.astype(jnp.float32) for x in levels], grey.astype(jnp.float32)
    # Rounded to 1/4096 first: a product that is whole must not fall short of itself.
    away = [jnp.round(factor * (x - neutral) * 4096) / 4096 for x in levels]
    return [jnp.clip(neutral + x, 0, 255).astype(jnp.int32) for x in away]


def _equalize_some(packed: jax.Array, wanted: jax.Array, channels: int) -> jax.Array:
    """Those images that are `wanted` equalized, a block at a time; as many blocks as that takes."""
    batch = packed.shape[0]
    block = min(_AT_A_TIME, batch)
    count = jnp.sum(wanted, dtype=jnp.int32)
    order = jnp.argsort(~wanted, stable=True).astype(jnp.int32)
    order = jnp.where(jnp.arange(batch, dtype=jnp.int32) < count, order, batch)  # which is no image
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
    """Levels `[batch, h * w]` of one channel, spread until each is as frequent as can be."""
    batch, number = levels.shape
    first = 256 * jnp.arange(batch, dtype=jnp.int32)[:, None]
    counts = jnp.zeros(batch * 256, jnp.int32).at[first + levels].add(1).reshape(batch, 256)
    highest = jnp.max(levels, axis=1, keepdims=True)
    step = (number - jnp.take_along_axis(counts, highest, axis=1)) // 255
    # A sum of all that is less as a matrix product: a running sum is slow on every backend.
    less = jnp.triu(jnp.ones((256, 256), jnp.float32), 1)
    below = jnp.matmul(counts.astype(jnp.float32), less, precision=jax.lax.Precision.HIGHEST)
    half, whole = (s.astype(jnp.float32) for s in (step // 2, jnp.maximum(step, 1)))
    table = jnp.clip(jnp.floor((half + below) / whole), 0, 255).astype(jnp.int32)
    table = jnp.where(step == 0, jnp.arange(256, dtype=jnp.int32)[None], table)
    return table.reshape(-1).at[first + levels].get(mode="promise_in_bounds")
