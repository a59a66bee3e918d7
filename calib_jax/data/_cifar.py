"""CIFAR-10 and CIFAR-100: the publisher's binary version, or a prepared tfds folder."""

import pathlib
import re

import numpy as np

from calib_jax.data import _tfds
from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, lines, official, split_positions

_PIXELS = 3 * 32 * 32
_PER_BATCH = 10_000  # images in each of CIFAR-10's data_batch files
# The constants of the papers' code, for CIFAR-100 and SVHN as well.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def cifar10(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 5000,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read CIFAR-10: 50,000 + 10,000 color 32x32 images of ten classes.

    As in the papers, validation is the first `num_val` training images after numpy's legacy shuffle
    with seed 1. A folder with fewer `data_batch` files is accepted, with a note.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      num_val: Number of validation images.
      max_malformed: Largest fraction of malformed rows.

    References:
      Krizhevsky, 2009, technical report, University of Toronto.
    """
    return _cifar("cifar10", split, data_dir, num_val, max_malformed)


def cifar100(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 5000,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read CIFAR-100: 50,000 + 10,000 color 32x32 images of a hundred classes (the fine labels).

    Validation, Args and References as for `cifar10`.
    """
    return _cifar("cifar100", split, data_dir, num_val, max_malformed)


def _cifar(
    name: str, split: str, data_dir: pathlib.Path | None, num_val: int, max_malformed: float
) -> Dataset:
    number = name.removeprefix("cifar")
    folder = "cifar-10-batches-bin" if name == "cifar10" else "cifar-100-binary"
    train_files = "data_batch_*.bin" if name == "cifar10" else "train.bin"
    test_file = "test_batch.bin" if name == "cifar10" else "test.bin"
    file = test_file if split == "test" else train_files
    path = find(
        name,
        data_dir,
        (f"{folder}/{file}", *_tfds.patterns(name)),
        f"Get the binary edition (cifar-{number}-binary.tar.gz) from www.cs.toronto.edu and unpack it "
        f"to <data folder>/{folder}/, or prepare tfds's {name} with file_format='array_record'.",
    )
    malformed = Malformed(name, max_malformed)
    if path.name == _tfds.INFO:
        images, labels, ids, names = _from_tfds(path.parent, "test" if split == "test" else "train")
        good = malformed.labels(path.parent, labels, len(names))
    else:
        images, labels, ids, names, good = _from_binary(name, path.parent, file, malformed)
    n = len(labels)
    everything = Dataset(
        name=name,
        split=split,
        inputs={"image": images},
        labels=labels,
        ids=ids,
        label_names=names,
        notes=malformed.notes(n)
        + official("images", n, ROWS[name]["test" if split == "test" else "train"]),
        mean=MEAN,
        std=STD,
    )
    order = np.arange(n)
    np.random.RandomState(1).shuffle(order)
    positions = split_positions(name, split, n, num_val, order)
    return everything.take(positions[good[positions]])


def _from_binary(
    name: str, folder: pathlib.Path, pattern: str, malformed: Malformed
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], np.ndarray]:
    """Return images, labels, ids, class names, and a mask of rows with valid labels."""
    names_file = "batches.meta.txt" if name == "cifar10" else "fine_label_names.txt"
    names = tuple(lines(folder / names_file, "it names the classes"))
    num_labels = 1 if name == "cifar10" else 2  # CIFAR-100: coarse, then fine
    rows, ids, good = [], [], []
    for path in sorted(folder.glob(pattern)):
        content = np.fromfile(path, np.uint8)
        if content.size == 0 or content.size % (num_labels + _PIXELS):
            raise ValueError(
                f"{path}: {content.size} bytes are no whole number of "
                f"{num_labels + _PIXELS}-byte images; get it again"
            )
        rows.append(content.reshape(-1, num_labels + _PIXELS))
        # An id is the position in the complete set, so that a missing batch does not change other ids.
        batch = re.fullmatch(r"data_batch_(\d+)", path.stem)
        first = (int(batch[1]) - 1) * _PER_BATCH if batch else 0
        ids.append(np.arange(first, first + len(rows[-1]), dtype=np.int32))
        good.append(malformed.labels(path, rows[-1][:, num_labels - 1], len(names)))
    table = np.concatenate(rows)
    images = table[:, num_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = table[:, num_labels - 1].astype(np.int32)
    return np.ascontiguousarray(images), labels, np.concatenate(ids), names, np.concatenate(good)


def _from_tfds(
    folder: pathlib.Path, split: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return images, labels, ids and class names in the order of the official files.

    tfds stores records shuffled, but each has its original position ("train_00012").
    """
    source, names = _tfds.open_split(folder, split)
    records = [source[i] for i in range(len(source))]
    ids = np.array([int(record["id"].decode().rpartition("_")[2]) for record in records], np.int32)
    order = np.argsort(ids)
    images = np.stack([_tfds.decode(records[i]["image"]) for i in order])
    labels = np.array([records[i]["label"] for i in order], np.int32)
    return images, labels, ids[order], names
