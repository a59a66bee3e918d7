"""Sorting floats as integers.

XLA's float comparison has to order NaN and signed zeros, which makes a CPU sort of floats four times
slower than one of integers. The bits of a float, with the order of the negative half turned round,
sort the same way; NaN comes last.
"""

import jax
import jax.numpy as jnp


def sort_floats(x: jax.Array) -> jax.Array:
    """`x` `[n]` in ascending order."""
    return _from_key(jnp.sort(_to_key(x)))


def argsort_floats(x: jax.Array) -> jax.Array:
    """Indices `[n]` that sort `x` in ascending order; ties keep their order."""
    return jnp.argsort(_to_key(x))


def _to_key(x: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32) + 0.0  # -0.0 + 0.0 = 0.0
    x = jnp.where(jnp.isnan(x), jnp.nan, x)  # one with its sign bit set would come first
    return _turn_negatives(jax.lax.bitcast_convert_type(x, jnp.int32))


def _from_key(key: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(_turn_negatives(key), jnp.float32)


def _turn_negatives(bits: jax.Array) -> jax.Array:
    return jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


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


def tie_means(ascending: jax.Array, values: jax.Array, weights: jax.Array) -> jax.Array:
    """`values` `[n]` with each run of equal `ascending` entries replaced by its weighted mean."""
    first, last = tie_bounds(ascending)
    total, weight = (
        jnp.concatenate([jnp.zeros(1), jnp.cumsum(c)]) for c in (weights * values, weights)
    )
    in_run = weight[last] - weight[first]
    mean = (total[last] - total[first]) / jnp.where(in_run > 0, in_run, 1.0)
    return jnp.where(last - first > 1, mean, values)
