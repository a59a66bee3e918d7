"""Rows of csv, jsonl, parquet and arrow files, one at a time; malformed ones with the reason."""

import contextlib
import csv
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow.parquet

SUFFIXES = {
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson"),
    "parquet": (".parquet",),
    "arrow": (".arrow",),
}
_DELIMITERS = ",;\t"
_BATCH = 1024  # rows of a parquet file in memory at once
_LONGEST_CELL = 2**31 - 1  # the default of the csv module, 131,072, is shorter than some e-mails
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.parquet")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


class Record(NamedTuple):
    """One row of a file.

    Attributes:
      line: Line on which it begins, from 1, header included; in parquet, the number of the row.
      cells: Values by column; empty if the row is malformed.
      problem: Why the row is malformed; `''` if it is not.
    """

    line: int
    cells: Mapping[str, object] = MappingProxyType({})
    problem: str = ""


class Records(NamedTuple):
    """An open file.

    Attributes:
      path: Path of the file.
      columns: Names of the columns; for jsonl, the keys of the first object.
      rows: Function that yields the rows with the given columns (or more).
      label_names: Class names of the columns for which the file has them.
      num_rows: Number of rows, of a parquet file; `None` of others, which would have to be read.
    """

    path: pathlib.Path
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[Record]]
    label_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    num_rows: int | None = None


