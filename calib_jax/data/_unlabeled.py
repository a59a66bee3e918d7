"""Rows to classify, of files of any size, one at a time: no labels, and no row left out."""

import contextlib
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO, NamedTuple

import numpy as np

from calib_jax.data import _images
from calib_jax.data._columns import Columns, choose_input_columns, read_inputs
from calib_jax.data._examples import Value
from calib_jax.data._files import NOT_NPZ
from calib_jax.data._records import read_records

Shapes = Mapping[str, tuple[int, ...]]

_BYTES = 2**20  # read at a time to count lines
_ROWS = 256  # of an array read at a time


class Unlabeled(NamedTuple):
    """One row to classify.

    Attributes:
      name: Line in the file (csv, jsonl), number of the row from 1 (parquet, npz), or name of the image.
      position: Number of the row or line from 1, to compare with the file's `total`.
      inputs: Inputs by name, as in `Dataset.inputs`; empty if the row is malformed.
      problem: Why the row is malformed; `''` if it is not.
    """

    name: str
    position: int
    inputs: Mapping[str, Value] = {}
    problem: str = ""


class UnlabeledFile(NamedTuple):
    """A file, or a folder of images, to classify.

    Attributes:
      total: Largest position of its rows.
      rows: Function that yields them.
      note: Columns that are read, for the user.
    """

    total: int
    rows: Callable[[], Iterator[Unlabeled]]
    note: str = ""


def read_unlabeled(path: pathlib.Path, shapes: Shapes, columns: Columns) -> UnlabeledFile:
    """Open a csv, jsonl, parquet or npz file or a folder of images, to be classified row by row.

    Images are cut and scaled to their shape, if that is a square, as those of an `image_folder` are.

    Args:
      path: File or folder.
      shapes: Shape of an example of each input to read, such as `{"text": ()}`.
      columns: Columns that were named for the training; others are found by their usual names.

    Raises:
      ValueError: With one line, if the file cannot be read or does not have the inputs. Malformed rows
        are yielded, with the reason.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "new.csv")
    ...     _ = path.write_text("id,text\\n7,good\\n8\\n")
    ...     for row in read_unlabeled(path, {"text": ()}, Columns()).rows():
    ...         print(row.name, dict(row.inputs), repr(row.problem))
    2 {'text': 'good'} ''
    3 {} '1 of 2 columns'
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return _image_files(path, shapes)
    if path.suffix.lower() == ".npz":
        return _arrays(path, shapes)
    return _table(path, shapes, columns)


def _table(path: pathlib.Path, shapes: Shapes, columns: Columns) -> UnlabeledFile:
    tabular = [name for name in shapes if name in ("text", "pair", "choices", "image")]
    if len(tabular) < len(shapes):
        raise ValueError(f"{path}: expected an .npz with the array {', '.join(shapes)}")
    records = read_records(path)
    chosen = choose_input_columns(path, records.columns, columns, tabular)
    number = (shapes.get("choices") or (0,))[0]

    def rows() -> Iterator[Unlabeled]:
        for record in records.rows(chosen.used()):
            try:
                inputs = read_inputs(record, chosen, path.parent, number)
                if number and len(inputs["choices"]) != number:  # type: ignore[arg-type]
                    raise ValueError(f"expected {number} choices")
                if "image" in shapes:
                    inputs["image"] = _decode(inputs["image"], shapes["image"])
            except ValueError as error:
                yield Unlabeled(str(record.line), record.line, problem=str(error))
                continue
            yield Unlabeled(str(record.line), record.line, inputs)

    total = _count_lines(path) if records.num_rows is None else records.num_rows
    return UnlabeledFile(total, rows, chosen.note())


def _count_lines(path: pathlib.Path) -> int:
    with path.open("rb") as file:
        return 1 + sum(block.count(b"\n") for block in iter(lambda: file.read(_BYTES), b""))


def _image_files(folder: pathlib.Path, shapes: Shapes) -> UnlabeledFile:
    if "image" not in shapes:
        raise ValueError(f"{folder}: expected a file with {', '.join(shapes)}, got a folder")
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in _images.SUFFIXES
    )
    if not names:
        raise ValueError(f"{folder}: there are no images in the folder")

    def rows() -> Iterator[Unlabeled]:
        for position, name in enumerate(names, 1):
            try:
                inputs = {"image": _decode(folder / name, shapes["image"])}
            except ValueError as error:
                yield Unlabeled(name, position, problem=str(error))
                continue
            yield Unlabeled(name, position, inputs)

    return UnlabeledFile(len(names), rows)


def _decode(source: Value, shape: tuple[int, ...]) -> np.ndarray:
    height, width, channels = shape
    pixels = _images.decode(source, height if height == width else 0)  # type: ignore[arg-type]
    if channels == 1 and np.ptp(pixels, axis=-1).max() == 0:  # gray, whatever it was stored as
        pixels = pixels[..., :1]
    if pixels.shape != shape:
        raise ValueError(f"image {pixels.shape}, expected {shape}")
    return pixels


def _arrays(path: pathlib.Path, shapes: Shapes) -> UnlabeledFile:
    """Open an archive whose array is read a few rows at a time, not as a whole."""
    name = next(iter(shapes))
    with _array_file(path, name) as (_, (count, *shape), dtype):
        pass
    if name == "image" and len(shape) == 2:
        shape = [*shape, 1]
    if tuple(shape) != shapes[name]:
        expected = ", ".join(map(str, ("n", *shapes[name])))
        raise ValueError(f"{path}: {name} has shape {(count, *shape)}, expected ({expected})")

    def rows() -> Iterator[Unlabeled]:
        position = 0
        with _array_file(path, name) as (file, *_):
            while block := file.read(_ROWS * dtype.itemsize * int(np.prod(shape))):
                for row in np.frombuffer(block, dtype).reshape(-1, *shape):
                    position += 1
                    if row.dtype.kind == "f" and not np.isfinite(row).all():
                        yield Unlabeled(str(position), position, problem="NaN or infinity")
                    else:
                        yield Unlabeled(str(position), position, {name: row})

    return UnlabeledFile(count, rows)


@contextlib.contextmanager
def _array_file(
    path: pathlib.Path, name: str
) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype]]:
    """Open an array at its first number, with shape and dtype; every error is a `ValueError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member.removesuffix(".npy") for member in archive.namelist()]
            if name not in members:
                raise ValueError(f"{path}: expected the array {name}, it has {', '.join(members)}")
            with archive.open(f"{name}.npy") as file:
                yield file, *_read_header(file)
    except NOT_NPZ as error:
        if str(error).startswith(str(path)):
            raise
        why = str(error).partition("\n")[0]
        raise ValueError(
            f"{path}: not a whole npz archive without pickled objects ({why})"
        ) from error


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Read shape and dtype of an array up to its first byte."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, by_columns, dtype = read[version](file)
    if dtype.kind not in "fiu" or by_columns:
        raise ValueError("expected an array of numbers in rows")
    return shape, dtype
