import dataclasses
import multiprocessing
import pathlib

import numpy as np
import pytest

from calib_jax import data


@pytest.fixture(scope="module")
def train(tfds_imagenet: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> data.Dataset:
    cache = tmp_path_factory.mktemp("labels")
    return data.load("imagenet", "train", tfds_imagenet, num_val=4, cache_dir=cache)


PLAN = np.random.default_rng(0).permutation(16).astype(np.int32).reshape(8, 2)


def _images(dataset: data.Dataset, plan: np.ndarray = PLAN, **options: int | None) -> np.ndarray:
    return np.stack([b["image"] for b in data.stream(dataset, plan, **{"seed": 1} | options)])


def test_batches_follow_the_plan(train: data.Dataset) -> None:
    images = _images(train, seed=None)
    assert images.shape == (8, 2, 224, 224, 3)
    for step in range(8):
        for row in range(2):
            expected = train.read(int(PLAN[step, row]), None)["image"]
            np.testing.assert_array_equal(images[step, row], expected)


def test_a_later_start_is_the_rest_of_the_stream(train: data.Dataset) -> None:
    whole = _images(train)
    np.testing.assert_array_equal(_images(train, start=3), whole[3:])
    assert list(data.stream(train, PLAN, seed=1, start=8)) == []


def test_workers_change_nothing(train: data.Dataset) -> None:
    np.testing.assert_array_equal(_images(train, start=1, workers=2), _images(train, start=1))


def test_chance_depends_on_seed_epoch_and_id_only(train: data.Dataset) -> None:
    whole = _images(train)
    assert not np.array_equal(_images(train, seed=2), whole)
    assert not np.array_equal(_images(train, epoch=1), whole)
    # In another batch, at another position of another cut of the set: the same crop.
    turned = train.take(np.arange(16)[::-1])
    np.testing.assert_array_equal(_images(turned, 15 - PLAN[::-1]), whole[::-1])


def test_workers_end_when_the_reader_stops_early(train: data.Dataset) -> None:
    batches = data.stream(train, PLAN, seed=1, workers=1)
    first = next(batches)["image"]
    np.testing.assert_array_equal(first, _images(train, PLAN[:1])[0])
    assert type(first) is np.ndarray  # not a view of memory that goes with its worker
    assert multiprocessing.active_children()
    batches.close()
    assert not multiprocessing.active_children()


def test_sets_in_memory_stream_too() -> None:
    digits = data.load("digits", "val")
    plan = np.arange(12).reshape(3, 4)
    rows = [b["image"] for b in data.stream(digits, plan, seed=0, start=1)]
    np.testing.assert_array_equal(np.concatenate(rows), digits.inputs["image"][4:12])


def test_a_reader_that_fails_stops_the_stream(train: data.Dataset) -> None:
    def fails(position: int, rng: np.random.Generator | None) -> dict[str, np.ndarray]:
        raise ValueError(f"record {position} is no image")

    with pytest.raises(ValueError, match="record 13 is no image"):
        next(data.stream(dataclasses.replace(train, read=fails), np.array([[13]]), seed=1))


def test_wrong_plans_are_refused_at_once(train: data.Dataset) -> None:
    with pytest.raises(ValueError, match=r"plan of shape \(16,\): expected \[steps, batch\]"):
        data.stream(train, PLAN.ravel(), seed=1)
    with pytest.raises(ValueError, match="start=9: expected 0 to 8"):
        data.stream(train, PLAN, seed=1, start=9)
