"""Helpers of all readers: finding files, counting malformed rows, splitting off a validation set."""

import glob
import os
import pathlib
import struct
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np

_SHOWN = 5  # rows listed in a note; the count is always complete
# Exceptions of numpy and zipfile for archives that are damaged, truncated, encrypted or something else.
NOT_NPZ = (
    *(ValueError, OSError, EOFError, LookupError, RuntimeError, MemoryError, OverflowError),
    *(TypeError, SyntaxError, struct.error, zipfile.BadZipFile, zlib.error),
)


def find(
    name: str, data_dir: pathlib.Path | None, patterns: Sequence[str], how: str
) -> pathlib.Path:
    """Return the first path that matches one of the patterns.

    Args:
      name: Name of the set, for the message.
      data_dir: Root of relative patterns; `None` if no folder is set.
      patterns: Glob patterns, best first; of several matches of one, the last by name is taken (the
        newest version of a tfds set).
      how: Sentence on where to get the set and where to put it.
    """
    searched = []
    for pattern in patterns:
        if data_dir is None and not os.path.isabs(pattern):
            continue
        root = str(data_dir or "")
        searched.append(os.path.join(root, pattern))
        if paths := glob.glob(os.path.join(glob.escape(root), pattern)):
            return pathlib.Path(max(paths))
    where = f" Looked for {', '.join(searched)}." if searched else ""
    if data_dir is None:
        where += " No data folder was named: pass data_dir (config.data.dir) or set CALIB_JAX_DATA."
    elif not data_dir.is_dir():
        where += f" There is no folder {data_dir}."
    raise ValueError(f"{name} is not here.{where} {how}")


def lines(path: pathlib.Path, why: str) -> list[str]:
    """Return the lines of a small text file that belongs to a set, without trailing blank lines."""
    if not path.is_file():
        raise ValueError(f"{path} is missing: {why}; unpack the whole archive")
    return path.read_text(encoding="utf-8").rstrip().split("\n")


def read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz archive; never unpickle.

    Raises:
      ValueError: With the reason, but not the path.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return dict(content)
    except NOT_NPZ as error:
        why = str(error).partition("\n")[0]
        raise ValueError(f"not a whole npz archive without pickled objects ({why})") from error


class Malformed:
    """Count malformed rows; too many of them are an error.

    Attributes:
      name: Name of the set.
      max_fraction: Largest fraction of malformed rows.
    """

    def __init__(self, name: str, max_fraction: float) -> None:
        if not 0 <= max_fraction <= 1:
            raise ValueError(f"max_malformed={max_fraction}: expected a fraction, 0 to 1")
        self.name = name
        self.max_fraction = max_fraction
        self._rows: list[str] = []

    def add(self, path: pathlib.Path, line: int, why: str) -> None:
        """Count row `line` of a file, from 1; the note has the file name and its parent folder."""
        self._rows.append(f"{path.parent.name}/{path.name}:{line} ({why})")

    def labels(self, path: pathlib.Path, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Return which labels of a file are valid, bool `[n]`; count the others as malformed."""
        good = (labels >= 0) & (labels < num_classes)
        for row in np.flatnonzero(~good):
            self.add(path, int(row) + 1, f"label {labels[row]} of {num_classes} classes")
        return good

    def notes(self, total: int) -> tuple[str, ...]:
        """Return the note for the user, of `total` rows; raise if too many are malformed."""
        if not self._rows:
            return ()
        shown = ", ".join(self._rows[:_SHOWN]) + (", …" if len(self._rows) > _SHOWN else "")
        count = f"{len(self._rows)} of {total} rows are malformed: {shown}"
        if len(self._rows) > self.max_fraction * total:
            raise ValueError(
                f"{self.name}: {count}; more than max_malformed={self.max_fraction:g} allows: "
                "get the files again, or raise it to go on without these rows"
            )
        return (f"{count}; left out",)


def split_positions(
    name: str, split: str, n: int, num_val: int, order: np.ndarray | None = None
) -> np.ndarray:
    """Return the positions of a split among `n` examples.

    The test files are one split. The training files are two: after a shuffle, the first `num_val`
    examples are validation and the rest training.

    Args:
      name: Name of the set, for the message.
      split: `'train'`, `'val'` or `'test'`.
      n: Number of examples in the files.
      num_val: Number of validation examples.
      order: Shuffled positions `[n]`; by default `numpy.random.default_rng(0).permutation(n)`.
    """
    if split == "test":
        return np.arange(n)
    if not 0 < num_val < n:
        raise ValueError(
            f"{name}: num_val={num_val}: expected 1 to {n - 1}, "
            f"as validation is cut from the {n} examples of the training files"
        )
    if order is None:
        order = np.random.default_rng(0).permutation(n)
    return order[:num_val] if split == "val" else order[num_val:]


def official(what: str, count: int, expected: int) -> tuple[str, ...]:
    """Return a note if a set is incomplete: samples are accepted, but reported."""
    if count == expected:
        return ()
    return (f"not the complete set: {count} of {expected} {what}",)
