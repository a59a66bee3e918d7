"""Checks and conversions of arrays that all arrays-only rooms share.

Computations run in float32 whatever narrower type comes in, and in float64 if the main argument (the
logits, mostly) has it. The other arguments take the main one's type, so that nothing depends on how
JAX promotes types: results are the same under `jax_enable_x64` and strict promotion.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

# Stands for -inf where a gradient is needed: its exp is 0, and differences are finite.
FLOOR = -1e30


def float_dtype(*arrays: object) -> jnp.dtype:
    """Return float64 if one of the arrays has it, else float32; Python numbers do not count."""
    dtypes = [getattr(x, "dtype", None) for x in arrays if not isinstance(x, float)]
    widest = jax.dtypes.canonicalize_dtype(jnp.float64)  # float32 unless jax_enable_x64
    return widest if jnp.float64 in dtypes else jnp.dtype(jnp.float32)


def as_floats(x: ArrayLike) -> jax.Array:
    """Return `x` as float64 if it is, else as float32: statistics are never in a narrower type."""
    return jnp.asarray(x, float_dtype(x))


def as_logits(logits: ArrayLike) -> jax.Array:
    """Return logits as float32 or float64 `[..., num_classes]`."""
    logits = as_floats(logits)
    if logits.ndim < 1 or logits.shape[-1] < 2:
        raise ValueError(f"logits: expected [batch, num_classes >= 2], got shape {logits.shape}")
    return logits


def as_labels(labels: ArrayLike, logits: jax.Array) -> jax.Array:
    """Return labels that fit `logits`: integers `[batch]`, or soft `[batch, num_classes]`."""
    check_not_empty(logits.shape[:-1])
    labels = jnp.asarray(labels)
    if jnp.issubdtype(labels.dtype, jnp.integer) and labels.shape == logits.shape[:-1]:
        return as_class_numbers(labels)
    if jnp.issubdtype(labels.dtype, jnp.floating) and labels.shape == logits.shape:
        return labels.astype(logits.dtype)
    raise ValueError(
        f"labels: expected integers {logits.shape[:-1]} or floats {logits.shape} "
        f"to go with logits {logits.shape}, got {labels.dtype} {labels.shape}"
    )


def as_hard_labels(labels: ArrayLike, logits: jax.Array) -> jax.Array:
    """Return integer labels `[batch]`, for functions that take no soft ones."""
    check_not_empty(logits.shape[:-1])
    labels = jnp.asarray(labels)
    if jnp.issubdtype(labels.dtype, jnp.integer) and labels.shape == logits.shape[:-1]:
        return as_class_numbers(labels)
    raise ValueError(
        f"labels: expected integers {logits.shape[:-1]}, got {labels.dtype} {labels.shape}"
    )


def check_not_empty(batch: tuple[int, ...]) -> None:
    """Raise a ValueError unless there are examples."""
    if 0 in batch:
        raise ValueError("there are no examples (n = 0)")


def as_class_numbers(labels: jax.Array) -> jax.Array:
    """Return integers of at least 32 bits, which hold every class number."""
    return labels if labels.dtype == jnp.int64 else labels.astype(jnp.int32)


def as_per_example(
    name: str, x: ArrayLike, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32
) -> jax.Array:
    """Return `x`, the argument called `name`, as a scalar or one number per example."""
    x = jnp.asarray(x, dtype)
    if x.shape not in ((), shape):
        raise ValueError(f"{name}: expected a scalar or shape {shape}, got {x.shape}")
    return x


def above_floor(logits: jax.Array) -> jax.Array:
    """Return logits with `FLOOR` for -inf: a masked class still has probability 0."""
    return jnp.maximum(logits, FLOOR)


def centered(logits: jax.Array) -> jax.Array:
    """Return logits with the largest of each row at 0: the same softmax with better precision.

    The softmax does not depend on what is subtracted, so no gradient flows through it.
    """
    return logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))


def is_soft(labels: jax.Array) -> bool:
    """Return whether labels are soft."""
    return bool(jnp.issubdtype(labels.dtype, jnp.floating))


def is_valid(labels: jax.Array, num_classes: int) -> jax.Array:
    """Return whether each label is one of 0 ... K-1 `[batch]`; soft ones are."""
    if is_soft(labels):
        return jnp.ones(labels.shape[:-1], bool)
    return (labels >= 0) & (labels < num_classes)


def nan_where_invalid(values: jax.Array, labels: jax.Array, num_classes: int) -> jax.Array:
    """Return `values` `[batch]`, NaN without gradient where a label is outside 0 ... K-1."""
    if is_soft(labels):
        return values
    return jnp.where(is_valid(labels, num_classes), values, jnp.nan)


def indicator(labels: jax.Array, num_classes: int) -> jax.Array:
    """Return bools `[..., num_classes]`, true at each integer label that is one of 0 ... K-1."""
    return labels[..., None] == jax.lax.broadcasted_iota(
        labels.dtype, (*labels.shape, num_classes), labels.ndim
    )


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return `a @ b` in full float32; accelerators would round the factors to fewer bits."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def take_label(values: jax.Array, labels: jax.Array) -> jax.Array:
    """Return `values[i, labels[i]]`; the nearest valid label's for an invalid one."""
    labels = jnp.clip(labels, 0, values.shape[-1] - 1)
    return jnp.take_along_axis(values, labels[..., None], axis=-1, mode="promise_in_bounds")[..., 0]


