"""Which examples each step sees."""

import itertools

import numpy as np
import pytest

from calib_jax import data


@pytest.mark.parametrize(("n", "batch"), [(10, 3), (12, 4), (2, 5), (1, 1)])
def test_every_example_once_and_filling_weighs_nothing(n: int, batch: int) -> None:
    for plan in (data.shuffled([np.arange(n)], batch, seed=0, epoch=0), data.in_order(n, batch)):
        assert plan.rows.shape == plan.weights.shape == (data.steps_per_epoch(n, batch), batch)
        assert sorted(plan.rows[plan.weights == 1]) == list(range(n))
        assert set(plan.weights.ravel()) <= {0.0, 1.0}
        assert plan.rows.min() >= 0
        assert plan.rows.max() < n
    assert list(plan.rows.ravel()[:n]) == list(range(n))


def test_order_depends_on_seed_and_epoch_only() -> None:
    def rows(seed: int, epoch: int) -> list[int]:
        return data.shuffled([np.arange(50)], 7, seed=seed, epoch=epoch).rows.ravel().tolist()

    assert rows(0, 3) == rows(0, 3)
    assert rows(0, 3) != rows(0, 4)
    assert rows(0, 3) != rows(1, 3)


def test_text_batches_are_of_similar_length_and_short_buckets() -> None:
    lengths = np.random.default_rng(0).integers(3, 61, 1000)
    buckets = data.make_buckets(lengths, 64)
    assert buckets[-1] == 64
    assert all(b % 8 == 0 for b in buckets)
    plan = data.shuffled([np.arange(1000)], 16, seed=0, epoch=0, lengths=lengths, buckets=buckets)
    assert plan.lengths is not None
    assert sorted(plan.rows[plan.weights == 1]) == list(range(1000))
    assert set(plan.lengths) <= set(buckets)
    assert np.all(lengths[plan.rows].max(1) <= plan.lengths)
    plain = data.shuffled([np.arange(1000)], 16, seed=0, epoch=0)
    # What is computed, padding included: far less than with the longest of each mixed batch.
    assert plan.lengths.sum() < 0.75 * lengths[plain.rows].max(1).sum()
    # The long batches do not all come last.
    assert np.argmax(plan.lengths) < len(plan.lengths) - 16
    again = data.in_order(1000, 16, lengths=lengths, buckets=buckets)
    assert np.all(np.diff(lengths[again.rows.ravel()[:1000]]) >= 0)


def test_buckets_of_equal_lengths_are_one() -> None:
    assert data.make_buckets(np.full(9, 12), 16) == (16,)
    assert data.make_buckets(np.array([3, 9, 17, 25, 33, 41, 49]), 50, number=1) == (50,)
    assert data.make_buckets(np.array([5, 6, 30]), 32)[-1] == 32
    assert data.make_buckets(np.array([0, 0, 12]), 16) == (8, 16)  # an empty text has its place


def test_no_other_choice_of_lengths_pads_less() -> None:
    rng = np.random.default_rng(5)
    lengths = np.minimum(rng.geometric(0.04, 300), 60)

    def tokens(buckets: tuple[int, ...]) -> int:
        return sum(min(b for b in buckets if b >= length) for length in lengths)

    for number in (1, 2, 3):
        others = itertools.combinations(range(8, 60, 8), number - 1)
        least = min(tokens((*other, 60)) for other in others)
        found = data.make_buckets(lengths, 60, number=number)
        assert len(found) == number
        assert tokens(found) == least


def test_a_step_has_a_batch_of_each_group_and_smaller_groups_begin_again() -> None:
    large, small = np.arange(0, 22, 2), np.array([1, 3, 5, 7])
    plan = data.shuffled([large, small], 3, seed=0, epoch=0)
    assert plan.rows.shape == plan.weights.shape == (4, 6)
    first, second = plan.rows[:, :3], plan.rows[:, 3:]
    np.testing.assert_array_equal(plan.weights[:, :3], plan.weights[:, 3:])
    counted = plan.weights[:, :3] == 1
    assert sorted(first[counted]) == large.tolist()
    numbers, times = np.unique(second[counted], return_counts=True)
    assert numbers.tolist() == small.tolist()
    assert times.max() - times.min() <= 1
    assert second.ravel()[:4].tolist() != small.tolist()  # shuffled too
    alone = data.shuffled([large], 3, seed=0, epoch=0)
    np.testing.assert_array_equal(first, alone.rows)


def test_groups_that_meet_are_of_similar_length() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 61, 2000)
    groups = np.split(rng.permutation(2000), 2)
    buckets = data.make_buckets(lengths, 64)
    plan = data.shuffled(groups, 8, seed=0, epoch=0, lengths=lengths, buckets=buckets)
    assert plan.lengths is not None
    assert np.all(lengths[plan.rows].max(1) <= plan.lengths)
    assert set(plan.lengths) <= set(buckets)
    easy, hard = (lengths[half].mean(1) for half in np.split(plan.rows, 2, axis=1))
    assert np.corrcoef(easy, hard)[0, 1] > 0.95


def test_a_batch_is_divided_between_groups_or_each_has_its_own() -> None:
    assert data.split_batch(16, 2, "halves") == (8, 8)
    assert data.split_batch(16, 3, "halves") == (6, 5, 5)  # the first have what is left over
    assert data.split_batch(17, 3, "halves") == (6, 6, 5)
    assert data.split_batch(16, 3, "each") == (16, 16, 16)
    assert data.split_batch(16, 1, "halves") == data.split_batch(16, 1, "each") == (16,)
    with pytest.raises(ValueError, match="batch_size=2: expected at least 3, a row of each group"):
        data.split_batch(2, 3, "halves")
    with pytest.raises(ValueError, match="batch_split='half': expected one of halves, each"):
        data.split_batch(2, 3, "half")


@pytest.mark.parametrize("n", [2, 15, 16, 17, 31, 32, 33, 100, 101])
@pytest.mark.parametrize("batch", [2, 8, 16])
def test_halves_have_the_updates_of_ordinary_batches(n: int, batch: int) -> None:
    groups = np.arange(n)[: -(-n // 2)], np.arange(n)[-(-n // 2) :]
    sizes = data.split_batch(batch, 2, "halves")
    plan = data.shuffled(groups, sizes, seed=0, epoch=0)
    ordinary = data.shuffled([np.arange(n)], batch, seed=0, epoch=0)
    assert plan.rows.shape == plan.weights.shape == ordinary.rows.shape
    easy, hard = plan.rows[:, : sizes[0]], plan.rows[:, sizes[0] :]
    counted = plan.weights[:, : sizes[0]] == 1
    assert sorted(easy[counted]) == groups[0].tolist()
    assert set(hard[plan.weights[:, sizes[0] :] == 1]) == set(groups[1].tolist())


def test_three_groups_of_unequal_rows_are_each_gone_through() -> None:
    groups = np.split(np.arange(40), [10, 22])  # 10, 12 and 18 in steps of 3, 3 and 2: 9 steps
    plan = data.shuffled(groups, data.split_batch(8, 3, "halves"), seed=1, epoch=0)
    assert plan.rows.shape == (9, 8)
    parts = np.split(plan.rows, [3, 6], axis=1)
    for group, part, weights in zip(groups, parts, np.split(plan.weights, [3, 6], 1), strict=True):
        assert set(part[weights == 1]) == set(group)
        assert weights.all(), "smaller groups begin again"
    assert sorted(parts[2].ravel()) == groups[2].tolist()
