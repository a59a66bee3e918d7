"""Sets to evaluate on besides the test set: others, and the test set corrupted."""

import dataclasses
import pathlib

import numpy as np
import pytest

from calib_jax import data
from calib_jax.experiment._shift import load_shift


@pytest.fixture
def test_set() -> data.Dataset:
    """Six images that call themselves CIFAR-10's, two of the ten left out."""
    rng = np.random.default_rng(1)
    return data.Dataset(
        name="cifar10",
        split="test",
        inputs={"image": np.full((6, 32, 32, 3), 128, np.uint8)},
        labels=rng.integers(0, 10, 6).astype(np.int32),
        ids=np.array([0, 1, 3, 4, 5, 7], np.int32),
        label_names=tuple("abcdefghij"),
        notes=("two were malformed",),
        mean=(0.5,) * 3,
        std=(0.2,) * 3,
    )


def _publish(folder: pathlib.Path, test_set: data.Dataset, corruption: str) -> np.ndarray:
    """All of that corruption's files, for ten images."""
    (folder / "CIFAR-10-C").mkdir()
    images = np.random.default_rng(2).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    labels = np.zeros(10, np.uint8)
    labels[test_set.ids] = test_set.labels
    np.save(folder / "CIFAR-10-C" / f"{corruption}.npy", images)
    np.save(folder / "CIFAR-10-C" / "labels.npy", np.tile(labels, 5))
    return images


def test_a_name_is_that_set(test_set: data.Dataset) -> None:
    name, found = load_shift("digits", test_set, None)
    assert (name, found.name, found.split) == ("digits", "digits", "test")


def test_a_name_may_have_options_of_the_reader(
    test_set: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load(name: str, split: str, data_dir: object, **options: str) -> data.Dataset:
        asked.append((name, split, options))
        return test_set

    monkeypatch.setattr(data, "load", load)
    name, found = load_shift("hellaswag?source=wikihow&whole_context=True", test_set, None)
    assert name == "hellaswag_wikihow_True"
    assert found is test_set
    assert asked == [("hellaswag", "test", {"source": "wikihow", "whole_context": True})]


def test_corruption_is_made_where_no_file_is(test_set: data.Dataset, tmp_path) -> None:
    name, found = load_shift("gaussian_noise:5", test_set, tmp_path)
    assert name == "gaussian_noise_5"  # fit for a file's name
    assert found.name == "cifar10_corrupted", "not the published set's"
    assert found.notes == (
        "two were malformed", "gaussian_noise 5 made with the strengths of CIFAR-10-C, for 32 pixels",
    )  # fmt: skip
    noise = found.inputs["image"] - 128.0
    assert noise.std() == pytest.approx(25.5, rel=0.03)
    assert found.inputs["image"].dtype == np.uint8
    for field in ("labels", "ids", "label_names", "mean", "std"):
        np.testing.assert_array_equal(getattr(found, field), getattr(test_set, field))
    np.testing.assert_array_equal(
        load_shift("gaussian_noise:5", test_set, tmp_path)[1].inputs["image"],
        found.inputs["image"],
        "the same for every run",
    )


def test_an_image_has_its_noise_whatever_stands_beside_it(test_set: data.Dataset, tmp_path) -> None:
    whole = load_shift("gaussian_noise:3", test_set, tmp_path)[1]
    part = load_shift("gaussian_noise:3", test_set.take([4, 2]), tmp_path)[1]
    np.testing.assert_array_equal(part.inputs["image"], whole.inputs["image"][[4, 2]])
    assert not np.array_equal(whole.inputs["image"][0], whole.inputs["image"][1])


def test_published_files_come_first(test_set: data.Dataset, tmp_path) -> None:
    images = _publish(tmp_path, test_set, "fog")
    name, found = load_shift("fog:2", test_set, tmp_path)
    assert name == "fog_2"
    np.testing.assert_array_equal(found.inputs["image"], images[10 + test_set.ids])
    np.testing.assert_array_equal(found.ids, test_set.ids)
    assert found.label_names == test_set.label_names, "so that it is judged too"
    assert found.notes[-1] == "fog 2 from the files of cifar10_c"
    # Of another set, the file says nothing.
    other = dataclasses.replace(test_set, name="cifar100")
    made = load_shift("fog:2", other, tmp_path)[1]
    assert made.notes[-1] == "fog 2 made with the strengths of CIFAR-10-C, for 32 pixels"
    with pytest.raises(ValueError, match="shift='smog:2': expected one of gaussian_noise, shot_no"):
        load_shift("smog:2", other, tmp_path)


def test_published_files_must_fit(test_set: data.Dataset, tmp_path) -> None:
    _publish(tmp_path, test_set, "fog")
    wrong = dataclasses.replace(test_set, labels=(test_set.labels + 1) % 10)
    with pytest.raises(ValueError, match=r"labels.npy disagrees with the labels of cifar10's test"):
        load_shift("fog:2", wrong, tmp_path)
    more = dataclasses.replace(test_set, ids=test_set.ids + 5)
    with pytest.raises(ValueError, match="10 images of fog, but the test set has number 12"):
        load_shift("fog:2", more, tmp_path)


@pytest.mark.parametrize(
    "entry", ["gaussian_noise:", "gaussian_noise:6", "gaussian_noise:5:5", ":"]
)
def test_what_is_no_severity_is_named(entry: str, test_set: data.Dataset) -> None:
    with pytest.raises(ValueError, match=f"shift='{entry}': expected a data set, or a corruption"):
        load_shift(entry, test_set, None)


def test_text_cannot_be_corrupted(test_set: data.Dataset) -> None:
    text = dataclasses.replace(test_set, name="newsgroups", inputs={"text": np.array(["a"] * 6)})
    with pytest.raises(ValueError, match="newsgroups has no images in memory to corrupt"):
        load_shift("gaussian_noise:1", text, None)


def test_a_published_set_that_streams_is_matched_by_id(
    test_set: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More images than the test set has, in another order; an image is the number of its place.
    ids = np.concatenate([np.arange(50, 60), test_set.ids[::-1]])
    labels = np.concatenate([np.zeros(10, np.int32), test_set.labels[::-1]])
    streamed = dataclasses.replace(
        test_set, name="imagenet_c", inputs={}, ids=ids, labels=labels,
        read=lambda position, rng: {"image": np.full((1, 1, 3), position, np.uint8)},
    )  # fmt: skip
    monkeypatch.setattr(data, "corrupted_set", lambda *_: "imagenet_c")
    monkeypatch.setattr(data, "load", lambda *_, **__: streamed)
    test = dataclasses.replace(test_set, name="imagenet")
    name, found = load_shift("fog:3", test, None)
    assert (name, len(found)) == ("fog_3", 6)
    np.testing.assert_array_equal(found.ids, test_set.ids)
    np.testing.assert_array_equal(found.labels, test_set.labels)
    assert found.read is not None
    places = [int(found.read(i, None)["image"][0, 0, 0]) for i in range(6)]
    assert places == [15, 14, 13, 12, 11, 10]
    assert found.notes[-1] == "fog 3 from the files of imagenet_c"
    more = dataclasses.replace(test, ids=test.ids + 1000)
    with pytest.raises(
        ValueError, match="imagenet_c: 6 of the 6 test images are not there, the fir"
    ):
        load_shift("fog:3", more, None)
