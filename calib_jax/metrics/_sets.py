"""How good sets of classes are: coverage and size."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_hard_labels,
    as_weights,
    check_labels,
    check_not_empty,
    indicator,
    nan_where_invalid,
    take_label,
    weighted_mean,
)
from calib_jax.metrics._binning import find_bin


def coverage(sets: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> jax.Array:
    """Compute how often the label is in the set.

    Args:
      sets: bool `[n, num_classes]`, as `posthoc.ConformalSets` gives them.
      labels: integers `[n]`.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar in [0, 1]

    >>> float(metrics.coverage(jnp.array([[True, False], [True, True]]), [1, 1]))
    0.5
    """
    covered, _, weights = _checked(sets, labels, weights)
    return weighted_mean(covered, weights)


def set_size(sets: ArrayLike, *, weights: ArrayLike | None = None) -> jax.Array:
    """Compute the mean number of classes in a set. Arguments as in `coverage`.

    >>> float(metrics.set_size(jnp.array([[True, False], [True, True]])))
    1.5
    """
    sets = _as_sets(sets)
    return weighted_mean(_sizes(sets).astype(jnp.float32), weights)


def worst_class_coverage(
    sets: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the coverage of the class that is covered least, of those that have examples.

    Arguments as in `coverage`. With few examples in a class the least coverage is low by chance.

    >>> sets = jnp.array([[True, False], [True, True], [True, False]])
    >>> float(metrics.worst_class_coverage(sets, [0, 1, 1]))
    0.5
    """
    covered, labels, weights = _checked(sets, labels, weights)
    return _worst(covered, weights, labels, jnp.shape(sets)[-1])


def size_stratified_coverage(
    sets: ArrayLike,
    labels: ArrayLike,
    *,
    edges: tuple[int, ...] = (2, 4, 11, 101),
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the coverage of the set sizes that are covered least, of those that occur.

    Sets of all sizes should hold the label equally often: small ones must not owe their size to
    overconfidence.

    Args:
      sets: bool `[n, num_classes]`.
      labels: integers `[n]`.
      edges: the smallest size of each group but the first; by default the sizes 0 to 1, 2 to 3, 4 to
        10, 11 to 100 and 101 or more. `range(1, num_classes + 1)` takes each size by itself.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar in [0, 1]

    References:
      Angelopoulos et al., 2021, arXiv:2009.14193.

    >>> sets = jnp.array([[True, False], [True, True], [True, False]])
    >>> float(metrics.size_stratified_coverage(sets, [0, 1, 1]))
    0.5
    """
    covered, _, weights = _checked(sets, labels, weights)
    group = find_bin(jnp.asarray(tuple(edges), jnp.int32), _sizes(_as_sets(sets)), "right")
    return _worst(covered, weights, group, len(tuple(edges)) + 1)


def _as_sets(sets: ArrayLike) -> jax.Array:
    sets = jnp.asarray(sets)
    if sets.dtype != bool or sets.ndim != 2 or sets.shape[1] < 2:
        raise ValueError(
            f"sets: expected bool [n, num_classes >= 2], got {sets.dtype} {sets.shape}"
        )
    check_not_empty(sets.shape[:1])
    return sets


def _sizes(sets: jax.Array) -> jax.Array:
    return jnp.sum(sets, axis=-1, dtype=jnp.int32)


def _checked(
    sets: ArrayLike, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return whether each label is in its set (NaN if it is no class), the labels and the weights."""
    sets = _as_sets(sets)
    labels = as_hard_labels(labels, sets)
    check_labels(labels, sets, weights)
    covered = take_label(sets, labels).astype(jnp.float32)
    weights = as_weights(weights, labels.shape, jnp.float32)
    return nan_where_invalid(covered, labels, sets.shape[1]), labels, weights


@partial(jax.jit, static_argnames="num_groups")
def _worst(
    covered: jax.Array, weights: jax.Array | None, group: jax.Array, num_groups: int
) -> jax.Array:
    """Return the least coverage of a group that has weight; NaN with a label that is no class."""
    weight = jnp.ones_like(covered) if weights is None else weights
    member = jnp.where(indicator(group, num_groups), weight[:, None], 0.0)
    counted = jnp.where(weight == 0, 0.0, covered)
    total = jnp.sum(member, axis=0)
    share = jnp.sum(member * counted[:, None], axis=0) / jnp.where(total > 0, total, 1.0)
    least = jnp.min(jnp.where(total > 0, share, jnp.inf))
    invalid = jnp.any(jnp.isnan(counted)) | (jnp.sum(weight) == 0)
    return jnp.where(invalid, jnp.nan, least)
