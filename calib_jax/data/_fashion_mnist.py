"""Fashion-MNIST from the publisher's idx files."""

import gzip
import pathlib
import zlib

import numpy as np

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, official, split_positions

_FOLDERS = (
    "fashion-mnist",
    "fashion_mnist",
    "fashion-mnist/data/fashion",  # a clone of the publisher's repository
    "FashionMNIST/raw",  # torchvision
    "/usr/share/datasets/fashion-mnist",  # Debian's package
)
_HOW = (
    "Put the four files (train-images-idx3-ubyte.gz, …) of github.com/zalandoresearch/fashion-mnist "
    "in <data folder>/fashion-mnist/, or install Debian's package dataset-fashion-mnist."
)
_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def fashion_mnist(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 5000,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read Fashion-MNIST: 60,000 + 10,000 gray 28x28 images of ten garments.

    Validation is the first `num_val` training images in the order of numpy's
    `default_rng(0).permutation`.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      num_val: Number of validation images.
      max_malformed: Largest fraction of malformed rows.

    References:
      Xiao, Rasul and Vollgraf, 2017, arXiv:1708.07747.
    """
    prefix = "t10k" if split == "test" else "train"
    images_path = _find(data_dir, f"{prefix}-images-idx3-ubyte")
    labels_path = _find(data_dir, f"{prefix}-labels-idx1-ubyte")
    images, labels = _read_idx(images_path, 3), _read_idx(labels_path, 1)
    malformed = Malformed("fashion_mnist", max_malformed)
    good = malformed.labels(labels_path, labels, len(_NAMES))
    n = len(labels)
    everything = Dataset(
        name="fashion_mnist",
        split=split,
        inputs={"image": images[..., None]},
        labels=labels.astype(np.int32),
        ids=np.arange(n, dtype=np.int32),
        label_names=_NAMES,
        notes=malformed.notes(n)
        + official("images", n, ROWS["fashion_mnist"]["test" if split == "test" else "train"]),
        mean=(0.2860,),
        std=(0.3530,),
    )
    positions = split_positions("fashion_mnist", split, n, num_val)
    return everything.take(positions[good[positions]])


def _find(data_dir: pathlib.Path | None, file: str) -> pathlib.Path:
    patterns = [f"{folder}/{name}" for folder in _FOLDERS for name in (file, file + ".gz")]
    return find("fashion_mnist", data_dir, patterns, _HOW)


def _read_idx(path: pathlib.Path, ndim: int) -> np.ndarray:
    """Read an idx file: two zeros, type 8 (bytes), number of axes, their big-endian lengths, data."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: not a complete gzip file ({error}); get it again") from error
    if content[:4] != bytes([0, 0, 8, ndim]):
        raise ValueError(f"{path}: not an idx file of bytes with {ndim} axes; get it again")
    start = 4 + 4 * ndim
    shape = tuple(np.frombuffer(content[4:start], ">i4").tolist())
    data = np.frombuffer(content, np.uint8, offset=start)
    if data.size != np.prod(shape):
        raise ValueError(
            f"{path}: expected {shape} bytes after the header, got {data.size}; get it again"
        )
    return data.reshape(shape)
