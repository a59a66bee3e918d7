"""The examples of each step: a function of (seed, epoch), so that a run can resume at any step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calib_jax._hints import expected_one_of

# Batches sorted by length together: enough for little padding, few enough for random batches.
_POOL = 32
BATCH_SPLITS = ("halves", "each")


class BatchPlan(NamedTuple):
    """The batches of one pass over a set.

    Attributes:
      rows: Positions in the set, int32 `[steps, batch]`.
      weights: Weights of the rows, float32 `[steps, batch]`; 0 for rows that only fill up a batch. They
        repeat real examples, so that batch statistics see nothing strange.
      lengths: Number of token columns that each step needs, `[steps]`; `None` if it is not text.
    """

    rows: np.ndarray
    weights: np.ndarray
    lengths: np.ndarray | None = None


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Return the number of batches that contain every example.

    >>> steps_per_epoch(10, 4)
    3
    """
    return -(-num_examples // batch_size)


def split_batch(batch_size: int, num_groups: int, batch_split: str) -> tuple[int, ...]:
    """Return the number of rows that a step takes from each group.

    Args:
      batch_size: Global batch size.
      num_groups: Number of groups that a step draws from.
      batch_split: `'halves'`, the batch is divided between the groups, with one more row for each of
        the first groups if it does not divide evenly; or `'each'`, a whole batch of each group.

    >>> split_batch(16, 2, "halves"), split_batch(16, 3, "halves"), split_batch(16, 2, "each")
    ((8, 8), (6, 5, 5), (16, 16))
    """
    if batch_split not in BATCH_SPLITS:
        raise ValueError(
            f"batch_split={batch_split!r}: {expected_one_of(batch_split, BATCH_SPLITS)}"
        )
    if batch_split == "each":
        return (batch_size,) * num_groups
    if batch_size < num_groups:
        raise ValueError(
            f"batch_size={batch_size}: expected at least {num_groups}, a row of each group"
        )
    rows, more = divmod(batch_size, num_groups)
    return tuple(rows + (i < more) for i in range(num_groups))


def epoch_counts(
    lengths: Sequence[int], sizes: Sequence[int], count: int = 0
) -> tuple[int, list[int]]:
    """Return the number of steps of an epoch, and the number of rows of each group that count in it.

    An epoch is one pass over the group that takes the most steps.

    Args:
      lengths: Number of examples of each group.
      sizes: Number of rows of a step from each group.
      count: Number of examples of the first group that make an epoch instead; 0 for the rule above.

    >>> epoch_counts([10, 4], [2, 2])
    (5, [10, 10])
    """
    longest, size = count, sizes[0]
    if not count:
        longest, size = max(zip(lengths, sizes, strict=True), key=lambda pair: pair[0] / pair[1])
    steps = steps_per_epoch(longest, size)
    return steps, [min(steps * rows, -(-longest * rows // size)) for rows in sizes]


def shuffled(
    groups: Sequence[np.ndarray],
    batch_size: int | Sequence[int],
    *,
    seed: int,
    epoch: int,
    lengths: np.ndarray | None = None,
    buckets: Sequence[int] = (),
    count: int = 0,
) -> BatchPlan:
    """Plan an epoch: every example of the largest group once, in an order that depends on seed and epoch.

    A step has rows of each group, one group after the other; smaller groups are repeated.

    Args:
      groups: Positions in the set, int `[n]` each; one group with all positions for ordinary training.
      batch_size: Global number of rows of a step from each group: one number, or one per group from
        `split_batch`.
      seed: Seed of the run.
      epoch: Epoch, from 0.
      lengths: Number of tokens of each example, int `[n]`. Batches then have examples of similar
        length, and so do the groups of a step.
      buckets: Allowed batch lengths, ascending, the last at least the longest example's.
      count: Number of examples of the first group that make an epoch instead; a larger group then
        contributes different examples in every epoch.

    Returns:
      The batches of the epoch.

    >>> shuffled([np.arange(5)], 2, seed=0, epoch=0).weights
    array([[1., 1.],
           [1., 1.],
           [1., 0.]], dtype=float32)
    """
    rng = np.random.default_rng([seed, epoch])
    sizes = [batch_size] * len(groups) if isinstance(batch_size, int) else batch_size
    steps, counts = epoch_counts([len(group) for group in groups], sizes, count)
    plans = []
    for group, size, counted in zip(groups, sizes, counts, strict=True):
        order = group[rng.permutation(len(group))][: size * steps]
        if lengths is not None:
            pool = _POOL * size
            parts = [order[i : i + pool] for i in range(0, len(order), pool)]
            order = np.concatenate([p[np.argsort(lengths[p], kind="stable")] for p in parts])
        plans.append(_cut(order, size, counted))
    plan = BatchPlan(*(np.concatenate(parts, axis=1) for parts in zip(*plans, strict=True)))
    if lengths is None:
        return plan
    plan = _with_lengths(plan, lengths, buckets)
    mixed = rng.permutation(len(plan.rows))
    return BatchPlan(*(array[mixed] for array in plan if array is not None))


def in_order(
    num_examples: int,
    batch_size: int,
    *,
    lengths: np.ndarray | None = None,
    buckets: Sequence[int] = (),
) -> BatchPlan:
    """Plan an evaluation: every example once, in the order of the set, or by length if lengths are given.

    Args:
      num_examples: Number of examples.
      batch_size: Global batch size.
      lengths: Number of tokens of each example, int `[num_examples]`.
      buckets: Allowed batch lengths, ascending, the last at least the longest example's.

    >>> in_order(3, 2).rows
    array([[0, 1],
           [2, 0]], dtype=int32)
    """
    order = np.arange(num_examples)
    if lengths is not None:
        order = np.argsort(lengths, kind="stable")
    plan = BatchPlan(*_cut(order, batch_size, num_examples))
    return plan if lengths is None else _with_lengths(plan, lengths, buckets)


def make_buckets(lengths: np.ndarray, longest: int, *, number: int = 4) -> tuple[int, ...]:
    """Return the batch lengths, multiples of 8 up to `longest`, with the least padding.

    Args:
      lengths: Number of tokens of each example, int `[n]`.
      longest: Largest length.
      number: Largest number of different lengths.

    >>> make_buckets(np.array([5, 6, 7, 30]), 32, number=2)
    (8, 32)
    """
    lengths = np.maximum(lengths, 1)  # an empty text needs a column of padding
    ends = np.unique([*np.minimum(8 * -(-lengths // 8), longest), longest]).tolist()
    held = [int(np.sum(lengths <= end)) for end in [0, *ends]]
    # The fewest tokens for all examples up to each end, and the lengths that attain them.
    best: list[tuple[float, tuple[int, ...]]] = [(0, ())] + [(np.inf, ())] * len(ends)
    for _ in range(number):
        best = [best[0]] + [
            min(
                best[j],
                *((t + end * (held[j] - held[i]), (*b, end)) for i, (t, b) in enumerate(best[:j])),
            )
            for j, end in enumerate(ends, 1)
        ]
    return best[-1][1]


def _cut(order: np.ndarray, batch_size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and weights of the steps that `count` examples need, `[steps, batch_size]` each."""
    steps = steps_per_epoch(count, batch_size)
    rows = np.resize(order, (steps, batch_size)).astype(np.int32)
    weights = (np.arange(steps * batch_size) < count).astype(np.float32)
    return rows, weights.reshape(steps, batch_size)


def _with_lengths(plan: BatchPlan, lengths: np.ndarray, buckets: Sequence[int]) -> BatchPlan:
    longest = np.max(lengths[plan.rows], axis=1)
    return plan._replace(lengths=np.asarray(buckets)[np.searchsorted(buckets, longest)])