def expect(values: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean of `values` `[batch, num_classes]` under the labels, `sum_k y_k values_k`.

    NaN for an integer label outside 0 ... K-1.
    """
    if not is_soft(labels):
        return nan_where_invalid(take_label(values, labels), labels, values.shape[-1])
    # A class with no label mass contributes nothing, even where its value is infinite (a masked class).
    return jnp.sum(labels * jnp.where(labels == 0, 0.0, values), axis=-1)


def correct_prediction(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Return 1 where the first largest score is the (most likely) label, else 0 `[batch]`.

    NaN for an integer label outside 0 ... K-1.
    """
    if is_soft(labels):
        labels = jnp.argmax(labels, axis=-1)
    hit = jnp.argmax(scores, axis=-1).astype(labels.dtype) == labels
    return nan_where_invalid(hit.astype(scores.dtype), labels, scores.shape[-1])


def as_weights(
    weights: ArrayLike | None, batch: tuple[int, ...], dtype: DTypeLike = jnp.float32
) -> jax.Array | None:
    """Return weights of that shape and dtype, or `None` for equal ones."""
    check_not_empty(batch)
    if weights is None:
        return None
    weights = jnp.asarray(weights, dtype)
    if weights.shape != batch:
        raise ValueError(f"weights: expected shape {batch}, got {weights.shape}")
    return weights


def without_padding(x: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Return `x` `[batch, ...]` with zeros in rows of weight 0.

    To be called before any computation: 0 times the gradient of a NaN is NaN.
    """
    if weights is None:
        return x
    return jnp.where((weights == 0).reshape(weights.shape + (1,) * (x.ndim - weights.ndim)), 0, x)


def weighted_mean(values: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """Return the weighted mean over the batch; rows of weight 0 may hold anything."""
    weights = as_weights(weights, values.shape, values.dtype)
    if weights is None:
        return jnp.mean(values)
    # where, not a bare product: a padded row may hold anything, NaN included.
    return jnp.sum(jnp.where(weights == 0, 0.0, weights * values)) / jnp.sum(weights)


def numeric_rows(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return logits with zeros in the rows without a softmax, and which rows have one `[batch]`.

    A row with NaN, +inf or nothing but -inf would have a NaN gradient even where its weight is 0. This
    does not depend on the weights, so that a bootstrap over weights computes what follows once.
    """
    numeric = jnp.isfinite(jnp.max(logits, axis=-1))
    return jnp.where(numeric[..., None], logits, 0.0), numeric


def below_top(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return `numeric_rows` of the logits less the largest of their row.

    The gradient of the largest logit is shared by all that equal it, as in `jnp.max`.
    """
    top = _row_max(logits)
    numeric = jnp.isfinite(top)
    return jnp.where(numeric[..., None], logits - top[..., None], 0.0), numeric


@jax.custom_jvp
def _row_max(x: jax.Array) -> jax.Array:
    """Return the largest of each row, with gradient 0 instead of NaN where a row has NaN."""
    return jnp.max(x, axis=-1)


@_row_max.defjvp
def _row_max_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (x,), (slope,) = primals, tangents
    top = _row_max(x)
    is_top = x == top[..., None]
    count = jnp.sum(is_top, axis=-1, dtype=x.dtype)
    total = jnp.sum(jnp.where(is_top, slope, 0.0), axis=-1)
    return top, total / jnp.maximum(count, 1)


def check_labels(labels: jax.Array, logits: jax.Array, weights: ArrayLike | None = None) -> None:
    """Raise a ValueError if a row of weight other than 0 has an integer label that is no class.

    Values can only be checked outside jit; inside, such a row gives NaN instead.
    """
    if is_soft(labels) or not all(map(is_readable, (labels, logits, weights))):
        return
    values, num_classes = np.asarray(labels), logits.shape[-1]
    if values.min() >= 0 and values.max() < num_classes:
        return
    invalid = (values < 0) | (values >= num_classes)
    if weights is not None and np.shape(weights) == invalid.shape:
        invalid &= np.asarray(weights) != 0
    if invalid.any():
        raise ValueError(
            f"labels: expected 0 to {num_classes - 1}, found {values[invalid][0]} "
            f"({invalid.sum()} of {invalid.size} labels are no class)"
        )


def looks_like_probabilities(scores: ArrayLike, weights: ArrayLike | None = None) -> bool:
    """Return whether the rows of `scores` `[n, num_classes]` are probabilities and not logits.

    All entries lie in [0, 1], all rows sum to 1 within 1e-3, and at least two rows differ: one row of
    logits such as (0.5, 0.5) may do so by chance. Rows of weight 0 are not looked at.

    >>> posthoc.looks_like_probabilities([[0.5, 0.5], [0.2, 0.8]])
    True
    >>> posthoc.looks_like_probabilities([[2.0, 0.0], [0.5, 0.5]])
    False
    """
    if not _sum_to_one(_rows(scores, weights, slice(16))):  # logits show in a few rows already
        return False
    rows = _rows(scores, weights)
    return bool(_sum_to_one(rows) and np.any(rows != rows[:1]))


def _rows(scores: ArrayLike, weights: ArrayLike | None, which: slice = slice(None)) -> np.ndarray:
    """Return rows `[n, num_classes]` on the host, without those of weight 0."""
    if isinstance(scores, jax.Array) and all(d.platform != "cpu" for d in scores.devices()):
        rows = np.asarray(scores[which])  # on the CPU: no transfer to save, a program to compile
    else:
        rows = np.asarray(scores)[which]
    if weights is not None and np.shape(weights) == np.shape(scores)[:-1]:
        rows = rows[np.asarray(weights)[which] != 0]
    return rows.reshape(-1, rows.shape[-1])


def _sum_to_one(rows: np.ndarray) -> bool:
    if not rows.size:
        return True
    if not (rows.min() >= 0 and rows.max() <= 1):
        return False
    return bool(np.abs(rows.sum(axis=-1, dtype=np.float32) - 1).max() <= 1e-3)


def check_not_probs(
    logits: ArrayLike,
    weights: ArrayLike | None = None,
    instead: str = "posthoc.logits_from_probs(probs)",
) -> None:
    """Raise a ValueError for probabilities in place of logits; inside jit nothing can be looked at.

    Args:
      logits: `[..., num_classes]`.
      weights: `[...]`; rows of weight 0 are not looked at.
      instead: What to pass, or which function to call, for probabilities.
    """
    if not all(map(is_readable, (logits, weights))):
        return
    if looks_like_probabilities(logits, weights):
        raise ValueError(
            "logits: all entries are in [0, 1] and all rows sum to 1, so these are probabilities; "
            f"use {instead} (check=False skips this check)"
        )


def check_probs(probs: ArrayLike, weights: ArrayLike | None = None) -> None:
    """Raise a ValueError for logits in place of probabilities: entries that are not in [0, 1].

    Args:
      probs: `[..., num_classes]`.
      weights: `[...]`; rows of weight 0 are not looked at.
    """
    if not all(map(is_readable, (probs, weights))):
        return
    rows = _rows(probs, weights)
    if not rows.size or (rows.min() >= -1e-3 and rows.max() <= 1 + 1e-3):
        return
    outside = rows[(rows < -1e-3) | (rows > 1 + 1e-3)]  # NaN is neither: it gives NaN, as elsewhere
    if outside.size:
        raise ValueError(
            f"probs: expected values in [0, 1], found {outside[0]:g}, so these are logits; "
            "use jax.nn.softmax(logits) (check=False skips this check)"
        )


def as_binary_labels(
    labels: ArrayLike, scores: jax.Array, weights: ArrayLike | None = None
) -> jax.Array:
    """Return labels that are 0 or 1, of the shape and dtype of `scores` `[n]` or `[n, num_labels]`.

    Any other label in a row of weight other than 0 raises a ValueError, and is NaN inside jit.
    """
    check_not_empty(scores.shape)
    labels = jnp.asarray(labels)
    whole = labels.dtype == bool or jnp.issubdtype(labels.dtype, jnp.integer)
    if not whole or labels.shape != scores.shape:
        raise ValueError(
            f"labels: expected integers (0 or 1) {scores.shape}, got {labels.dtype} {labels.shape}"
        )
    binary = (labels == 0) | (labels == 1)
    if all(map(is_readable, (labels, weights))):
        invalid = ~np.asarray(binary)
        if weights is not None and np.shape(weights) == invalid.shape[:1]:
            invalid[np.asarray(weights) == 0] = False
        if invalid.any():
            raise ValueError(
                f"labels: expected 0 or 1, found {np.asarray(labels)[invalid][0]} "
                f"({invalid.sum()} of {invalid.size} labels are neither)"
            )
    return jnp.where(binary, labels.astype(scores.dtype), jnp.nan)


def check_log_odds(scores: ArrayLike, weights: ArrayLike | None = None) -> None:
    """Raise a ValueError for probabilities in place of the log odds of labels, outside jit.

    Args:
      scores: `[n]` or `[n, num_labels]`; if all lie in [0, 1] and are not all the same, they are taken
        for probabilities.
      weights: `[n]`; rows of weight 0 are not looked at.
    """
    if not all(map(is_readable, (scores, weights))):
        return
    rows = _rows(np.reshape(np.asarray(scores), (np.shape(scores)[0], -1)), weights)
    if rows.size and rows.min() >= 0 and rows.max() <= 1 and rows.min() < rows.max():
        raise ValueError(
            "logits: all are in [0, 1], so these are probabilities; "
            "use posthoc.logits_from_binary_probs(probs) (check=False skips this check)"
        )


@jax.custom_jvp
def at_most(x: jax.Array, bound: jax.Array) -> jax.Array:
    """Return `min(x, bound)` with the gradient of `x`."""
    return jnp.minimum(x, bound)


at_most.defjvps(lambda slope, _, x, bound: slope, None)


def is_readable(x: ArrayLike | None) -> bool:
    """Return whether the values of `x` can be read: not traced, nor on another process's devices."""
    if isinstance(x, jax.core.Tracer):
        return False
    return not isinstance(x, jax.Array) or x.is_fully_addressable