def read_records(path: pathlib.Path) -> Records:
    """Open a csv (or tsv), jsonl, parquet or arrow file, to be read row by row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.csv")
    ...     _ = path.write_text("text,label\\ngood,1\\nbad\\n")
    ...     for row in read_records(path).rows(("text", "label")):
    ...         print(row.line, row.problem or dict(row.cells))
    2 {'text': 'good', 'label': '1'}
    3 1 of 2 columns
    """
    readers = {"csv": _open_csv, "jsonl": _open_jsonl, "parquet": _open_arrow, "arrow": _open_arrow}
    kind = next((k for k, s in SUFFIXES.items() if path.suffix.lower() in s), None)
    if kind is None:
        known = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
        raise ValueError(f"{path}: expected a file that ends with one of {known}")
    try:
        return readers[kind](path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error


def json_object(text: str | bytes) -> dict[str, object] | None:
    """Parse a JSON object; return `None` for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _check_names(path: pathlib.Path, columns: tuple[str, ...]) -> None:
    for name in columns:
        if columns.count(name) > 1:
            raise ValueError(f"{path}: column {name!r} occurs {columns.count(name)} times")


def _open_csv(path: pathlib.Path) -> Records:
    csv.field_size_limit(_LONGEST_CELL)
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        first = file.readline()
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)
    rows = _csv_rows(path, delimiter)
    header, _, problem = next(rows, ([], 1, ""))
    columns = tuple(name.strip() for name in header)
    if problem or not any(columns):
        raise ValueError(
            f"{path}:1: expected the names of the columns ({problem or 'it is empty'})"
        )
    _check_names(path, columns)

    def records(_: Sequence[str]) -> Iterator[Record]:
        for number, (cells, line, problem) in enumerate(_csv_rows(path, delimiter)):
            if not number or (not cells and not problem):  # the header, a blank line
                continue
            if not problem and len(cells) != len(columns):
                problem = f"{len(cells)} of {len(columns)} columns"
            if problem:
                yield Record(line, problem=problem)
            else:
                yield Record(line, dict(zip(columns, cells, strict=True)))

    return Records(path, columns, records)


def _csv_rows(path: pathlib.Path, delimiter: str) -> Iterator[tuple[list[str], int, str]]:
    """Yield cells, first line and problem of each row; a malformed row once for each of its lines.

    A quote that is not closed takes the lines after it: so none of them is lost without being counted.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        while True:
            first = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                for line in range(first, max(reader.line_num, first) + 1):
                    yield [], line, str(error)
                continue
            encoded = any(_NOT_UTF8.search(cell) for cell in cells)
            yield cells, first, "not UTF-8" if encoded else ""


def _open_jsonl(path: pathlib.Path) -> Records:
    def records(_: Sequence[str] = ()) -> Iterator[Record]:
        with path.open("rb") as file:
            for line, content in enumerate(file, 1):
                content = content.removeprefix(b"\xef\xbb\xbf") if line == 1 else content
                if not content.strip():
                    continue
                try:
                    cells = json_object(content.decode())
                except UnicodeDecodeError:
                    yield Record(line, problem="not UTF-8")
                    continue
                yield (
                    Record(line, problem="not a JSON object")
                    if cells is None
                    else Record(line, cells)
                )

    with_cells = (tuple(record.cells) for record in records() if record.cells)
    return Records(path, next(with_cells, ()), records)


def _open_arrow(path: pathlib.Path) -> Records:
    """Open a parquet file, or an arrow stream as Hugging Face's `save_to_disk` writes it."""
    is_parquet = path.suffix.lower() == ".parquet"
    with _arrow_file(path) as file:
        schema = file.schema_arrow if is_parquet else file.schema
        num_rows = file.metadata.num_rows if is_parquet else None
    columns = tuple(schema.names)
    _check_names(path, columns)

    def records(names: Sequence[str]) -> Iterator[Record]:
        with _arrow_file(path) as file:
            if is_parquet:
                batches = file.iter_batches(_BATCH, columns=list(names))
            else:
                batches = (batch.select(list(names)) for batch in file)
            line = 0
            for batch in batches:
                batch.validate(full=True)  # without it, pyarrow crashes on some damaged files
                for cells in batch.to_pylist():
                    line += 1
                    yield Record(line, cells)

    return Records(path, columns, records, _label_names(schema.metadata or {}), num_rows)


@contextlib.contextmanager
def _arrow_file(path: pathlib.Path) -> "Iterator[pyarrow.parquet.ParquetFile]":
    """Open a parquet file or an arrow stream; every error in the block is a `ValueError` of one line."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path}: needs pyarrow: pip install 'calib_jax[data]'") from None
    try:
        if path.suffix.lower() == ".parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                yield file
        else:
            with pyarrow.memory_map(str(path)) as source, pyarrow.ipc.open_stream(source) as stream:
                yield stream
    except (pyarrow.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        why = str(error).partition("\n")[0][:200]
        raise ValueError(
            f"{path}: not a whole {path.suffix[1:]} file ({why}); get it again"
        ) from error


def _label_names(metadata: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """Return the class names by column that Hugging Face's `datasets` stores with a schema."""
    content: object = json_object(metadata.get(b"huggingface", b"")) or {}
    for key in ("info", "features"):
        content = content.get(key) if isinstance(content, dict) else None
    names = {}
    for column, feature in content.items() if isinstance(content, dict) else ():
        # Of a column with lists of labels, the names are one level deeper.
        inner = feature.get("feature", feature) if isinstance(feature, dict) else {}
        if isinstance(inner, dict) and isinstance(inner.get("names"), list):
            names[column] = tuple(map(str, inner["names"]))
    return names


def parquet_patterns(hub_id: str, subset: str, split: str) -> tuple[str, ...]:
    """Return the glob patterns of a split of a Hugging Face set in the data folder."""
    name = hub_id.partition("/")[2]
    return tuple(f"{folder}/{subset}/{split}-*.parquet" for folder in (name, hub_id))


def shards(path: pathlib.Path) -> list[pathlib.Path]:
    """Return all files of a split in order, given one of them; raise if some are missing."""
    match = _SHARD.fullmatch(path.name)
    if not match:
        return [path]
    number = int(match[3])
    names = [f"{match[1]}-{i:05d}-of-{number:05d}.parquet" for i in range(number)]
    missing = [name for name in names if not path.with_name(name).is_file()]
    if missing:
        raise ValueError(
            f"{path.with_name(missing[0])} is missing; get all {number} files of the split"
        )
    return [path.with_name(name) for name in names]


def read_shards(path: pathlib.Path, columns: Sequence[str]) -> list[Records]:
    """Open all files of a split, given one of them; raise if a column is missing."""
    files = [read_records(shard) for shard in shards(path)]
    for file in files:
        missing = [column for column in columns if column not in file.columns]
        if missing:
            raise ValueError(
                f"{file.path}: no column {missing[0]!r}, only {', '.join(file.columns)}; get it again"
            )
    return files
