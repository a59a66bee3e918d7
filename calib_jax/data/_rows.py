"""Sets of texts: files of one example per line, read so that every line is accounted for."""

import json
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, official

_SHOWN = 3  # places named of rows left out by rule; the count is always complete
_ARCHIVE = "calibration_data"  # Desai & Durrett's (2020): dev and test are halves of the dev file
_SAMPLE = 0.99  # of the official number of rows: editions differ by a few, samples by more


class Row(NamedTuple):
    """One line of a file.

    Attributes:
      path: of the file, for messages.
      line: counted from 1, header included.
      position: among all rows of the set's files, header excluded: the example's id.
      text: without its line end.
    """

    path: pathlib.Path
    line: int
    position: int
    text: str


class Table:
    """Collects the examples of a split and counts what is left out of it, with file and line.

    Attributes:
      num_rows: read so far, whether they could be used or not.
    """

    def __init__(self, name: str, max_malformed: float) -> None:
        self.num_rows = 0
        self._name = name
        self._malformed = Malformed(name, max_malformed)
        self._left_out: dict[str, list[str]] = {}
        self._seen: set[tuple[int, str]] = set()
        self._labels: list[int] = []
        self._ids: list[int] = []
        self._inputs: dict[str, list[Any]] = {}

    def read(self, path: pathlib.Path, *, header: str | None = None) -> Iterator[Row]:
        """The rows of a file; a first line that holds `header` is not one of them."""
        with path.open("rb") as file:
            yield from self.rows(path, file, header=header)

    def rows(
        self, path: pathlib.Path, lines: Iterable[bytes], *, header: str | None = None
    ) -> Iterator[Row]:
        """The rows of lines already open, as from an archive.

        Lines end at a line feed and nowhere else: neither quotes nor Unicode's other line ends join
        or cut a row.
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

    def add(self, row: Row, label: int, **inputs: Any) -> None:
        """Keeps an example."""
        self._labels.append(label)
        self._ids.append(row.position)
        for key, value in inputs.items():
            self._inputs.setdefault(key, []).append(value)

    def add_once(self, row: Row, label: int, text: str, key: str | None = None) -> None:
        """Keep an example unless the same text came with the same label before.

        Args:
          row: the line it is from.
          label: its class.
          text: the example as it is kept.
          key: what makes two texts the same; without it, the text.
        """
        key = text if key is None else key
        if (label, key) in self._seen:
            self.leave_out(row, "repeat a text and its label")
            return
        self._seen.add((label, key))
        self.add(row, label, text=text)

    def malformed(self, row: Row, why: str) -> None:
        """Counts a row that cannot be read; too many of them stop the run."""
        self._malformed.add(row.path, row.line, why)

    def leave_out(self, row: Row, why: str) -> None:
        """Counts a row that the set's rules leave out; `why` completes "3 of 10 rows …"."""
        place = f"{row.path.parent.name}/{row.path.name}:{row.line}"
        self._left_out.setdefault(why, []).append(place)

    def dataset(
        self,
        split: str,
        label_names: tuple[str, ...],
        expected: int = 0,
        *,
        kept: int = 0,
    ) -> Dataset:
        """Return all examples, in the order of the files, with a note if they are only a sample.

        Args:
          split: `'train'`, `'val'` or `'test'`.
          label_names: one per class.
          expected: the official number of rows, whether they can be used or not.
          kept: the official number of examples, where that of rows is not known.
        """
        notes = self._malformed.notes(self.num_rows)
        for why, places in self._left_out.items():
            first = list(dict.fromkeys(places))  # a line may hold several rows
            shown = ", ".join(first[:_SHOWN]) + (", …" if len(first) > _SHOWN else "")
            notes += (f"{len(places)} of {self.num_rows} rows {why}: {shown}; left out",)
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
    """The cell of a table without the quotes that a csv writer put around it, if it did."""
    inside = cell[1:-1]
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"' or '"' in inside.replace('""', ""):
        return cell
    return inside.replace('""', '"')


def json_fields(table: Table, row: Row, keys: Sequence[str]) -> list[Any] | None:
    """Fields of a row that is a JSON object; `None`, and counted as malformed, if it lacks one."""
    try:
        record = json.loads(row.text)
    except json.JSONDecodeError:
        table.malformed(row, "not JSON")
        return None
    missing = [key for key in keys if not isinstance(record, dict) or key not in record]
    if missing:
        table.malformed(row, f"no {missing[0]}")
        return None
    return [record[key] for key in keys]


class Source(NamedTuple):
    """The file that has a split.

    Attributes:
      path: of the file.
      share: of the published file that the split is: 1, or a half of a dev file.
      cut: whether the file is the whole and the half must be cut from it.
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
    whole: bool = False,
) -> Source:
    """Finds a split in the publisher's files or in Desai & Durrett's archive.

    Args:
      name: of the set.
      split: `'train'`, `'val'` or `'test'`.
      data_dir: the data folder.
      patterns: the publisher's file that has the split, in its editions.
      folder: of the set in the archive.
      how: to get the set.
      whole: whether validation and test are whole files, not halves of one; the archive has none.
    """
    halved = split != "train" and not whole
    if split == "train" or halved:
        file = {"train": "train", "val": "dev", "test": "test"}[split]
        patterns = (*patterns, f"{_ARCHIVE}/{folder}/{file}.txt")
    path = find(name, data_dir, patterns, how)
    archived = path.parents[1].name == _ARCHIVE
    return Source(path, 0.5 if halved else 1, halved and not archived)


def finish(
    table: Table, split: str, source: Source, label_names: tuple[str, ...], expected: int
) -> Dataset:
    """The split of a table; `expected` is the number of rows of the published file.

    Halves are drawn by position (`default_rng(0).permutation`) from all rows of the file, before any is
    left out: no rule or option that leaves rows out moves another from one half to the other.
    """
    if not source.cut:
        return table.dataset(split, label_names, int(expected * source.share))
    dataset = table.dataset(split, label_names, expected)
    order = np.random.default_rng(0).permutation(table.num_rows)
    return with_ids(dataset, np.split(order, [table.num_rows // 2])[split == "test"])


def with_ids(dataset: Dataset, ids: np.ndarray) -> Dataset:
    """The examples that have one of the ids, in the order of the files."""
    return dataset.take(np.flatnonzero(np.isin(dataset.ids, ids)))


def stratified(labels: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Positions cut into parts of the given sizes and of what remains, classes in equal shares.

    Shuffled by `default_rng(0)`. Where a share is no whole number, the largest remainders are rounded
    up, of equal ones the larger class's, which gives the numbers of the paper's tables.
    """
    rest = np.random.default_rng(0).permutation(len(labels))
    parts = []
    for size in sizes:
        count = np.bincount(labels[rest])
        share, remainder = np.divmod(count * size, max(len(rest), 1))
        share[np.lexsort((-count, -remainder))[: size - share.sum()]] += 1
        # An example's place among those of its class decides whether it is in the part.
        of_class = [np.flatnonzero(labels[rest] == c)[:n] for c, n in enumerate(share)]
        taken = np.concatenate(of_class)
        parts.append(np.sort(rest[taken]))
        rest = np.delete(rest, taken)
    return [*parts, np.sort(rest)]
