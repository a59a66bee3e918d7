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


def test_evaluation_takes_the_center(tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path) -> None:
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
    assert _imagenet._random_box(2000, 10, rng) == _imagenet._center(2000, 10)


def test_labels_are_scanned_once(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_imagenet, "_CHUNK", 3)  # several reads, the last one shorter
    first = data.load("imagenet", "train", tfds_imagenet, num_val=5, cache_dir=tmp_path)

    def no_scan(source: object, part: str) -> None:
        raise AssertionError("scanned again")

    monkeypatch.setattr(_imagenet, "_index", no_scan)
    second = data.load("imagenet", "train", tfds_imagenet, num_val=5, cache_dir=tmp_path)
    np.testing.assert_array_equal(first.labels, second.labels)
    with pytest.raises(AssertionError, match="scanned again"):  # another split, other labels
        data.load("imagenet", "test", tfds_imagenet, cache_dir=tmp_path)


def test_a_damaged_image_is_named() -> None:
    with pytest.raises(ValueError, match="record 0, without a name, is no image"):
        _imagenet.read([{"image": b"\xff\xd8 no jpeg"}], 0, None)


def test_halves_of_the_validation_images(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options = {"halve_validation": True, "cache_dir": tmp_path}
    train, val, test = (
        data.load("imagenet", split, tfds_imagenet, **options) for split in ("train", "val", "test")
    )
    np.testing.assert_array_equal(train.ids, np.arange(20))  # all of them, none for validation
    order = np.random.default_rng(0).permutation(5)
    assert (list(val.ids), list(test.ids)) == (list(order[:2]), list(order[2:]))
    for half in (val, test):
        assert half.read is not None
        for position in range(len(half)):
            # Red holds the image's number, from 100: these are the validation images.
            number = half.read(position, None)["image"][0, 0, 0]
            assert number >= 100
            assert number % 3 == half.labels[position]
    assert (train.split, val.split, test.split) == ("train", "val", "test")
    assert val.notes == test.notes == ("not the complete set: 5 of 50000 images",)


def test_imagenet_c_is_matched_by_file_name(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options = {"corruption": "fog", "severity": 2, "cache_dir": tmp_path}
    corrupted = data.load("imagenet_c", "test", tfds_imagenet, **options)
    test = data.load("imagenet", "test", tfds_imagenet, cache_dir=tmp_path)
    assert (corrupted.name, corrupted.label_names) == ("imagenet_c", test.label_names)
    np.testing.assert_array_equal(corrupted.ids, test.ids)
    np.testing.assert_array_equal(corrupted.labels, test.labels)
    assert corrupted.read is not None
    assert test.read is not None
    for position in range(5):
        image = corrupted.read(position, None)["image"]
        assert image.shape == (224, 224, 3)
        # The same image as ImageNet's at that position: its number, 20 brighter.
        assert image[0, 0, 0] == test.read(position, None)["image"][0, 0, 0] + 20
    assert corrupted.notes == ("not the complete set: 5 of 50000 images",)
    assert data.corrupted_set("imagenet", "fog", 2, tfds_imagenet)


def test_folders_of_imagenet_c_that_do_not_fit(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(tfds_imagenet, tmp_path / "data")
    folder = tmp_path / "data/ImageNet-C/weather/fog/2"
    options = {"corruption": "fog", "severity": 2, "cache_dir": tmp_path}
    shutil.copy(folder / "n1/ILSVRC2012_val_00000100.JPEG", folder / "n2/another.JPEG")
    found = data.load("imagenet_c", "test", tmp_path / "data", **options)
    assert found.notes[0] == "1 of 6 images are not ImageNet's; left out"
    assert len(found) == 5
    shutil.move(folder / "n1/ILSVRC2012_val_00000100.JPEG", folder / "n2")
    with pytest.raises(
        ValueError, match=r"n2/ILSVRC2012_val_00000100.JPEG: expected in n1, the cl"
    ):
        data.load("imagenet_c", "test", tmp_path / "data", **options)
    (folder / "n2/ILSVRC2012_val_00000100.JPEG").unlink()
    found = data.load("imagenet_c", "test", tmp_path / "data", **options)
    assert found.notes[1] == "not the complete set: 4 of 50000 images"
    for path in folder.glob("*/ILSVRC*"):
        path.unlink()
    with pytest.raises(
        ValueError, match="imagenet_c: none of its 1 images has the file name of on"
    ):
        data.load("imagenet_c", "test", tmp_path / "data", **options)
    with pytest.raises(ValueError, match=r"corruption='\*': expected a name such as 'fog'"):
        data.load("imagenet_c", "test", tmp_path / "data", **options | {"corruption": "*"})


def test_images_made_by_tfds_are_never_called_imagenet_c(
    tfds_imagenet: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options = {"corruption": "fog", "severity": 3, "cache_dir": tmp_path}
    corrupted = data.load("imagenet_c", "test", tfds_imagenet, **options)
    assert (len(corrupted), corrupted.name) == (5, "imagenet2012_corrupted")
    assert corrupted.notes[0] == (
        "fog 3 made by tfds's imagenet2012_corrupted: not the published ImageNet-C"
    )
    test = data.load("imagenet", "test", tfds_imagenet, cache_dir=tmp_path)
    np.testing.assert_array_equal(corrupted.ids, test.ids)
    np.testing.assert_array_equal(corrupted.labels, test.labels)
    assert corrupted.read is not None
    assert test.read is not None
    for position in range(5):
        image = corrupted.read(position, None)["image"]
        assert image[0, 0, 0] == test.read(position, None)["image"][0, 0, 0] + 100
        np.testing.assert_array_equal(image[0, :, 1], np.arange(224))  # cropped once, not again
    assert data.corrupted_set("imagenet", "fog", 3, tfds_imagenet)
    assert not data.corrupted_set("imagenet", "fog", 4, tfds_imagenet)
    with pytest.raises(ValueError, match=r"imagenet_c is not here.*ImageNet-C/snow/3.*zenodo.org"):
        data.load("imagenet_c", "test", tfds_imagenet, **options | {"corruption": "snow"})
    with pytest.raises(ValueError, match="split='val': expected 'test', the only one"):
        data.load("imagenet_c", "val", tfds_imagenet, **options)
