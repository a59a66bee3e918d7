"""Shading of water drops by the distance to their edges, for the corruption `spatter`.

The liquid is a layer `[h, w, 1]` of whole levels from 0 (dry) to 255.

References:
  Hendrycks and Dietterich (2019), arXiv:1903.12261.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.augment._resample import filtered

_WEAK, _STRONG = 50, 150  # thresholds of the edge detector
_FARTHEST = 20  # from an edge, in pixels
_LIGHT = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])  # from the upper left
_MEAN = np.full((3, 3), 1 / 9)


def shading(levels: jax.Array) -> jax.Array:
    """Return the levels of light `[h, w, 1]`, 0 to 255.

    Distances to the edges are smoothed, equalized, lit from one side and smoothed again.
    """
    distance = jnp.minimum(_distance(_edges(levels[..., 0])), _FARTHEST).astype(levels.dtype)
    steps = jnp.floor(filtered(distance[..., None], _MEAN) + 1e-4)
    lit = jnp.clip(filtered(_equalized(steps), _LIGHT), 0, 255)
    return jnp.round(filtered(lit, _MEAN))


def _edges(levels: jax.Array) -> jax.Array:
    """Return where Canny's edge detector finds an edge, bools `[h, w]`."""
    padded = jnp.pad(levels, 1, mode="edge")
    smooth = (1.0, 2.0, 1.0)

    def at(values: jax.Array, down: int, right: int) -> jax.Array:
        """Return the neighbor in a direction, of values with a border of one pixel."""
        height, width = values.shape[0] - 2, values.shape[1] - 2
        return values[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    offsets = (-1, 0, 1)
    dx = sum(smooth[i + 1] * (at(padded, i, 1) - at(padded, i, -1)) for i in offsets)
    dy = sum(smooth[i + 1] * (at(padded, 1, i) - at(padded, -1, i)) for i in offsets)
    slope = jnp.abs(dx) + jnp.abs(dy)
    around = jnp.pad(slope, 1)
    # A ridge of the slope, across its direction: level, upright, or one of the two diagonals.
    level = (slope > at(around, 0, -1)) & (slope >= at(around, 0, 1))
    upright = (slope > at(around, -1, 0)) & (slope >= at(around, 1, 0))
    falling = (slope > at(around, -1, -1)) & (slope > at(around, 1, 1))
    rising = (slope > at(around, -1, 1)) & (slope > at(around, 1, -1))
    diagonal = jnp.where(dx * dy < 0, rising, falling)
    tangent = math.tan(math.pi / 8)
    ridge = jnp.where(
        jnp.abs(dy) < tangent * jnp.abs(dx),
        level,
        jnp.where(jnp.abs(dy) > (tangent + 2) * jnp.abs(dx), upright, diagonal),
    )
    possible = ridge & (slope > _WEAK)

    def grow(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        edges, _ = carry
        near = jax.lax.reduce_window(edges, False, jnp.logical_or, (3, 3), (1, 1), ((1, 1), (1, 1)))
        return possible & near, edges

    def has_grown(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(carry[0] != carry[1])

    start = possible & (slope > _STRONG)
    edges, _ = jax.lax.while_loop(has_grown, grow, (start, jnp.zeros_like(start)))
    return edges


def _distance(edges: jax.Array) -> jax.Array:
    """Return the distance `[h, w]` of each pixel to the nearest edge, exact up to 20.

    It is the length of a path of straight steps (1), diagonal ones (1.4) and knight's moves (2.1969).
    """
    height, width = edges.shape
    x = jnp.arange(width, dtype=jnp.int32)[None]
    far = height + width
    before = jax.lax.cummax(jnp.where(edges, x, -far), axis=1)
    after = jax.lax.cummin(jnp.where(edges, x, width + far), axis=1, reverse=True)
    sideways = jnp.minimum(x - before, after - x).astype(jnp.float32)  # within the row
    padded = jnp.pad(sideways, ((_FARTHEST, _FARTHEST), (0, 0)), constant_values=far)

    def length(long: jax.Array, short: jax.Array) -> jax.Array:
        straight = 2.1969 * short + (long - 2 * short)
        diagonal = 2.1969 * (long - short) + 1.4 * (2 * short - long)
        return jnp.where(long >= 2 * short, straight, diagonal)

    def nearer(nearest: jax.Array, rows: jax.Array) -> tuple[jax.Array, None]:
        across = jax.lax.dynamic_slice(padded, (_FARTHEST + rows, jnp.int32(0)), (height, width))
        down = jnp.abs(rows).astype(jnp.float32)
        path = length(jnp.maximum(across, down), jnp.minimum(across, down))
        return jnp.minimum(nearest, path), None

    rows = jnp.arange(-_FARTHEST, _FARTHEST + 1, dtype=jnp.int32)
    return jax.lax.scan(nearer, jnp.full_like(sideways, far), rows)[0]


def _equalized(steps: jax.Array) -> jax.Array:
    """Return whole distances from 0 to 20 after histogram equalization to 0 … 255."""
    counts = jnp.sum(
        steps == jnp.arange(_FARTHEST + 1, dtype=steps.dtype)[None, None],
        axis=(0, 1),
        dtype=jnp.int32,
    )
    below = jnp.cumsum(counts)
    lowest = counts[jnp.argmax(counts > 0)]
    others = jnp.maximum(steps.size - lowest, 1)
    share = (below - lowest).astype(steps.dtype) / others.astype(steps.dtype)
    table = jnp.round(255 * share)
    is_constant = lowest == steps.size
    return jnp.where(is_constant, steps, table[steps.astype(jnp.int32)])
