"""Readers of image files, on tiny files in the publishers' formats."""

import gzip
import pathlib

import numpy as np
import pytest
import scipy.io
from PIL import Image

from calib_jax import data


def _bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# Fashion-MNIST


def _idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def _fashion(folder: pathlib.Path, suffix: str) -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir(parents=True)
    images, labels = _bytes(20, 28, 28), np.arange(20, dtype=np.uint8) % 10
    for prefix, part in (("train", slice(0, 14)), ("t10k", slice(14, 20))):
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = _idx(array[part])
            path = folder / f"{prefix}-{kind}-ubyte{suffix}"
            path.write_bytes(gzip.compress(content) if suffix else content)
    return images, labels


@pytest.mark.parametrize(
    ("folder", "suffix"),
    [("fashion-mnist", ".gz"), ("fashion_mnist", ""), ("FashionMNIST/raw", "")],
)
def test_fashion_mnist(tmp_path: pathlib.Path, folder: str, suffix: str) -> None:
    images, labels = _fashion(tmp_path / folder, suffix)
    splits = [data.load("fashion_mnist", s, tmp_path, num_val=4) for s in ("train", "val", "test")]
    assert [len(d) for d in splits] == [10, 4, 6]
    order = np.random.default_rng(0).permutation(14)
    np.testing.assert_array_equal(splits[1].ids, order[:4])
    np.testing.assert_array_equal(splits[0].ids, order[4:])
    for dataset, first in zip(splits, (0, 0, 14), strict=True):
        np.testing.assert_array_equal(dataset.inputs["image"][..., 0], images[first + dataset.ids])
        np.testing.assert_array_equal(dataset.labels, labels[first + dataset.ids])
        assert dataset.inputs["image"].shape[1:] == (28, 28, 1)
    assert splits[0].notes == ("not the complete set: 14 of 60000 images",)


def test_fashion_mnist_files_that_are_not(tmp_path: pathlib.Path) -> None:
    _fashion(tmp_path / "fashion-mnist", ".gz")
    path = tmp_path / "fashion-mnist/t10k-images-idx3-ubyte.gz"
    content = path.read_bytes()
    for broken, message in (
        (content[:-30], "not a complete gzip file"),
        (b"<html>", "not a complete gzip file"),
        (content[:99] + b"\0" * 99 + content[198:], "not a complete gzip file"),
        (gzip.compress(gzip.decompress(content)[:-5]), r"expected \(6, 28, 28\) bytes .* got 4699"),
        (gzip.compress(b"\x00\x00\x0d\x03"), "not an idx file of bytes with 3 axes"),
    ):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=message):
            data.load("fashion_mnist", "test", tmp_path)


# CIFAR


def _cifar10(folder: pathlib.Path, **batches: np.ndarray) -> None:
    folder = folder / "cifar-10-batches-bin"
    folder.mkdir(exist_ok=True)
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    for name, rows in batches.items():
        rows.tofile(folder / f"{name}.bin")


def _rows(n: int, num_labels: int = 1, classes: int = 10, seed: int = 0) -> np.ndarray:
    rows = _bytes(n, num_labels + 3072, seed=seed)
    rows[:, :num_labels] %= classes
    return rows


def test_cifar10_pixels_are_where_they_belong(tmp_path: pathlib.Path) -> None:
    rows = _rows(12)
    _cifar10(tmp_path, test_batch=rows)
    test = data.load("cifar10", "test", tmp_path)
    assert test.inputs["image"].shape == (12, 32, 32, 3)
    np.testing.assert_array_equal(test.labels, rows[:, 0])
    # The file holds a plane of red, then green, then blue, each row by row.
    assert test.inputs["image"][5, 30, 2, 1] == rows[5, 1 + 1024 + 30 * 32 + 2]
    assert test.label_names == tuple("abcdefghij")


