"""Sets prepared by TensorFlow Datasets, read without TensorFlow."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from calib_jax.data._records import Record, Records

if TYPE_CHECKING:
    import tensorflow_datasets

INFO = "dataset_info.json"  # marks a folder as a prepared tfds set


Example = Mapping[str, Any]  # features by name


class Indexed(Protocol):
    """Examples by position."""

    def __getitem__(self, position: int, /) -> Example: ...


class RecordSource(Indexed, Protocol):
    """Random access to a split."""

    def __len__(self) -> int: ...
    def __getitems__(self, positions: Sequence[int], /) -> Sequence[Example]: ...


def patterns(name: str) -> tuple[str, ...]:
    """Return the glob patterns of a prepared set with that tfds name."""
    return f"{name}/*/{INFO}", f"tensorflow_datasets/{name}/*/{INFO}"


def find_prepared(path: str, data_dir: pathlib.Path | None) -> pathlib.Path:
    """Return the folder of a prepared set: itself, or the newest version in it.

    Args:
      path: Folder, or name of a set in the data folder.
      data_dir: Data folder.
    """
    roots = [pathlib.Path(path).expanduser()]
    if data_dir:
        roots += [data_dir / path, data_dir / "tensorflow_datasets" / path]
    for root in roots if path else ():
        if (root / INFO).is_file():
            return root
        if versions := sorted(info.parent for info in root.glob(f"*/{INFO}")):
            return versions[-1]
        if configs := sorted({info.parts[-3] for info in root.glob(f"*/*/{INFO}")}):
            raise ValueError(
                f"tfds: path={path!r}: expected {path}/ and one of {', '.join(configs)}"
            )
    raise ValueError(
        f"tfds: path={path!r}: expected the folder of a set that tfds prepared, with {INFO} in it "
        f"(config.data.options.path); looked in {', '.join(map(str, roots))}"
    )


def split_names(folder: pathlib.Path) -> tuple[str, ...]:
    """Return the names of the splits of a prepared folder."""
    return tuple(_builder(folder).info.splits)


def open_split(folder: pathlib.Path, split: str) -> tuple[RecordSource, tuple[str, ...]]:
    """Return random access to one split of a prepared folder, and its class names.

    Records are dicts as tfds defines them, but with `image` as stored (PNG or JPEG bytes).
    """
    builder = _builder(folder)
    names = tuple(builder.info.features["label"].names)
    return _data_source(builder, folder, split, ("image",)), names


def records(folder: pathlib.Path, split: str) -> Records:
    """Open one split of a prepared folder, to be read record by record; its features are the columns."""
    import tensorflow_datasets as tfds

    builder = _builder(folder)
    features = builder.info.features
    if not isinstance(features, tfds.features.FeaturesDict):
        raise ValueError(f"{folder}: expected examples that are dicts of features")
    images = [k for k, feature in features.items() if isinstance(feature, tfds.features.Image)]
    names = {
        key: tuple(feature.names)
        for key, feature in features.items()
        if isinstance(feature, tfds.features.ClassLabel) and feature.names
    }

    def rows(columns: Sequence[str]) -> Iterator[Record]:
        source = _data_source(builder, folder, split, images)
        for position in range(len(source)):
            try:
                record = source[position]
                cells = {c: _cell(record[c], encoded=c in images) for c in columns}
            except Exception as error:  # array_record raises whatever its C++ code meets
                yield Record(position + 1, problem=_first_line(error))
            else:
                yield Record(position + 1, cells)

    return Records(folder / split, tuple(features), rows, names)


def _builder(folder: pathlib.Path) -> "tensorflow_datasets.core.DatasetBuilder":
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(str(folder))
    except (
        Exception
    ) as error:  # of JSON, protobuf or tfds: none of them is the user's to understand
        raise ValueError(
            f"{folder}: not a set that tfds prepared ({_first_line(error)}): prepare it again"
        ) from error
    if builder.info.file_format != tfds.core.FileFormat.ARRAY_RECORD:
        raise ValueError(
            f"{folder} is prepared as {builder.info.file_format.value}, which only TensorFlow reads: "
            "prepare it again with file_format='array_record'"
        )
    return builder


def _data_source(
    builder: "tensorflow_datasets.core.DatasetBuilder",
    folder: pathlib.Path,
    split: str,
    encoded: Sequence[str],
) -> RecordSource:
    """Return random access to a split; the features in `encoded` are left as they are stored."""
    import tensorflow_datasets as tfds

    if split not in builder.info.splits:
        raise ValueError(
            f"{folder} has no split {split!r}, only {', '.join(builder.info.splits)}: prepare it again"
        )
    skip = {name: tfds.decode.SkipDecoding() for name in encoded}
    try:
        return builder.as_data_source(split=split, decoders=skip)
    except Exception as error:  # shards that are missing or damaged
        raise ValueError(
            f"{folder}: split {split!r} cannot be read ({_first_line(error)}): prepare it again"
        ) from error


def _cell(value: object, *, encoded: bool) -> object:
    """Return a feature as a Python value: text, number, list, or an image as stored."""
    if isinstance(value, bytes):
        return value if encoded else value.decode()
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return value
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_cell(v, encoded=False) for v in value]
    return value


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
