"""Handwritten digits that ship with scikit-learn: real images, no download."""

import pathlib

import numpy as np

from calib_jax.data._dataset import Dataset

_POOL, _VAL = 500, 500
_SEED = 0


def digits(split: str, data_dir: pathlib.Path | None, *, num_train: int = _POOL) -> Dataset:
    """Read scikit-learn's digits: 1,797 gray 8x8 images of ten digits.

    One shuffle (numpy's `default_rng(0)`) splits them into 500 for training, 500 for validation and 797
    for test. With a small `num_train` a network becomes over-confident within seconds.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Ignored.
      num_train: Number of training images, 1 to 500: the first of the 500.
    """
    from sklearn.datasets import load_digits

    if not 1 <= num_train <= _POOL:
        raise ValueError(
            f"num_train={num_train}: expected 1 to {_POOL}, the rest is for validation and test"
        )
    images, labels = load_digits(return_X_y=True)
    pixels = np.round(images * (255 / 16)).astype(np.uint8)  # stored as 0 to 16
    order = np.random.default_rng(_SEED).permutation(len(labels))
    positions = {
        "train": order[:num_train],
        "val": order[_POOL : _POOL + _VAL],
        "test": order[_POOL + _VAL :],
    }
    everything = Dataset(
        name="digits",
        split=split,
        inputs={"image": pixels.reshape(-1, 8, 8, 1)},
        labels=labels.astype(np.int32),
        ids=np.arange(len(labels), dtype=np.int32),
        label_names=tuple("0123456789"),
        mean=(0.3053,),
        std=(0.3759,),
    )
    return everything.take(positions[split])
