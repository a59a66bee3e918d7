"""Predictions for files of any size: read, classified and written a few thousand rows at a time."""

import contextlib
import csv
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TextIO

import numpy as np

from calib_jax import data
from calib_jax.experiment._load import Classifier

SUFFIXES = (".csv", ".jsonl", ".parquet")
_ROWS = 2048  # classified at a time
_SHOWN = 5  # malformed rows that are printed
_SECONDS = 10.0  # between two lines of progress; on a terminal the line is renewed
_SECONDS_ON_TERMINAL = 0.5

Rows = Sequence[Sequence[str | float | None]]
Write = Callable[[Rows], None]
Log = Callable[[str], None]


class Summary(NamedTuple):
    """How many rows were read, were malformed, and were left without a label for lack of confidence."""

    rows: int
    malformed: int
    abstained: int


def predict_file(
    classifier: Classifier,
    path: pathlib.Path,
    out: pathlib.Path | None = None,
    *,
    calibrator: str | None = None,
    abstain_below: float = 0.0,
    log: Log = lambda line: print(line, file=sys.stderr),
) -> Summary:
    """Classify the rows of a file, or the images of a folder; write one row for each, in order.

    A row has the line (or row, or image) of the input, the label, its calibrated confidence and the
    probability of each class, `p_NAME`. All but the first are empty for a malformed row, which is
    reported; the label is empty where the confidence is too low.

    Args:
      classifier: Classifier that `load` returned.
      path: A csv, jsonl, parquet or npz file, or a folder of images.
      out: A csv, jsonl or parquet file, which appears when it is complete; `None` writes csv to the
        standard output.
      calibrator: Name of a calibrator, as in `Classifier.predict_proba`.
      abstain_below: Least confidence for a label.
      log: Function that is called with lines for the user.
    """
    if not 0 <= abstain_below <= 1:
        raise ValueError(f"abstain_below={abstain_below:g}: expected a confidence, 0 to 1")
    classifier.calibrator_name(calibrator)
    options = classifier.settings["data"]["options"]
    columns = data.Columns(**{k: v for k, v in options.items() if k in data.Columns._fields})
    file = data.read_unlabeled(path, classifier.preprocessing.inputs, columns)
    header = ["input", "label", "confidence", *(f"p_{name}" for name in classifier.label_names)]
    num_rows = malformed = abstained = 0
    progress = _Progress(file.total, log)
    with _open_writer(out, header) as write:
        if file.note:  # in a file without a header, the first row would be taken for one
            log(f"{path}: {file.note}")
        for rows in _batched(file.rows()):
            for row in rows:
                if row.problem and malformed < _SHOWN:
                    log(f"{path}:{row.name}: {row.problem}; no prediction")
                malformed += bool(row.problem)
            outputs = _classify(classifier, rows, calibrator, abstain_below)
            abstained += sum(cells[1] is None and cells[2] is not None for cells in outputs)
            write(outputs)
            num_rows += len(rows)
            progress.update(num_rows, rows[-1].position)
    progress.finish(num_rows)
    return Summary(num_rows, malformed, abstained)


def _batched(rows: Iterator[data.Unlabeled]) -> Iterator[list[data.Unlabeled]]:
    while batch := list(itertools.islice(rows, _ROWS)):
        yield batch


def _classify(
    classifier: Classifier,
    rows: Sequence[data.Unlabeled],
    calibrator: str | None,
    abstain_below: float,
) -> Rows:
    """Return the cells of each row: input, label, confidence, probabilities."""
    names = classifier.label_names
    usable = [row for row in rows if not row.problem]
    probs = iter(np.zeros((0, len(names))))
    if usable:
        columns = {
            name: _column([row.inputs[name] for row in usable])
            for name in classifier.preprocessing.inputs
        }
        probs = iter(classifier.predict_proba(columns, calibrator))
    outputs: list[list[str | float | None]] = []
    for row in rows:
        if row.problem:
            outputs.append([row.name] + [None] * (2 + len(names)))
            continue
        p = next(probs)
        top = int(np.argmax(p))
        label = names[top] if p[top] >= abstain_below else None
        outputs.append([row.name, label, float(p[top]), *map(float, p)])
    return outputs


def _column(values: Sequence[data.Value]) -> np.ndarray:
    if isinstance(values[0], np.ndarray):
        return np.stack([np.asarray(value) for value in values])
    return np.array(values, object)


@contextlib.contextmanager
def _open_writer(path: pathlib.Path | None, header: Sequence[str]) -> Iterator[Write]:
    """Open the output; a file takes its name when everything has been written, or is removed."""
    if path is None:
        yield _csv_writer(sys.stdout, header)
        sys.stdout.flush()
        return
    if path.suffix not in SUFFIXES:
        raise ValueError(f"out={str(path)!r}: expected a name that ends in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ValueError(f"out={str(path)!r}: there is no folder {path.parent}")
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        if path.suffix == ".parquet":
            with _parquet_writer(temporary, header) as write:
                yield write
        else:
            writer = _csv_writer if path.suffix == ".csv" else _jsonl_writer
            with temporary.open("w", encoding="utf-8", newline="") as file:
                yield writer(file, header)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _csv_writer(file: TextIO, header: Sequence[str]) -> Write:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)

    def write(rows: Rows) -> None:
        writer.writerows(
            [f"{cell:.7g}" if isinstance(cell, float) else cell for cell in row] for row in rows
        )

    return write


def _jsonl_writer(file: TextIO, header: Sequence[str]) -> Write:
    def write(rows: Rows) -> None:
        for row in rows:
            file.write(json.dumps(dict(zip(header, row, strict=True))) + "\n")

    return write


@contextlib.contextmanager
def _parquet_writer(path: pathlib.Path, header: Sequence[str]) -> Iterator[Write]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError("a .parquet output needs pyarrow: pip install 'calib_jax[data]'") from None
    types = [pyarrow.string()] * 2 + [pyarrow.float32()] * (len(header) - 2)
    schema = pyarrow.schema(list(zip(header, types, strict=True)))
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:

        def write(rows: Rows) -> None:
            columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
            writer.write_table(pyarrow.table(columns, schema=schema))

        yield write


class _Progress:
    """Rows, speed and remaining time: one line that is renewed on a terminal, else one now and then."""

    def __init__(self, total: int, log: Log) -> None:
        self._total, self._log = total, log
        self._began = self._shown = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def update(self, rows: int, position: int) -> None:
        """Show the rows that are done; `position` is the last one's in the file."""
        now = time.monotonic()
        if now - self._shown < (_SECONDS_ON_TERMINAL if self._terminal else _SECONDS):
            return
        self._shown = now
        gone = now - self._began
        left = gone * max(self._total - position, 0) / max(position, 1)
        line = f"{rows:,} rows, {position / max(self._total, 1):.0%}, {rows / gone:,.0f} rows/s, "
        line += f"{left:,.0f} s to go"
        if self._terminal:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            self._log(line)

    def finish(self, rows: int) -> None:
        """Show the total."""
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        seconds = time.monotonic() - self._began
        self._log(f"{rows:,} rows in {seconds:,.1f} s ({rows / max(seconds, 1e-9):,.0f} rows/s)")
