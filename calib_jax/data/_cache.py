"""Arrays that are costly to make, kept on disk."""

import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable

import numpy as np


def cached(
    folder: pathlib.Path, key: str, make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays kept in `folder` under `key`; made and kept first, if there are none."""
    path = folder.expanduser() / f"{key}.npz"
    if path.is_file():
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
                return dict(content)
        except (zipfile.BadZipFile, ValueError, EOFError) as error:
            raise ValueError(
                f"{path}: damaged ({error}); delete it, and it is made again"
            ) from error
    arrays = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside it and moved: a reader sees the whole file or none, whoever else is writing.
    handle, unfinished = tempfile.mkstemp(prefix=key, suffix=".unfinished", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as target:
            np.savez(target, allow_pickle=False, **arrays)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    return arrays
