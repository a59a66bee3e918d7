"""CIFAR-10 and CIFAR-100: the publisher's binary version, a prepared tfds folder, or Hugging Face's."""

import pathlib
import re

import numpy as np

from calib_jax.data import _images, _tfds
from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, lines, official, split_positions
from calib_jax.data._records import parquet_patterns, read_shards

_PIXELS = 3 * 32 * 32
_PER_BATCH = 10_000  # images in each of CIFAR-10's data_batch files
# Hugging Face has the training batches in another order: the first ten labels of each tell which it is.
# Those of 4 and 5 are unchecked, as the tests only have the others; an unknown batch is reported.
_FIRST_LABELS = {
    "6994112783": 1,
    "1668834606": 2,
    "8506928362": 3,
    "0602721241": 4,
    "1851574382": 5,
}
# Set -> subset, image column, label column of the Hugging Face edition.
_HUB = {
    "cifar10": ("plain_text", "img", "label"),
    "cifar100": ("cifar100", "img", "fine_label"),
}
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
    file_split = "test" if split == "test" else "train"
    path = find(
        name,
        data_dir,
        (
            f"{folder}/{file}",
            *_tfds.patterns(name),
            *parquet_patterns(f"uoft-cs/{name}", _HUB[name][0], file_split),
        ),
        f"Get the binary edition (cifar-{number}-binary.tar.gz) from www.cs.toronto.edu and unpack it "
        f"to <data folder>/{folder}/, or prepare tfds's {name} with file_format='array_record'.",
    )
    malformed = Malformed(name, max_malformed)
    notes: tuple[str, ...] = ()
    if path.name == _tfds.INFO:
        images, labels, ids, names = _from_tfds(path.parent, file_split)
        good = malformed.labels(path.parent, labels, len(names))
    elif path.suffix == ".parquet":
        images, labels, ids, names, notes = _from_parquet(name, path, file_split)
        good = malformed.labels(path, labels, len(names))
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
        notes=notes + malformed.notes(n) + official("images", n, ROWS[name][file_split]),
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
    images = np.stack([_images.decode(records[i]["image"]) for i in order])
    labels = np.array([records[i]["label"] for i in order], np.int32)
    return images, labels, ids[order], names


def _from_parquet(
    name: str, path: pathlib.Path, split: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return images, labels, ids, class names and notes, in the order of the official files."""
    _, image_column, label_column = _HUB[name]
    files = read_shards(path, (image_column, label_column))
    images, labels = [], []
    for file in files:
        for record in file.rows((image_column, label_column)):
            try:
                content = _images.encoded(record.cells[image_column])
                images.append(_images.decode(content if isinstance(content, bytes) else b""))
            except ValueError as error:
                raise ValueError(f"{file.path}:{record.line}: {error}; get it again") from error
            if images[-1].shape != (32, 32, 3):
                raise ValueError(f"{file.path}:{record.line}: expected 32x32 pixels; get it again")
            labels.append(record.cells[label_column])
    names = files[0].label_names.get(label_column, ())
    if not names or not all(isinstance(label, int) for label in labels):
        raise ValueError(
            f"{path}: expected {label_column} as numbers of named classes; get it again"
        )
    classes = np.array(labels, np.int32)
    official_order = name != "cifar10" or split != "train"
    ids, notes = (np.arange(len(classes)), ()) if official_order else _official_ids(classes)
    order = np.argsort(ids)
    return np.stack(images)[order], classes[order], ids[order].astype(np.int32), names, notes


def _official_ids(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the positions in the official files of CIFAR-10's training images, and notes."""
    firsts = ["".join(map(str, labels[i : i + 10])) for i in range(0, len(labels), _PER_BATCH)]
    batches = [_FIRST_LABELS.get(first, 0) for first in firsts]
    if 0 in batches or len(set(batches)) < len(batches):
        note = "in an unknown order: ids and the validation split differ from those of the official files"
        return np.arange(len(labels)), (note,)
    starts = np.repeat((np.array(batches) - 1) * _PER_BATCH, _PER_BATCH)[: len(labels)]
    return starts + np.arange(len(labels)) % _PER_BATCH, ()
