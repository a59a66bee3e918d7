"""A cache on disk for arrays that are expensive to compute."""

import os
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np

from calib_jax.data._files import read_npz


def cached(
    folder: pathlib.Path, key: str, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays that `folder` has under `key`; compute and store them first if there are none.

    Args:
      folder: Folder of the cache.
      key: File name without suffix; anything that changes the arrays must change it.
      make: Function that computes the arrays.
    """
    path = folder.expanduser() / f"{key}.npz"
    if path.is_file():
        try:
            return read_npz(path)
        except ValueError as error:
            raise ValueError(
                f"{path}: damaged ({error}); delete it, and it is made again"
            ) from error
    arrays = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written to a temporary file and renamed: readers see the whole file or none.
    handle, unfinished = tempfile.mkstemp(prefix=key, suffix=".unfinished", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as target:
            np.savez(target, allow_pickle=False, **arrays)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    return arrays
