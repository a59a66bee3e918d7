"""Text sets: files with one example per line; every line is kept, left out or counted as malformed."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, official
from calib_jax.data._records import json_object, read_shards

_SHOWN = 3  # rows listed per rule in a note; the count is always complete
_ARCHIVE = "calibration_data"  # Desai and Durrett (2020): dev and test are halves of the dev file
_SAMPLE = 0.99  # of the official number of rows: versions differ by a few rows, samples by more


class Row(NamedTuple):
    """One line of a file.

    Attributes:
      path: Path of the file, for messages.
      line: Line number from 1, header included.
      position: Position among all rows of the set's files, header excluded: the example's id.
      text: Content without the line end.
    """

    path: pathlib.Path
    line: int
    position: int
    text: str


class Table:
    """Collect the examples of a split; count the rows left out, with file and line.

    Attributes:
      num_rows: Number of rows read so far, usable or not.
    """

    def __init__(self, name: str, max_malformed: float) -> None:
        self.num_rows = 0
        self._name = name
        self._malformed = Malformed(name, max_malformed)
        self._left_out: dict[str, list[str]] = {}
        self._seen: set[tuple[int, str]] = set()
        self._labels: list[int] = []
        self._ids: list[int] = []
        self._inputs: dict[str, list[str | list[str]]] = {}

    def read(self, path: pathlib.Path, *, header: str | None = None) -> Iterator[Row]:
        """Yield the rows of a file, without a first line that contains `header`."""
        with path.open("rb") as file:
            yield from self.rows(path, file, header=header)

    def rows(
        self, path: pathlib.Path, lines: Iterable[bytes], *, header: str | None = None
    ) -> Iterator[Row]:
        """Yield the rows of an open file, such as a member of an archive.

        Only a line feed ends a row: quotes do not join rows, and other line ends of Unicode do not
        split them.
        """
        for line, content in enumerate(lines, 1):
            try:
                text = content.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                self.malformed(Row(path, line, self.num_rows, ""), "not UTF-8")
                self.num_rows += 1
                continue
            if line == 1 and header is not None and header in text:
                continue
            row = Row(path, line, self.num_rows, text)
            self.num_rows += 1
            yield row

    def read_parquet(
        self, path: pathlib.Path, columns: Sequence[str]
    ) -> Iterator[tuple[Row, list[object]]]:
        """Yield rows and their cells of all files of a split, given one of them."""
        for file in read_shards(path, columns):
            for record in file.rows(columns):
                row = Row(file.path, record.line, self.num_rows, "")
                self.num_rows += 1
                yield row, [record.cells[column] for column in columns]

    def add(self, row: Row, label: int, **inputs: str | list[str]) -> None:
        """Add an example."""
        self._labels.append(label)
        self._ids.append(row.position)
        for key, value in inputs.items():
            self._inputs.setdefault(key, []).append(value)

    def add_once(self, row: Row, label: int, text: str, key: str | None = None) -> None:
        """Add an example unless an earlier one has the same text and label.

        Args:
          row: Row of the example.
          label: Class.
          text: Text to store.
          key: Text to compare; by default `text`.
        """
        key = text if key is None else key
        if (label, key) in self._seen:
            self.leave_out(row, "repeat a text and its label")
            return
        self._seen.add((label, key))
        self.add(row, label, text=text)

    def malformed(self, row: Row, why: str) -> None:
        """Count a malformed row; too many of them are an error."""
        self._malformed.add(row.path, row.line, why)

    def leave_out(self, row: Row, why: str) -> None:
        """Count a row that the rules of the set leave out; `why` completes "3 of 10 rows …"."""
        location = f"{row.path.parent.name}/{row.path.name}:{row.line}"
        self._left_out.setdefault(why, []).append(location)

    def dataset(
        self,
        split: str,
        label_names: tuple[str, ...],
        expected: int = 0,
        *,
        kept: int = 0,
    ) -> Dataset:
        """Return all examples in the order of the files, with a note if they are only a sample.

        Args:
          split: `'train'`, `'val'` or `'test'`.
          label_names: Name of each class.
          expected: Official number of rows, usable or not.
          kept: Official number of examples, if that of rows is unknown.
        """
        notes = self._malformed.notes(self.num_rows)
        for why, locations in self._left_out.items():
            first = list(dict.fromkeys(locations))  # a line may hold several rows
            shown = ", ".join(first[:_SHOWN]) + (", …" if len(first) > _SHOWN else "")
            notes += (f"{len(locations)} of {self.num_rows} rows {why}: {shown}; left out",)
        if self.num_rows < _SAMPLE * expected:
            notes += official("rows", self.num_rows, expected)
        if len(self._labels) < _SAMPLE * kept:
            notes += official("examples", len(self._labels), kept)
        if not self._labels:
            raise ValueError(
                f"{self._name}: none of the {self.num_rows} rows can be used; "
                f"{'; '.join(notes) or 'the file is empty'}: get the files again"
            )
        return Dataset(
            name=self._name,
            split=split,
            inputs={key: np.array(column, object) for key, column in self._inputs.items()},
            labels=np.array(self._labels, np.int32),
            ids=np.array(self._ids, np.int32),
            label_names=label_names,
            notes=notes,
        )


def unquote(cell: str) -> str:
    """Return the cell of a table without the quotes of a csv writer."""
    inside = cell[1:-1]
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inside.replace('""', ""):
        return cell
    return inside.replace('""', '"')


def json_fields(table: Table, row: Row, keys: Sequence[str]) -> list[object] | None:
    """Return fields of a row that is a JSON object; if one is missing, count the row as malformed."""
    record = json_object(row.text)
    if record is None:
        table.malformed(row, "not JSON")
        return None
    missing = [key for key in keys if key not in record]
    if missing:
        table.malformed(row, f"no {missing[0]}")
        return None
    return [record[key] for key in keys]


class Source(NamedTuple):
    """The file that contains a split.

    Attributes:
      path: Path of the file.
      share: Fraction of the published file that is the split: 1, or 0.5 for half of a dev file.
      cut: Whether the file is complete and has to be split.
    """

    path: pathlib.Path
    share: float
    cut: bool


def locate(
    name: str,
    split: str,
    data_dir: pathlib.Path | None,
    patterns: Sequence[str],
    folder: str,
    how: str,
    *,
    official_test: bool = False,
) -> Source:
    """Find a split in the publisher's files or in Desai and Durrett's archive.

    Args:
      name: Name of the set.
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      patterns: Glob patterns of the publisher's file with the split.
      folder: Folder of the set in the archive.
      how: Sentence on where to get the set.
      official_test: Whether validation and test are files of the publisher instead of halves of one; the
        archive has none.
    """
    halved = split != "train" and not official_test
    if split == "train" or halved:
        file = {"train": "train", "val": "dev", "test": "test"}[split]
        patterns = (*patterns, f"{_ARCHIVE}/{folder}/{file}.txt")
    path = find(name, data_dir, patterns, how)
    archived = path.parents[1].name == _ARCHIVE
    return Source(path, 0.5 if halved else 1, halved and not archived)


def finish(
    table: Table, split: str, source: Source, label_names: tuple[str, ...], expected: int
) -> Dataset:
    """Return the split of a table; `expected` is the number of rows of the published file.

    Halves are drawn (`default_rng(0).permutation`) from the positions of all rows, before any is left
    out: rules and options that leave rows out do not move others between the halves.
    """
    if not source.cut:
        return table.dataset(split, label_names, int(expected * source.share))
    dataset = table.dataset(split, label_names, expected)
    order = np.random.default_rng(0).permutation(table.num_rows)
    return with_ids(dataset, np.split(order, [table.num_rows // 2])[split == "test"])


def with_ids(dataset: Dataset, ids: np.ndarray) -> Dataset:
    """Return the examples with one of the ids, in the order of the files."""
    return dataset.take(np.flatnonzero(np.isin(dataset.ids, ids)))


def stratified(labels: np.ndarray, sizes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    """Split shuffled positions into stratified subsets of the given sizes and the remainder.

    The shuffle is `default_rng(seed)`. Fractional class counts are rounded up by largest remainder, ties
    in favor of the larger class, which gives the numbers of the paper's tables.

    Args:
      labels: Classes, int `[n]`.
      sizes: Sizes of all subsets but the last.
      seed: Seed of the shuffle.

    Returns:
      Sorted positions of each subset and of the remainder.
    """
    rest = np.random.default_rng(seed).permutation(len(labels))
    subsets = []
    for size in sizes:
        count = np.bincount(labels[rest])
        share, remainder = np.divmod(count * size, max(len(rest), 1))
        share[np.lexsort((-count, -remainder))[: size - share.sum()]] += 1
        # The first examples of each class in shuffled order are taken.
        of_class = [np.flatnonzero(labels[rest] == c)[:n] for c, n in enumerate(share)]
        taken = np.concatenate(of_class)
        subsets.append(np.sort(rest[taken]))
        rest = np.delete(rest, taken)
    return [*subsets, np.sort(rest)]
