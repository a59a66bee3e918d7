"""Readers of tables, row by row or in chunks: what is kept are the numbers, not the text."""

import array
import csv
import json
import operator
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from calib_jax.evaluation._columns import Columns, match_columns

Arrays = dict[str, np.ndarray]
_DELIMITERS = ",;\t"


def read_csv(path: pathlib.Path, labeled: bool) -> tuple[Arrays, list[str]]:
    """Read a table with a header; columns are separated by commas, semicolons or tabs.

    Args:
      path: File to read.
      labeled: Whether there must be labels.

    Returns:
      Arrays by name, and remarks.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        reader = csv.reader(file, delimiter=max(_DELIMITERS, key=first.count))
        try:
            header = next(reader, [])
            rows = ((reader.line_num, row) for row in reader if row)
            return _read_rows(header, rows, labeled)
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None


def read_jsonl(path: pathlib.Path, labeled: bool) -> tuple[Arrays, list[str]]:
    """Read an object per line: a label, and scores as a list, as an object or in flat columns.

    Args:
      path: File to read.
      labeled: Whether there must be labels.

    Returns:
      Arrays by name, and remarks.
    """
    with path.open(encoding="utf-8-sig") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        records = ((number, _flat_record(number, line)) for number, line in lines)
        first = next(records, None)
        if first is None:
            raise ValueError("there are no predictions (0 rows)")
        header = list(first[1])

        def rows() -> Iterator[tuple[int, list[str]]]:
            yield first[0], list(first[1].values())
            for number, record in records:
                if record.keys() != first[1].keys():
                    other = record.keys() ^ first[1].keys()
                    raise ValueError(f"line {number}: {min(other)!r} is not in every line")
                yield number, [record[name] for name in header]

        return _read_rows(header, rows(), labeled)


def _flat_record(number: int, line: str) -> dict[str, str]:
    """Return the columns of one line; `"probs": [0.2, 0.8]` is `probs_0` and `probs_1`."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"line {number}: expected a JSON object") from None
    if not isinstance(record, dict):
        raise ValueError(f"line {number}: expected a JSON object, got {type(record).__name__}")
    flat: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, list):
            flat |= {f"{key}_{i}": str(x) for i, x in enumerate(value)}
        elif isinstance(value, dict):
            flat |= {f"{key}_{name}": str(x) for name, x in value.items()}
        else:
            flat[key] = str(value)
    return flat


def read_parquet(path: pathlib.Path, labeled: bool) -> tuple[Arrays, list[str]]:
    """Read a table with a column per class, or with one column of lists.

    Args:
      path: File to read.
      labeled: Whether there must be labels.

    Returns:
      Arrays by name, and remarks.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ValueError("parquet needs pyarrow: pip install 'calib_jax[data]'") from None
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError):
        raise ValueError("not a readable parquet file") from None
    arrays = {name: table[name] for name in table.column_names}
    if len(arrays) < len(table.column_names):
        raise ValueError("two columns have the same name")
    lists = [name for name, a in arrays.items() if pyarrow.types.is_nested(a.type)]
    try:
        values = {
            name: np.array(a.to_pylist() if name in lists else a.to_numpy())
            for name, a in arrays.items()
        }
    except ValueError:
        raise ValueError(f"lists of different lengths in column {lists[0]!r}") from None
    if lists:
        return _with_texts(values), []
    columns = match_columns(list(values), labeled=labeled)
    stacked = {
        kind: _stacked([values[table.column_names[i]] for i in positions])
        for kind, positions in columns.scores.items()
    }
    others = {
        name: values[table.column_names[i]]
        for name, i in (("labels", columns.label), ("groups", columns.group))
        if i is not None
    }
    arrays = stacked | _with_texts(others) | _names(columns)
    return arrays, _notes(columns, arrays.get("labels"))


def _stacked(columns: Sequence[np.ndarray]) -> np.ndarray:
    if any(c.dtype.kind not in "fiu" for c in columns):
        raise ValueError("expected numbers in the columns of the classes")
    return np.stack(columns, axis=1).astype(np.float32)


def _with_texts(values: Arrays) -> Arrays:
    """Return arrays in which Python objects (strings of a parquet file) are strings."""
    return {k: v.astype(str) if v.dtype.kind == "O" else v for k, v in values.items()}


def _read_rows(
    header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]], labeled: bool
) -> tuple[Arrays, list[str]]:
    """Read rows of text; `rows` yields line numbers and cells."""
    columns = match_columns(header, labeled=labeled)
    kinds = list(columns.scores)
    positions = [i for kind in kinds for i in columns.scores[kind]]
    pick: Callable[[Sequence[str]], Sequence[str]] = (
        operator.itemgetter(*positions) if len(positions) > 1 else lambda row: [row[positions[0]]]
    )
    width = len(header)
    numbers = array.array("f")
    labels, groups = _Codes(), _Codes()
    for line, row in rows:
        if len(row) != width:
            raise ValueError(f"line {line}: {width} columns in the header, {len(row)} here")
        try:
            numbers.extend(map(float, pick(row)))
        except (ValueError, OverflowError):
            raise ValueError(_bad_cell(line, row, header, positions)) from None
        if columns.label is not None:
            labels.add(row[columns.label])
        if columns.group is not None:
            groups.add(row[columns.group])
    if not numbers:
        raise ValueError("there are no predictions (0 rows)")
    table = np.frombuffer(numbers, np.float32).reshape(-1, len(kinds), len(positions) // len(kinds))
    arrays = {kind: table[:, i] for i, kind in enumerate(kinds)} | _names(columns)
    if columns.label is not None:
        arrays["labels"] = labels.texts()
    if columns.group is not None:
        arrays["groups"] = groups.texts()
    return arrays, _notes(columns, arrays.get("labels"))


class _Codes:
    """Texts of which many are equal, kept once each."""

    def __init__(self) -> None:
        self.codes = array.array("i")
        self.known: dict[str, int] = {}

    def add(self, text: str) -> None:
        self.codes.append(self.known.setdefault(text, len(self.known)))

    def texts(self) -> np.ndarray:
        texts = np.array([text.strip() for text in self.known])
        return texts[np.frombuffer(self.codes, np.int32)]


def _bad_cell(
    line: int, row: Sequence[str], header: Sequence[str], positions: Sequence[int]
) -> str:
    for i in positions:
        try:
            array.array("f", [float(row[i])])
        except (ValueError, OverflowError):
            return f"line {line}, column {header[i]!r}: expected a number, got {row[i][:40]!r}"
    return f"line {line}: expected numbers"


def _names(columns: Columns) -> Arrays:
    return {"label_names": np.array(columns.label_names)} if columns.label_names else {}


def _notes(columns: Columns, labels: np.ndarray | None) -> list[str]:
    """Return remarks; numbers as labels beside named columns are in the order of the columns."""
    notes = list(columns.notes)
    if labels is None or labels.ndim == 2 or not columns.label_names:
        return notes
    if not set(np.unique(labels).astype(str)) <= set(columns.label_names):
        shown = ", ".join(f"{i} is {name!r}" for i, name in enumerate(columns.label_names[:3]))
        notes.append(
            f"labels are numbers, columns have names: {shown}, in the order of the columns"
        )
    return notes
