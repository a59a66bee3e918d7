"""CIFAR-10-C: the test images of CIFAR-10, corrupted, from the publishers' .npy files."""

import pathlib

import numpy as np

from calib_jax.data._cifar import MEAN, STD
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find, official

FOLDER = "CIFAR-10-C"
_SEVERITIES = 5
_HOW = (
    "Get CIFAR-10-C.tar from zenodo.org/records/2535967 and unpack it to <data folder>/CIFAR-10-C/."
)
_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


def cifar10_c(
    split: str, data_dir: pathlib.Path | None, *, corruption: str = "", severity: int = 5
) -> Dataset:
    """CIFAR-10's 10,000 test images under one of 19 corruptions at a severity of 1 to 5.

    There is a test split only. Ids are those of CIFAR-10's test images.
    """
    name = "cifar10_c"
    labels_path = find(name, data_dir, (f"{FOLDER}/labels.npy",), _HOW)
    if split != "test":
        raise ValueError(f"{name}: split={split!r}: expected 'test', the only one there is")
    if not isinstance(severity, int) or not 1 <= severity <= _SEVERITIES:
        raise ValueError(f"{name}: severity={severity!r}: expected 1, 2, 3, 4 or 5")
    names = sorted(path.stem for path in labels_path.parent.glob("*.npy") if path != labels_path)
    if corruption not in names:
        raise ValueError(
            f"{name}: corruption={corruption!r}: expected one of {', '.join(names) or '(no files)'}, "
            f"as found in {labels_path.parent}"
        )
    images_path = labels_path.with_name(f"{corruption}.npy")
    images, labels = _open(images_path), _open(labels_path)
    n = labels.size // _SEVERITIES
    if n == 0 or labels.shape != (_SEVERITIES * n,) or labels.min() < 0 or labels.max() > 9:
        raise ValueError(
            f"{labels_path}: expected labels 0 to 9 of five times the test set, "
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
        label_names=_CLASSES,
        notes=official("images", n, 10_000),
        mean=MEAN,
        std=STD,
    )


def _open(path: pathlib.Path) -> np.ndarray:
    """The array in a file, read only where it is looked at; never unpickles."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError):
        raise ValueError(f"{path}: not a complete .npy array of numbers; get it again") from None
