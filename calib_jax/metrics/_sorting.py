"""Sorting floats as integers.

XLA's float comparison has to order NaN and signed zeros, which makes a CPU sort of floats four times
slower than one of integers. The bits of a float, with the order of the negative half turned round,
sort the same way; NaN comes last.
"""

import jax
import jax.numpy as jnp

from calib_jax import _cpu
from calib_jax._arrays import as_floats


def sort_floats(x: jax.Array) -> jax.Array:
    """`x` `[n]` in ascending order."""
    return _from_key(jnp.sort(_to_key(x)))


def argsort_floats(x: jax.Array) -> jax.Array:
    """Indices `[n]` that sort `x` in ascending order; ties keep their order."""
    keys = _to_key(x)
    return _cpu.argsort(keys) if keys.dtype == jnp.int32 else jnp.argsort(keys)


def _to_key(x: jax.Array) -> jax.Array:
    x = as_floats(x) + 0.0  # -0.0 + 0.0 = 0.0
    x = jnp.where(jnp.isnan(x), jnp.nan, x)  # one with its sign bit set would come first
    integers = jnp.int64 if x.dtype == jnp.float64 else jnp.int32
    return _turn_negatives(jax.lax.bitcast_convert_type(x, integers))


def _from_key(key: jax.Array) -> jax.Array:
    floats = jnp.float64 if key.dtype == jnp.int64 else jnp.float32
    return jax.lax.bitcast_convert_type(_turn_negatives(key), floats)


def _turn_negatives(bits: jax.Array) -> jax.Array:
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def tie_bounds(ascending: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For each entry of a sorted `[n]`: where its run of equal values begins and ends (exclusive)."""
    n = ascending.shape[0]
    position = jnp.arange(n)
    changes = ascending[1:] != ascending[:-1]
    begins = jnp.concatenate([jnp.ones(1, bool), changes])
    ends = jnp.concatenate([changes, jnp.ones(1, bool)])
    first = jax.lax.cummax(jnp.where(begins, position, 0))
    last = jax.lax.cummin(jnp.where(ends, position + 1, n), reverse=True)
    return first, last


def running_sums(column: jax.Array) -> jax.Array:
    """Sums of the first 0, 1, ..., n entries of `[n]`: `[n + 1]`."""
    return jnp.pad(jnp.cumsum(column), (1, 0))


def tie_means(ascending: jax.Array, values: jax.Array, weights: jax.Array) -> jax.Array:
    """`values` `[n]` with each run of equal `ascending` entries replaced by its weighted mean."""
    first, last = tie_bounds(ascending)
    total, weight = (running_sums(c) for c in (weights * values, weights))
    in_run = weight[last] - weight[first]
    mean = (total[last] - total[first]) / jnp.where(in_run > 0, in_run, 1.0)
    return jnp.where(last - first > 1, mean, values)
