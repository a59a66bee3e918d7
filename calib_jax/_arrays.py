"""What every arrays-only room does first: check shapes, widen floats, read labels of either kind.

Computations run in float32 whatever narrower type comes in, and in float64 if the main argument (the
logits, mostly) has it. The other arguments take the main one's type, so that nothing depends on how
JAX promotes types: results are the same under `jax_enable_x64` and strict promotion.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

# What takes the place of -inf where a slope is needed: exp of it is 0, and differences are numbers.
FLOOR = -1e30


def float_dtype(*arrays: Any) -> Any:
    """Float64 if one of the arrays has it, else float32. Python numbers do not count."""
    dtypes = [x.dtype for x in arrays if hasattr(x, "dtype") and not isinstance(x, float)]
    widest = jax.dtypes.canonicalize_dtype(jnp.float64)  # float32 unless jax_enable_x64
    return widest if jnp.float64 in dtypes else jnp.dtype(jnp.float32)


def as_floats(x: ArrayLike) -> jax.Array:
    """`x` as float32, or as float64 if it is: statistics are never kept in a narrower type."""
    return jnp.asarray(x, float_dtype(x))


def as_logits(logits: ArrayLike) -> jax.Array:
    """`logits` as float32 or float64 `[..., num_classes]`."""
    logits = as_floats(logits)
    if logits.ndim < 1 or logits.shape[-1] < 2:
        raise ValueError(f"logits: expected [batch, num_classes >= 2], got shape {logits.shape}")
    return logits


def as_labels(labels: ArrayLike, logits: jax.Array) -> jax.Array:
    """Labels that fit `logits`: integers `[batch]` or soft `[batch, num_classes]` of its dtype."""
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
    """Integer labels `[batch]`, for what has no meaning with soft ones."""
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
    """Integers in which every class number has a place, unlike in those of 8 or 16 bits."""
    return labels if labels.dtype == jnp.int64 else labels.astype(jnp.int32)


def as_per_example(
    name: str, x: ArrayLike, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> jax.Array:
    """`x`, the argument called `name`, as a scalar or one number per example of that dtype."""
    x = jnp.asarray(x, dtype)
    if x.shape not in ((), shape):
        raise ValueError(f"{name}: expected a scalar or shape {shape}, got {x.shape}")
    return x


def above_floor(logits: jax.Array) -> jax.Array:
    """`logits` with a very small number for -inf: a masked class has probability 0 all the same."""
    return jnp.maximum(logits, FLOOR)


def centered(logits: jax.Array) -> jax.Array:
    """`logits` with the largest of each row at 0: the same softmax, and digits to spare.

    What is subtracted is no part of the function, so it takes no part in its gradient.
    """
    return logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))


def is_soft(labels: jax.Array) -> bool:
    return bool(jnp.issubdtype(labels.dtype, jnp.floating))


def is_valid(labels: jax.Array, num_classes: int) -> jax.Array:
    """Whether each integer label is one of 0 ... K-1; soft ones are."""
    if is_soft(labels):
        return jnp.ones(labels.shape[:-1], bool)
    return (labels >= 0) & (labels < num_classes)


def nan_where_invalid(values: jax.Array, labels: jax.Array, num_classes: int) -> jax.Array:
    """`values` `[batch]`, NaN where a label is outside 0 ... K-1; no gradient flows there."""
    if is_soft(labels):
        return values
    return jnp.where(is_valid(labels, num_classes), values, jnp.nan)


def indicator(labels: jax.Array, num_classes: int) -> jax.Array:
    """Bool `[..., num_classes]`: true at each integer label, nowhere for one outside 0 ... K-1."""
    return labels[..., None] == jax.lax.broadcasted_iota(
        labels.dtype, (*labels.shape, num_classes), labels.ndim
    )


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a @ b` in full float32; accelerators would round the factors to 8 bits."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def take_label(values: jax.Array, labels: jax.Array) -> jax.Array:
    """`values[i, labels[i]]`; of an invalid label the nearest one's, which is a number."""
    labels = jnp.clip(labels, 0, values.shape[-1] - 1)
    return jnp.take_along_axis(values, labels[..., None], axis=-1, mode="promise_in_bounds")[..., 0]