def test_cifar10_is_split_as_in_the_papers(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    _cifar10(tmp_path)
    for i in range(1, 6):  # full size, but holes: black airplanes that take no room on the disk
        with (folder / f"data_batch_{i}.bin").open("wb") as file:
            file.truncate(10_000 * 3073)
    val = data.load("cifar10", "val", tmp_path)
    np.testing.assert_array_equal(val.ids[:5], [26247, 35067, 34590, 16668, 12196])
    train = data.load("cifar10", "train", tmp_path)
    assert (len(train), len(val), val.notes) == (45_000, 5_000, ())
    assert len(np.union1d(train.ids, val.ids)) == 50_000


def test_cifar10_takes_the_batches_there_are(tmp_path: pathlib.Path) -> None:
    batches = {"data_batch_1": _rows(20), "data_batch_3": _rows(10, seed=1)}
    _cifar10(tmp_path, **batches)
    splits = [data.load("cifar10", split, tmp_path, num_val=6) for split in ("train", "val")]
    assert [len(d) for d in splits] == [24, 6]
    assert splits[0].notes == ("not the complete set: 30 of 50000 images",)
    ids = np.concatenate([d.ids for d in splits])
    assert sorted(ids) == [*range(20), *range(20_000, 20_010)]
    for dataset in splits:
        for image, id_ in zip(dataset.inputs["image"], dataset.ids, strict=True):
            rows = batches["data_batch_1" if id_ < 20 else "data_batch_3"]
            assert image[0, 0, 0] == rows[id_ % 10_000, 1]


def test_cifar100_has_fine_labels(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    names = [f"fine{i}" for i in range(100)]
    (folder / "fine_label_names.txt").write_text("\n".join(names))
    for file, seed in (("train", 0), ("test", 1)):
        _rows(30, 2, 100, seed).tofile(folder / f"{file}.bin")
    test = data.load("cifar100", "test", tmp_path)
    np.testing.assert_array_equal(test.labels, _rows(30, 2, 100, 1)[:, 1])
    np.testing.assert_array_equal(test.inputs["image"][:, 0, 0, 0], _rows(30, 2, 100, 1)[:, 2])
    assert test.label_names == tuple(names)
    order = np.arange(30)
    np.random.RandomState(1).shuffle(order)
    val = data.load("cifar100", "val", tmp_path, num_val=3)
    np.testing.assert_array_equal(val.ids, order[:3])
    with pytest.raises(ValueError, match="cifar100: num_val=5000: expected 1 to 29"):
        data.load("cifar100", "val", tmp_path)


def test_malformed_rows_are_counted_and_left_out(tmp_path: pathlib.Path) -> None:
    rows = _rows(200)
    rows[[7, 150], 0] = 10, 255
    _cifar10(tmp_path, data_batch_1=rows, test_batch=rows)
    test = data.load("cifar10", "test", tmp_path)
    assert len(test) == 198
    assert not {7, 150} & set(test.ids)
    assert test.notes[0] == (
        "2 of 200 rows are malformed: cifar-10-batches-bin/test_batch.bin:8 (label 10 of 10 classes), "
        "cifar-10-batches-bin/test_batch.bin:151 (label 255 of 10 classes); left out"
    )
    # Who is drawn for validation does not depend on which rows are broken.
    order = np.arange(200)
    np.random.RandomState(1).shuffle(order)
    val = data.load("cifar10", "val", tmp_path, num_val=150)
    np.testing.assert_array_equal(val.ids, [i for i in order[:150] if i not in (7, 150)])
    with pytest.raises(ValueError, match=r"2 of 200 rows.*test_batch.bin:8 .*max_malformed=0.005"):
        data.load("cifar10", "test", tmp_path, max_malformed=0.005)
    with pytest.raises(ValueError, match="max_malformed=2: expected a fraction"):
        data.load("cifar10", "test", tmp_path, max_malformed=2)


def test_a_cut_file_is_refused(tmp_path: pathlib.Path) -> None:
    _cifar10(tmp_path, test_batch=_rows(3).ravel()[:-1])
    with pytest.raises(ValueError, match="9218 bytes are no whole number of 3073-byte images"):
        data.load("cifar10", "test", tmp_path)
    (tmp_path / "cifar-10-batches-bin/batches.meta.txt").unlink()
    with pytest.raises(ValueError, match=r"batches.meta.txt is missing: it names the classes"):
        data.load("cifar10", "test", tmp_path)


# SVHN


def test_svhn(tmp_path: pathlib.Path) -> None:
    (tmp_path / "svhn").mkdir()
    images, labels = _bytes(32, 32, 3, 20), np.arange(20, dtype=np.uint8)[:, None] % 10 + 1
    for part in ("train", "test"):
        scipy.io.savemat(tmp_path / f"svhn/{part}_32x32.mat", {"X": images, "y": labels})
    test = data.load("svhn", "test", tmp_path)
    np.testing.assert_array_equal(test.inputs["image"][3], images[..., 3])
    np.testing.assert_array_equal(test.labels[:10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0])
    assert test.notes == ("not the complete set: 20 of 26032 images",)
    val = data.load("svhn", "val", tmp_path, num_val=5)
    np.testing.assert_array_equal(val.ids, np.random.default_rng(0).permutation(20)[:5])
    np.testing.assert_array_equal(val.labels, test.labels[val.ids])


def test_svhn_files_that_are_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "test_32x32.mat"
    scipy.io.savemat(path, {"X": _bytes(32, 32, 3, 4)}, do_compression=True)
    whole = path.read_bytes()
    damaged = whole[:200] + b"\0" * 50 + whole[250:]
    for content in (b"<html>not found</html>" * 20, b"", whole[:9], whole[:-9], damaged):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"not the .mat file of SVHN"):
            data.load("svhn", "test", tmp_path)
    scipy.io.savemat(path, {"X": _bytes(32, 32, 3, 4)})
    with pytest.raises(ValueError, match=r"not the .mat file of SVHN \('y'\)"):
        data.load("svhn", "test", tmp_path)
    scipy.io.savemat(path, {"X": _bytes(32, 32, 3, 4), "y": np.ones((3, 1))})
    with pytest.raises(ValueError, match=r"X \(32, 32, 3, 4\) does not fit 3 labels"):
        data.load("svhn", "test", tmp_path)


# Tiny-ImageNet


@pytest.fixture
def tiny(tmp_path: pathlib.Path) -> pathlib.Path:
    """Three classes with 12 images each, 100 test images; the red of an image is its class and number."""
    folder = tmp_path / "tiny-imagenet-200"
    wnids = ["n30", "n10", "n20"]
    (folder / "val/images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    words = {"n10": "goldfish, Carassius auratus", "n20": "cat", "n30": "dog", "n99": "entity"}
    (folder / "words.txt").write_text("".join(f"{w}\t{text}\n" for w, text in words.items()))

    def save(path: pathlib.Path, red: int, mode: str = "RGB") -> None:
        colour = (red, 128, 128) if mode == "RGB" else 128
        Image.new(mode, (64, 64), colour).save(path, "PNG")  # by content, whatever the name says

    for label, wnid in enumerate(wnids):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for i in range(12):
            save(folder / f"train/{wnid}/images/{wnid}_{i}.JPEG", 50 * label + i)
    lines = []
    for i in range(100):
        save(folder / f"val/images/val_{i}.JPEG", i, "L" if i == 1 else "RGB")
        lines.append(f"val_{i}.JPEG\t{wnids[i % 3]}\t0\t0\t62\t62\n")
    (folder / "val/val_annotations.txt").write_text("".join(lines))
    return folder


def test_tiny_imagenet(tiny: pathlib.Path) -> None:
    splits = {
        s: data.load("tiny_imagenet", s, tiny.parent, num_val=10) for s in ("train", "val", "test")
    }
    assert [len(d) for d in splits.values()] == [26, 10, 100]
    order = np.random.default_rng(0).permutation(36)
    np.testing.assert_array_equal(splits["val"].ids, order[:10])
    for split in ("train", "val"):
        red = splits[split].inputs["image"][:, 0, 0, 0].astype(int)
        # Class by class in the order of wnids.txt, and n_2 before n_10.
        np.testing.assert_array_equal(red // 50 * 12 + red % 50, splits[split].ids)
        np.testing.assert_array_equal(red // 50, splits[split].labels)
    test = splits["test"]
    assert test.label_names == ("dog", "goldfish", "cat")
    np.testing.assert_array_equal(test.labels, np.arange(100) % 3)
    np.testing.assert_array_equal(test.ids, np.arange(100))
    assert test.inputs["image"].shape == (100, 64, 64, 3)
    assert (test.inputs["image"][1] == 128).all()  # a grey image has three equal channels
    assert test.notes == ("not the complete set: 100 of 10000 images",)


def test_tiny_imagenet_malformed(tiny: pathlib.Path) -> None:
    annotations = tiny / "val/val_annotations.txt"
    lines = annotations.read_text().splitlines()
    lines[4] = ""
    lines[6] = "val_6.JPEG\tn77\t0\t0\t62\t62"
    annotations.write_text("\n".join(lines))
    (tiny / "val/images/val_8.JPEG").write_bytes(b"nothing")
    (tiny / "val/images/val_9.JPEG").unlink()
    Image.new("RGB", (32, 64)).save(tiny / "val/images/val_10.JPEG", "PNG")
    with pytest.raises(ValueError, match="5 of 100 rows are malformed"):
        data.load("tiny_imagenet", "test", tiny.parent)
    test = data.load("tiny_imagenet", "test", tiny.parent, max_malformed=0.05)
    assert sorted(set(range(100)) - set(test.ids)) == [4, 6, 8, 9, 10]
    np.testing.assert_array_equal(test.labels, test.ids % 3)
    for place in (
        "val/val_annotations.txt:5 (no class of wnids.txt)",
        "val/val_annotations.txt:7 (no class of wnids.txt)",
        "images/val_8.JPEG:1 (not an image)",
        "images/val_9.JPEG:1 (missing)",
        "images/val_10.JPEG:1 (32x64 pixels)",
    ):
        assert place in test.notes[0]
