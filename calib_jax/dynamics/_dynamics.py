"""Per-example training statistics, kept on the device by example id.

A state holds one number per training example and statistic; a step scatters its batch into it.
Padded rows are left out by weight 0 or by an id outside `[0, n)`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    FLOOR,
    above_floor,
    as_floats,
    as_hard_labels,
    as_logits,
    check_not_empty,
    correct_prediction,
    indicator,
    nan_where_invalid,
    take_label,
)


def margin(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Compute `z_y - max_{k != y} z_k`, the label's logit less the best other one.

    A masked class (logit -inf) counts as -1e30; NaN for a label outside 0 ... K-1.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]`.

    Returns:
      `[batch]`

    References:
      Pleiss, Zhang, Elenberg and Weinberger (2020), arXiv:2001.10528.

    >>> dynamics.margin([[3.0, 1.0, 0.0], [3.0, 1.0, 0.0]], [0, 1]).tolist()
    [2.0, -2.0]
    """
    logits = above_floor(as_logits(logits))
    labels = as_hard_labels(labels, logits)
    others = jnp.where(indicator(labels, logits.shape[-1]), FLOOR, logits)
    ahead = take_label(logits, labels) - jnp.max(others, axis=-1)
    return nan_where_invalid(ahead, labels, logits.shape[-1])


class AumState(NamedTuple):
    """Sum of margins and number of times seen, each `[n]`."""

    total: jax.Array
    seen: jax.Array


def aum_init(n: int) -> AumState:
    """Return the state before any example was seen.

    Args:
      n: Number of examples.

    >>> dynamics.aum_init(2).seen.tolist()
    [0.0, 0.0]
    """
    check_not_empty((n,))
    return AumState(*[jnp.zeros(n, jnp.float32) for _ in AumState._fields])


def aum_update(
    state: AumState,
    ids: ArrayLike,
    logits: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
) -> AumState:
    """Add the margins of a training step.

    Args:
      state: State before the step.
      ids: Integers `[batch]`; outside `[0, n)` means padding.
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]`.
      weights: Weights `[batch]`, 0 for padding.

    Returns:
      The new state.

    References:
      Pleiss, Zhang, Elenberg and Weinberger (2020), arXiv:2001.10528.

    >>> state = dynamics.aum_update(dynamics.aum_init(2), [1], [[3.0, 1.0]], [0])
    >>> state.total.tolist()
    [0.0, 2.0]
    """
    margins = margin(logits, labels).astype(state.total.dtype)
    rows = _rows(ids, weights, state.seen.shape[0], margins.shape)
    return AumState(
        total=state.total.at[rows].add(margins, mode="drop"),
        seen=state.seen.at[rows].add(1.0, mode="drop"),
    )


def aum_values(state: AumState) -> jax.Array:
    """Return the area under the margin `[n]`: the mean over the times seen; NaN if never seen.

    Args:
      state: State from `aum_update`.

    References:
      Pleiss, Zhang, Elenberg and Weinberger (2020), arXiv:2001.10528.

    >>> state = dynamics.aum_update(dynamics.aum_init(2), [1], [[3.0, 1.0]], [0])
    >>> dynamics.aum_values(state).tolist()
    [nan, 2.0]
    """
    return state.total / jnp.where(state.seen > 0, state.seen, jnp.nan)


class DataMap(NamedTuple):
    """A data map, each `[n]`.

    Attributes:
      confidence: Mean probability of the gold label.
      variability: Its standard deviation (population).
      correctness: Fraction of the times the prediction was right.
    """

    confidence: jax.Array
    variability: jax.Array
    correctness: jax.Array


class DataMapState(NamedTuple):
    """Running sums of a data map, each `[n]`.

    Sums are of deviations from the first probability seen: the variance of a nearly constant
    probability would otherwise drown in float32 rounding.
    """

    first: jax.Array
    deviation: jax.Array
    deviation_squared: jax.Array
    correct: jax.Array
    seen: jax.Array


def datamap_init(n: int) -> DataMapState:
    """Return the state before any example was seen.

    Args:
      n: Number of examples.

    >>> dynamics.datamap_init(2).seen.tolist()
    [0.0, 0.0]
    """
    check_not_empty((n,))
    return DataMapState(*[jnp.zeros(n, jnp.float32) for _ in DataMapState._fields])