def expect(values: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean of `values` `[batch, num_classes]` under the labels: `sum_k y_k values_k`.

    NaN for an integer label outside 0 ... K-1.
    """
    if not is_soft(labels):
        return nan_where_invalid(take_label(values, labels), labels, values.shape[-1])
    # A class with no label mass contributes nothing, even where its value is infinite (a masked class).
    return jnp.sum(labels * jnp.where(labels == 0, 0.0, values), axis=-1)


def correct_prediction(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """`[batch]`, of the dtype of `scores`: 1 where the first largest score is the (most likely) label.

    NaN for an integer label outside 0 ... K-1.
    """
    if is_soft(labels):
        labels = jnp.argmax(labels, axis=-1)
    hit = jnp.argmax(scores, axis=-1).astype(labels.dtype) == labels
    return nan_where_invalid(hit.astype(scores.dtype), labels, scores.shape[-1])


def as_weights(
    weights: ArrayLike | None, batch: tuple[int, ...], dtype: Any = jnp.float32
) -> jax.Array | None:
    """Weights of that shape and dtype, or `None` for equal ones; there must be examples to weigh."""
    check_not_empty(batch)
    if weights is None:
        return None
    weights = jnp.asarray(weights, dtype)
    if weights.shape != batch:
        raise ValueError(f"weights: expected shape {batch}, got {weights.shape}")
    return weights


def without_padding(x: jax.Array, weights: jax.Array | None) -> jax.Array:
    """`x` `[batch, ...]` with zeros for rows of weight 0, so that nothing in them has an effect.

    Before anything is computed of them: 0 times the slope of a NaN is NaN.
    """
    if weights is None:
        return x
    return jnp.where((weights == 0).reshape(weights.shape + (1,) * (x.ndim - weights.ndim)), 0, x)


def weighted_mean(values: jax.Array, weights: ArrayLike | None) -> jax.Array:
    """Mean over the batch in which a row of weight 0 does not exist."""
    weights = as_weights(weights, values.shape, values.dtype)
    if weights is None:
        return jnp.mean(values)
    # where, not a bare product: a padded row may hold anything, NaN included.
    return jnp.sum(jnp.where(weights == 0, 0.0, weights * values)) / jnp.sum(weights)


def numeric_rows(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`logits` with zeros in the rows that have no softmax, and which rows have one `[batch]`.

    A row with NaN, +inf or nothing but -inf would have a NaN gradient even where its weight is 0. Says
    nothing of the weights, so that a bootstrap over weights computes what follows once.
    """
    numeric = jnp.isfinite(jnp.max(logits, axis=-1))
    return jnp.where(numeric[..., None], logits, 0.0), numeric


def below_top(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return `numeric_rows` of the logits less the largest of their row.

    The largest logit has a slope, too: shared by all that equal it, as that of `jnp.max`.
    """
    top = _row_max(logits)
    numeric = jnp.isfinite(top)
    return jnp.where(numeric[..., None], logits - top[..., None], 0.0), numeric


@jax.custom_jvp
def _row_max(x: jax.Array) -> jax.Array:
    """`[..., num_classes] -> [...]`, with slope 0 instead of NaN where a row has NaN."""
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

    Values can only be looked at outside jit; inside, such a row gives NaN instead.
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


@jax.custom_jvp
def at_most(x: jax.Array, bound: jax.Array) -> jax.Array:
    """Return `min(x, bound)` with the slope of `x`."""
    return jnp.minimum(x, bound)


at_most.defjvps(lambda slope, _, x, bound: slope, None)


def is_readable(x: ArrayLike | None) -> bool:
    """Whether the values of `x` are at hand: not traced, and not on another process's devices."""
    if isinstance(x, jax.core.Tracer):
        return False
    return not isinstance(x, jax.Array) or x.is_fully_addressable
