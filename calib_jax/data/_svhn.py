"""Street View House Numbers, cropped digits, from the publisher's .mat files."""

import pathlib
import zlib

import numpy as np

from calib_jax.data._cifar import MEAN, STD
from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, official, split_positions

# Exceptions of scipy.io.loadmat for web pages, truncated or damaged files and other format versions.
_NOT_MAT = (ValueError, TypeError, LookupError, OSError, NotImplementedError, zlib.error)


def svhn(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 5000,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read SVHN: 73,257 + 26,032 color 32x32 images of ten digits; out of distribution for CIFAR-10.

    Validation is the first `num_val` training images in the order of numpy's
    `default_rng(0).permutation`.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      num_val: Number of validation images.
      max_malformed: Largest fraction of malformed rows.

    References:
      Netzer et al., 2011, NIPS Workshop on Deep Learning and Unsupervised Feature Learning.
    """
    import scipy.io

    file_split = "test" if split == "test" else "train"
    file = f"{file_split}_32x32.mat"
    path = find(
        "svhn",
        data_dir,
        (f"svhn/{file}", f"SVHN/{file}", file),
        f"Get {file} (format 2, cropped digits) from ufldl.stanford.edu/housenumbers "
        f"and put it in <data folder>/svhn/.",
    )
    try:
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel()
    except (*_NOT_MAT, scipy.io.matlab.MatReadError) as error:
        raise ValueError(f"{path}: not the .mat file of SVHN ({error}); get it again") from error
    if images.shape != (32, 32, 3, len(labels)):
        raise ValueError(f"{path}: X {images.shape} does not fit {len(labels)} labels in y")
    labels = np.where(labels == 10, 0, labels.astype(np.int32))  # the files call the digit 0 "10"
    malformed = Malformed("svhn", max_malformed)
    good = malformed.labels(path, labels, 10)
    n = len(labels)
    everything = Dataset(
        name="svhn",
        split=split,
        inputs={"image": np.ascontiguousarray(images.transpose(3, 0, 1, 2))},
        labels=labels,
        ids=np.arange(n, dtype=np.int32),
        label_names=tuple("0123456789"),
        notes=malformed.notes(n) + official("images", n, ROWS["svhn"][file_split]),
        mean=MEAN,
        std=STD,
    )
    positions = split_positions("svhn", split, n, num_val)
    return everything.take(positions[good[positions]])
