"""Which examples each step sees: a function of (seed, epoch), so a run can go on from any step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_POOL = (
    32  # batches that are sorted by length together: enough to fill them evenly, few enough to mix
)


BATCH_SPLITS = ("halves", "each")


class BatchPlan(NamedTuple):
    """The batches of one pass over a set.

    Attributes:
      rows: positions in the set, int32 `[steps, batch]`.
      weights: float32 `[steps, batch]`; 0 for rows that only fill up a batch. They repeat real
        examples, so that batch statistics see nothing strange.
      lengths: number of token columns each step needs, `[steps]`; `None` if it is not text.
    """

    rows: np.ndarray
    weights: np.ndarray
    lengths: np.ndarray | None = None


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    return -(-num_examples // batch_size)


def split_batch(batch_size: int, num_groups: int, batch_split: str) -> tuple[int, ...]:
    """Return the rows that a step has of each group.

    Args:
      batch_size: of all devices together.
      num_groups: that a step draws from.
      batch_split: `'halves'`, the batch is divided between the groups, the first ones having a row
        more each where their number does not divide it; or `'each'`, a whole batch of each group.

    >>> split_batch(16, 2, "halves"), split_batch(16, 3, "halves"), split_batch(16, 2, "each")
    ((8, 8), (6, 5, 5), (16, 16))
    """
    if batch_split not in BATCH_SPLITS:
        raise ValueError(f"batch_split={batch_split!r}: expected one of {', '.join(BATCH_SPLITS)}")
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
    """Return the steps of an epoch, and how many rows of each group count in it.

    The group that takes longest is gone through once; of every other as many rows count in a step.

    Args:
      lengths: examples of each group.
      sizes: rows of a step from each group.
      count: so many examples of the first group instead.
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
    """Every example of the largest group once, in an order that depends on seed and epoch only.

    A step has rows of each group, one group after the other; smaller groups begin again when they are
    through.

    Args:
      groups: positions in the set; for ordinary training one group, of all.
      batch_size: rows of a step from each group, of all devices together: one number, or one for
        each as `split_batch` gives them.
      seed: of the run.
      epoch: counted from 0.
      lengths: number of tokens of each example. Batches are then made of examples of similar length,
        and those of the groups that meet in a step are about equally long.
      buckets: the lengths that batches may have, ascending, the last at least the longest example's.
      count: so many examples of the first group instead; others of a larger one in every epoch.
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
    return BatchPlan(*(part[mixed] for part in plan if part is not None))


def in_order(
    num_examples: int,
    batch_size: int,
    *,
    lengths: np.ndarray | None = None,
    buckets: Sequence[int] = (),
) -> BatchPlan:
    """Every example once, for evaluation: in the set's order, or by length where lengths are given."""
    order = np.arange(num_examples)
    if lengths is not None:
        order = np.argsort(lengths, kind="stable")
    plan = BatchPlan(*_cut(order, batch_size, num_examples))
    return plan if lengths is None else _with_lengths(plan, lengths, buckets)


def make_buckets(lengths: np.ndarray, longest: int, *, number: int = 4) -> tuple[int, ...]:
    """The `number` lengths, multiples of 8 up to `longest`, that pad the examples least."""
    lengths = np.maximum(lengths, 1)  # an empty text is padding, too
    ends = np.unique([*np.minimum(8 * -(-lengths // 8), longest), longest]).tolist()
    held = [int(np.sum(lengths <= end)) for end in [0, *ends]]
    # The fewest tokens for all examples up to each of the ends, and the lengths that need so few.
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
    """Rows and weights of so many steps that `count` examples have a place."""
    steps = steps_per_epoch(count, batch_size)
    rows = np.resize(order, (steps, batch_size)).astype(np.int32)
    weights = (np.arange(steps * batch_size) < count).astype(np.float32)
    return rows, weights.reshape(steps, batch_size)


def _with_lengths(plan: BatchPlan, lengths: np.ndarray, buckets: Sequence[int]) -> BatchPlan:
    longest = np.max(lengths[plan.rows], axis=1)
    return plan._replace(lengths=np.asarray(buckets)[np.searchsorted(buckets, longest)])