def datamap_update(
    state: DataMapState,
    ids: ArrayLike,
    logits: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
) -> DataMapState:
    """Add the gold probabilities and correct predictions of a training step.

    Args:
      state: State before the step.
      ids: Integers `[batch]`; outside `[0, n)` means padding.
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]`.
      weights: Weights `[batch]`, 0 for padding.

    Returns:
      The new state.

    References:
      Swayamdipta, Schwartz, Lourie, Wang, Hajishirzi, Smith and Choi (2020), arXiv:2009.10795.

    >>> state = dynamics.datamap_update(dynamics.datamap_init(2), [1], [[0.0, 0.0]], [0])
    >>> state.first.tolist()
    [0.0, 0.5]
    """
    logits = as_logits(logits)
    labels = as_hard_labels(labels, logits)
    dtype = state.first.dtype
    p = take_label(jax.nn.softmax(logits), labels).astype(dtype)
    p = nan_where_invalid(p, labels, logits.shape[-1])
    correct = correct_prediction(logits, labels).astype(dtype)
    n = state.seen.shape[0]
    rows = _rows(ids, weights, n, p.shape)
    unseen = jnp.where(state.seen.at[rows].get(mode="fill", fill_value=1.0) == 0, rows, n)
    first = state.first.at[unseen].set(p, mode="drop")
    deviation = p - first.at[rows].get(mode="fill", fill_value=0.0)
    return DataMapState(
        first=first,
        deviation=state.deviation.at[rows].add(deviation, mode="drop"),
        deviation_squared=state.deviation_squared.at[rows].add(deviation**2, mode="drop"),
        correct=state.correct.at[rows].add(correct, mode="drop"),
        seen=state.seen.at[rows].add(1.0, mode="drop"),
    )


def datamap_values(state: DataMapState) -> DataMap:
    """Return the data map so far; NaN for examples never seen.

    Args:
      state: State from `datamap_update`.

    References:
      Swayamdipta, Schwartz, Lourie, Wang, Hajishirzi, Smith and Choi (2020), arXiv:2009.10795.

    >>> state = dynamics.datamap_update(dynamics.datamap_init(1), [0], [[0.0, 0.0]], [0])
    >>> dynamics.datamap_values(state).confidence.tolist()
    [0.5]
    """
    times = jnp.where(state.seen > 0, state.seen, jnp.nan)
    mean = state.deviation / times
    variance = state.deviation_squared / times - mean**2
    return DataMap(
        confidence=state.first + mean,
        variability=jnp.sqrt(jnp.maximum(variance, 0.0)),
        correctness=state.correct / times,
    )


def median_split(values: ArrayLike) -> jax.Array:
    """Return which examples are in the upper half: `True` for the `ceil(n / 2)` largest values.

    Same as "at least the median" whenever the median is not tied. Ties at the cut go to the lower
    index, so that the halves are always equal; NaN (never seen) counts as the smallest value.

    Args:
      values: Values `[n]`, AUM or data-map confidence.

    Returns:
      Bools `[n]`.

    >>> dynamics.median_split([0.1, 0.9, 0.5, 0.7]).tolist()
    [False, True, False, True]
    """
    values = as_floats(values)
    check_not_empty(values.shape)
    order = jnp.lexsort((-values, jnp.isnan(values)))
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype))
    return rank < (values.shape[0] + 1) // 2


def _rows(ids: ArrayLike, weights: ArrayLike | None, n: int, batch: tuple[int, ...]) -> jax.Array:
    """Return the ids to scatter to; `n`, which a scatter drops, for padding."""
    ids = jnp.asarray(ids)
    if ids.shape != batch:
        raise ValueError(f"ids: expected shape {batch}, got {ids.shape}")
    keep = ids >= 0  # a negative index would wrap around
    if weights is not None:
        weights = jnp.asarray(weights)
        if weights.shape != batch:
            raise ValueError(f"weights: expected shape {batch}, got {weights.shape}")
        keep &= weights > 0
    return jnp.where(keep, ids, n)
