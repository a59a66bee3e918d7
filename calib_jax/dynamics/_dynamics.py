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
    """Return `z_y - max_{k != y} z_k`: how far the label's logit is ahead of the best other one.

    A masked class (logit -inf) counts as -1e30; NaN for a label outside 0 ... K-1.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]`.

    Returns:
      `[batch]`

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
    """Return the state before any of the `n` examples was seen.

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
    """Add a step's margins, as computed by the network in training mode.

    Args:
      state: the present state.
      ids: integers `[batch]`; outside `[0, n)` means padding.
      logits: `[batch, num_classes]`.
      labels: integers `[batch]`.
      weights: `[batch]`, 0 for padding.

    Returns:
      The new state.

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
    """Return the area under the margin: the mean margin over the times seen `[n]`; NaN if never.

    >>> state = dynamics.aum_update(dynamics.aum_init(2), [1], [[3.0, 1.0]], [0])
    >>> dynamics.aum_values(state).tolist()
    [nan, 2.0]
    """
    return state.total / jnp.where(state.seen > 0, state.seen, jnp.nan)


class DataMap(NamedTuple):
    """A data map, each `[n]`.

    Attributes:
      confidence: mean probability of the gold label.
      variability: its standard deviation (population).
      correctness: fraction of the times the prediction was right.
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
    """Return the state before any of the `n` examples was seen.

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
    """Add a step's gold probabilities and hits. Arguments as in `aum_update`.

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
    """Tell which examples belong to the upper half: `True` for the `ceil(n / 2)` largest values.

    Same as "at least the median" whenever the median is not tied. Ties at the cut go to the lower
    index, so that the halves are always equal; NaN (never seen) counts as the smallest value.

    Args:
      values: `[n]`, AUM or data-map confidence.

    Returns:
      bool `[n]`

    >>> dynamics.median_split([0.1, 0.9, 0.5, 0.7]).tolist()
    [False, True, False, True]
    """
    values = as_floats(values)
    check_not_empty(values.shape)
    order = jnp.lexsort((-values, jnp.isnan(values)))
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype))
    return rank < (values.shape[0] + 1) // 2


def _rows(ids: ArrayLike, weights: ArrayLike | None, n: int, batch: tuple[int, ...]) -> jax.Array:
    """Ids to scatter to; `n`, which a scatter drops, for rows that do not count."""
    ids = jnp.asarray(ids)
    for name, x in (("ids", ids), ("weights", ids if weights is None else jnp.asarray(weights))):
        if x.shape != batch:
            raise ValueError(f"{name}: expected shape {batch}, got {x.shape}")
    keep = ids >= 0  # a negative index would wrap around
    if weights is not None:
        keep &= jnp.asarray(weights) > 0
    return jnp.where(keep, ids, n)
