"""CIFAR-10-C and CIFAR-100-C: corrupted test images, from the publishers' .npy files."""

import pathlib

import numpy as np

from calib_jax.data._cifar import MEAN, STD
from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find, official

FOLDERS = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}
_RECORDS = {"cifar10": 2535967, "cifar100": 3555552}
_SEVERITIES = 5
_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


def cifar10_c(
    split: str, data_dir: pathlib.Path | None, *, corruption: str = "", severity: int = 5
) -> Dataset:
    """Read CIFAR-10-C: CIFAR-10's 10,000 test images under one of 19 corruptions.

    Ids are those of CIFAR-10's test images.

    Args:
      split: `'test'`, the only one.
      data_dir: Data folder.
      corruption: Name of the corruption.
      severity: Severity, 1 to 5.

    References:
      Hendrycks and Dietterich, 2019, arXiv:1903.12261.
    """
    return _read("cifar10", _CLASSES, split, data_dir, corruption, severity)


def cifar100_c(
    split: str, data_dir: pathlib.Path | None, *, corruption: str = "", severity: int = 5
) -> Dataset:
    """Read CIFAR-100-C, like `cifar10_c`; its files do not name the classes."""
    names = tuple(map(str, range(100)))
    return _read("cifar100", names, split, data_dir, corruption, severity)


def _read(
    clean: str,
    names: tuple[str, ...],
    split: str,
    data_dir: pathlib.Path | None,
    corruption: str,
    severity: int,
) -> Dataset:
    name, folder = f"{clean}_c", FOLDERS[clean]
    how = (
        f"Get {folder}.tar from zenodo.org/records/{_RECORDS[clean]} and unpack it to "
        f"<data folder>/{folder}/."
    )
    labels_path = find(name, data_dir, (f"{folder}/labels.npy",), how)
    if split != "test":
        raise ValueError(f"{name}: split={split!r}: expected 'test', the only one there is")
    if not isinstance(severity, int) or not 1 <= severity <= _SEVERITIES:
        raise ValueError(f"{name}: severity={severity!r}: expected 1, 2, 3, 4 or 5")
    files = sorted(path.stem for path in labels_path.parent.glob("*.npy") if path != labels_path)
    if corruption not in files:
        raise ValueError(
            f"{name}: corruption={corruption!r}: expected one of {', '.join(files) or '(no files)'}, "
            f"as found in {labels_path.parent}"
        )
    images_path = labels_path.with_name(f"{corruption}.npy")
    images, labels = _open(images_path), _open(labels_path)
    n = labels.size // _SEVERITIES
    last = len(names) - 1
    if n == 0 or labels.shape != (_SEVERITIES * n,) or labels.min() < 0 or labels.max() > last:
        raise ValueError(
            f"{labels_path}: expected labels 0 to {last} of five times the test set, "
            f"got {labels.dtype} {list(labels.shape)}; get it again"
        )
    if images.dtype != np.uint8 or images.shape != (len(labels), 32, 32, 3):
        raise ValueError(
            f"{images_path}: expected uint8 [{len(labels)}, 32, 32, 3] as there are labels, "
            f"got {images.dtype} {list(images.shape)}; get it again"
        )
    rows = slice((severity - 1) * n, severity * n)
    return Dataset(
        name=name,
        split=split,
        inputs={"image": np.array(images[rows])},
        labels=np.array(labels[rows], np.int32),
        ids=np.arange(n, dtype=np.int32),
        label_names=names,
        notes=official("images", n, ROWS[clean]["test"]),
        mean=MEAN,
        std=STD,
    )


def _open(path: pathlib.Path) -> np.ndarray:
    """Open the array of a file as a memory map; never unpickle."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError):
        raise ValueError(f"{path}: not a complete .npy array of numbers; get it again") from None
