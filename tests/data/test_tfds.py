import json
import pathlib
import shutil

import numpy as np
import pytest

from calib_jax import data
from calib_jax.data import _imagenet


def test_cifar10_is_the_same_from_tfds_and_from_the_binary_edition(
    two_cifar10s: tuple[pathlib.Path, pathlib.Path],
) -> None:
    for split in ("train", "val", "test"):
        stored, binary = (data.load("cifar10", split, d, num_val=7) for d in two_cifar10s)
        assert len(stored) == {"train": 23, "val": 7, "test": 10}[split]
        np.testing.assert_array_equal(stored.inputs["image"], binary.inputs["image"])
        np.testing.assert_array_equal(stored.labels, binary.labels)
        np.testing.assert_array_equal(stored.ids, binary.ids)
        assert stored.label_names == binary.label_names
    assert stored.notes == ("not the complete set: 10 of 10000 images",)


def test_a_set_prepared_as_tfrecord_is_refused_with_the_cure(
    two_cifar10s: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    shutil.copytree(two_cifar10s[0] / "cifar10", tmp_path / "cifar10")
    info = tmp_path / "cifar10/1.0.0/dataset_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"fileFormat": "tfrecord"}))
    with pytest.raises(ValueError, match=r"prepared as tfrecord.*file_format='array_record'"):
        data.load("cifar10", "test", tmp_path)


def test_a_split_that_was_not_prepared_is_named(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(tfds_imagenet / "imagenet2012", tmp_path / "imagenet2012")
    info = tmp_path / "imagenet2012/1.0.0/dataset_info.json"
    content = json.loads(info.read_text())
    content["splits"] = [s for s in content["splits"] if s["name"] == "train"]
    info.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="no split 'validation', only train"):
        data.load("imagenet", "test", tmp_path, cache_dir=tmp_path)


def test_imagenet_reads_what_was_stored(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    splits = {
        split: data.load("imagenet", split, tfds_imagenet, num_val=5, cache_dir=tmp_path)
        for split in ("train", "val", "test")
    }
    assert [len(d) for d in splits.values()] == [15, 5, 5]
    assert sorted([*splits["train"].ids, *splits["val"].ids]) == list(range(20))
    assert splits["test"].label_names == ("n0", "n1", "n2")
    assert splits["test"].notes == ("not the complete set: 5 of 50000 images",)
    for dataset in splits.values():
        assert dataset.inputs == {}
        for position in range(len(dataset)):
            image = dataset.read(position, None)["image"]
            # Red holds the image's number, and its label is that modulo 3.
            assert image[0, 0, 0] % 3 == dataset.labels[position]


def test_evaluation_takes_the_centre(tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path) -> None:
    test = data.load("imagenet", "test", tfds_imagenet, cache_dir=tmp_path)
    image = test.read(0, None)["image"]
    assert image.shape == (224, 224, 3)
    assert image.dtype == np.uint8
    # The shorter side is 256 already: rows 16 to 239, columns 48 to 271 (stored modulo 256).
    np.testing.assert_array_equal(image[:, 0, 2], np.arange(16, 240))
    np.testing.assert_array_equal(image[0, :, 1], np.arange(48, 272) % 256)


def test_training_crops_and_mirrors_at_random(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    train = data.load("imagenet", "train", tfds_imagenet, num_val=5, cache_dir=tmp_path)
    reads = [train.read(0, np.random.default_rng(seed))["image"] for seed in range(40)]
    again = train.read(0, np.random.default_rng(7))["image"]
    np.testing.assert_array_equal(reads[7], again)
    assert len({image.tobytes() for image in reads}) == 40
    # Columns fall to the right in a mirrored image; the step over 255 is not looked at.
    mirrored = [np.median(np.diff(image[0, :, 1].astype(int))) < 0 for image in reads]
    assert 8 <= sum(mirrored) <= 32


def test_random_boxes_keep_to_the_limits() -> None:
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(500):
        left, top, right, bottom = _imagenet._random_box(500, 375, rng)
        assert 0 <= left < right <= 500
        assert 0 <= top < bottom <= 375
        assert 0.74 <= (right - left) / (bottom - top) <= 1.35
        shares.append((right - left) * (bottom - top) / (500 * 375))
    assert 0.079 <= min(shares) < 0.15
    assert max(shares) > 0.8
    assert _imagenet._random_box(2000, 10, rng) == _imagenet._centre(2000, 10)


def test_labels_are_scanned_once(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_imagenet, "_CHUNK", 3)  # several reads, the last one shorter
    first = data.load("imagenet", "train", tfds_imagenet, num_val=5, cache_dir=tmp_path)

    def no_scan(source: object) -> None:
        raise AssertionError("scanned again")

    monkeypatch.setattr(_imagenet, "_labels", no_scan)
    second = data.load("imagenet", "train", tfds_imagenet, num_val=5, cache_dir=tmp_path)
    np.testing.assert_array_equal(first.labels, second.labels)
    with pytest.raises(AssertionError, match="scanned again"):  # another split, other labels
        data.load("imagenet", "test", tfds_imagenet, cache_dir=tmp_path)


def test_a_damaged_image_is_named() -> None:
    with pytest.raises(ValueError, match="record 0 is no image"):
        _imagenet._read([{"image": b"\xff\xd8 no jpeg"}], 0, None)


def test_imagenet_c_is_read_as_it_was_cropped(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options = {"corruption": "fog", "severity": 3, "cache_dir": tmp_path}
    corrupted = data.load("imagenet_c", "test", tfds_imagenet, **options)
    assert (len(corrupted), corrupted.name, corrupted.label_names) == (
        5, "imagenet_c", ("n0", "n1", "n2"),
    )  # fmt: skip
    for position in range(5):
        image = corrupted.read(position, None)["image"]
        assert image[0, 0, 0] >= 200
        assert (image[0, 0, 0] - 100) % 3 == corrupted.labels[position]
        np.testing.assert_array_equal(image[0, :, 1], np.arange(224))
    assert data.has_corrupted("imagenet", "fog", 3, tfds_imagenet)
    assert not data.has_corrupted("imagenet", "fog", 4, tfds_imagenet)
    with pytest.raises(ValueError, match=r"imagenet_c is not here.*imagenet2012_corrupted/snow_3"):
        data.load("imagenet_c", "test", tfds_imagenet, **options | {"corruption": "snow"})
    with pytest.raises(ValueError, match="split='val': expected 'test', the only one"):
        data.load("imagenet_c", "val", tfds_imagenet, **options)
