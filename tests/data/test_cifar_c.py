"""CIFAR-10-C, on tiny files in the publishers' format."""

import pathlib

import numpy as np
import pytest

from calib_jax import data

N = 4  # images of each severity


def _write(
    folder: pathlib.Path, name: str = "CIFAR-10-C", largest: int = 9
) -> tuple[np.ndarray, np.ndarray]:
    folder = folder / name
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (5 * N, 32, 32, 3), dtype=np.uint8)
    labels = np.tile(np.array([3, largest, 0, 7], np.uint8), 5)
    np.save(folder / "gaussian_noise.npy", images)
    np.save(folder / "fog.npy", images[::-1])
    np.save(folder / "labels.npy", labels)
    return images, labels


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_a_severity_is_a_fifth_of_the_file(tmp_path: pathlib.Path, severity: int) -> None:
    images, labels = _write(tmp_path)
    found = data.load("cifar10_c", "test", tmp_path, corruption="gaussian_noise", severity=severity)
    rows = slice((severity - 1) * N, severity * N)
    np.testing.assert_array_equal(found.inputs["image"], images[rows])
    np.testing.assert_array_equal(found.labels, labels[rows])
    np.testing.assert_array_equal(found.ids, range(N))
    assert (found.labels.dtype, found.inputs["image"].dtype) == (np.int32, np.uint8)
    assert found.notes == ("not the complete set: 4 of 10000 images",)
    assert (found.num_classes, found.label_names[3]) == (10, "cat")
    assert type(found.inputs["image"]) is np.ndarray, "the file may go away"


def test_corruptions_are_files(tmp_path: pathlib.Path) -> None:
    images, _ = _write(tmp_path)
    fog = data.load("cifar10_c", "test", tmp_path, corruption="fog")
    np.testing.assert_array_equal(fog.inputs["image"], images[::-1][-N:])  # 5 unless told otherwise
    for named in ("", "snow", "labels"):
        with pytest.raises(ValueError, match=f"{named!r}: expected one of fog, gaussian_noise, as"):
            data.load("cifar10_c", "test", tmp_path, corruption=named)
    with pytest.raises(ValueError, match="severity=6: expected 1, 2, 3, 4 or 5"):
        data.load("cifar10_c", "test", tmp_path, corruption="fog", severity=6)
    with pytest.raises(ValueError, match="split='train': expected 'test', the only one there is"):
        data.load("cifar10_c", "train", tmp_path, corruption="fog")


def test_missing_files_are_explained(tmp_path: pathlib.Path, monkeypatch) -> None:
    with pytest.raises(ValueError, match=r"cifar10_c is not here.*labels.npy.*zenodo.org"):
        data.load("cifar10_c", "test", tmp_path, corruption="fog")
    assert not data.corrupted_set("cifar10", "fog", 5, tmp_path)
    _write(tmp_path)
    assert data.corrupted_set("cifar10", "fog", 5, tmp_path)
    assert not data.corrupted_set("cifar10", "snow", 5, tmp_path)
    monkeypatch.delenv("CALIB_JAX_DATA", raising=False)
    assert not data.corrupted_set("cifar10", "fog", 5)
    monkeypatch.setenv("CALIB_JAX_DATA", str(tmp_path))
    assert data.corrupted_set("cifar10", "fog", 5)


def test_files_that_are_not(tmp_path: pathlib.Path) -> None:
    images, labels = _write(tmp_path)
    fog, names = (tmp_path / "CIFAR-10-C" / f"{name}.npy" for name in ("fog", "labels"))

    def expect(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            data.load("cifar10_c", "test", tmp_path, corruption="fog")

    whole = fog.read_bytes()
    for broken in (b"", b"<html>", whole[:-1], whole[:50]):
        fog.write_bytes(broken)
        expect("fog.npy: not a complete .npy array of numbers; get it again")
    np.save(fog, np.array([{"a": 1}] * 20, object), allow_pickle=True)
    expect("fog.npy: not a complete .npy array of numbers; get it again")
    np.save(fog, images[:-1])
    expect(r"fog.npy: expected uint8 \[20, 32, 32, 3\] .* got uint8 \[19, 32, 32, 3\]")
    np.save(fog, images / 255)
    expect(r"got float64 \[20, 32, 32, 3\]")
    np.save(fog, images)
    for wrong in (labels[:-1], labels[:0], labels.reshape(5, 4), labels + 1):
        np.save(names, wrong)
        expect("labels.npy: expected labels 0 to 9 of five times the test set")


def test_a_hundred_classes(tmp_path: pathlib.Path) -> None:
    images, labels = _write(tmp_path, "CIFAR-100-C", largest=99)
    found = data.load("cifar100_c", "test", tmp_path, corruption="fog", severity=5)
    np.testing.assert_array_equal(found.inputs["image"], images[::-1][-N:])
    np.testing.assert_array_equal(found.labels, labels[-N:])
    assert found.num_classes == 100
    assert data.corrupted_set("cifar100", "fog", 5, tmp_path)
    assert not data.corrupted_set("cifar10", "fog", 5, tmp_path)
    assert not data.corrupted_set("svhn", "fog", 5, tmp_path)
