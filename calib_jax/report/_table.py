"""Tables, and two of their renderers: Markdown and text for a terminal. HTML is in page.html.jinja."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from calib_jax.metrics import METRICS

_TERMINAL_WIDTH = 100
_TERMINAL_MARKS = {"best": "*", "near": "~", "": " "}

Number = tuple[float, float | None]  # mean, and standard deviation unless there is one seed


class Cell(NamedTuple):
    """A number as it is shown: `**1.23**±0.04 (1.5)`.

    Attributes:
      mean: Number, or words.
      spread: Standard deviation, with its sign.
      note: Remark that follows.
      mark: `best`, `near` (the best) or nothing; `text` for words.
    """

    mean: str
    spread: str = ""
    note: str = ""
    mark: str = ""


EMPTY = Cell("–")


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      title: Heading; adjacent columns with the same one form a group.
      cells: One cell per row.
      subtitle: Heading within the group, such as `+T`.
      key: Key of the metric.
      is_ranked: Whether its cells can have marks.
    """

    title: str
    cells: Sequence[Cell]
    subtitle: str = ""
    key: str = ""
    is_ranked: bool = True

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was measured."""
        return all(cell == EMPTY for cell in self.cells)


class Table(NamedTuple):
    """A table before it is rendered.

    Attributes:
      title: Title of the table.
      names: Names of the rows.
      columns: Columns, left to right.
      corner: Heading of the names.
    """

    title: str
    names: Sequence[str]
    columns: Sequence[Column]
    corner: str = "method"

    @classmethod
    def from_rows(
        cls,
        title: str,
        headings: Sequence[str],
        rows: Sequence[tuple[str, Sequence[Cell]]],
        corner: str,
    ) -> "Table":
        """Return the table of rows `(name, cells)`, with a heading for each cell."""
        columns = [
            Column(heading, [cells[i] for _, cells in rows]) for i, heading in enumerate(headings)
        ]
        return cls(title, [name for name, _ in rows], columns, corner)

    @property
    def rows(self) -> list[tuple[str, list[Cell]]]:
        """Return name and cells of each row."""
        return [(name, [c.cells[i] for c in self.columns]) for i, name in enumerate(self.names)]

    @property
    def grouped(self) -> list[tuple[str, list[Column]]]:
        """Return title and columns of each group."""
        groups = groupby(self.columns, key=lambda column: column.title)
        return [(title, list(columns)) for title, columns in groups]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Return title and number of columns of each group."""
        return [(title, len(columns)) for title, columns in self.grouped]


def compare(
    numbers: Sequence[Number | None], digits: int, higher_is_better: bool | None = False
) -> list[Cell]:
    """Return the cells of competing numbers, of which the best is marked, and what is near to it.

    Numbers that look equal are equal: only the digits that are shown count. A number is near the best
    one if it is within the latter's standard deviation.

    Args:
      numbers: Mean and standard deviation of each; `None` for what was not measured.
      digits: Digits after the point.
      higher_is_better: Direction; nothing is marked if it is `None`.
    """
    shown = [None if n is None else round(n[0], digits) for n in numbers]
    finite = [s for s in shown if s is not None and math.isfinite(s)]
    best, spread = None, 0.0
    if higher_is_better is not None and finite and min(finite) < max(finite):
        best = max(finite) if higher_is_better else min(finite)
        spread = max((n[1] or 0 for n, s in zip(numbers, shown, strict=True) if n and s == best))
    cells = []
    for number, value in zip(numbers, shown, strict=True):
        if number is None or value is None:
            cells.append(EMPTY)
            continue
        mean, std = number
        mark = ""
        if best is not None and value == best:
            mark = "best"
        elif best is not None and abs(value - best) <= spread:
            mark = "near"
        cells.append(
            Cell(f"{mean:.{digits}f}", "" if std is None else f"±{std:.{digits}f}", mark=mark)
        )
    return cells


def to_markdown(table: Table) -> str:
    """Render as Markdown, aligned to be read as it is: names left, numbers right."""
    header = [table.corner, *(f"{c.title} {c.subtitle}".strip() for c in table.columns)]
    rows = [header, *([name, *map(cell_markdown, cells)] for name, cells in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    lines = ["| " + " | ".join(_justified(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], rule, *lines[1:]])


def cell_markdown(cell: Cell) -> str:
    """Render a cell as Markdown."""
    number = cell.mean + cell.spread
    number = {"best": f"**{number}**", "near": f"{number}†"}.get(cell.mark, number)
    return f"{number} {cell.note}".strip()


def to_text(table: Table) -> str:
    """Render for a terminal of 100 columns, without notes; long names are cut."""
    rows = [[table.corner, *(c.subtitle or c.title for c in table.columns)]]
    for name, cells in table.rows:
        shown = [
            cell.mean + cell.spread + (_TERMINAL_MARKS[cell.mark] if column.is_ranked else "")
            for cell, column in zip(cells, table.columns, strict=True)
        ]
        rows.append([name, *shown])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    space = _TERMINAL_WIDTH - sum(w + 2 for w in widths[1:])
    widths[0] = min(widths[0], space)
    cut = [[_cut(row[0], space), *row[1:]] for row in rows]
    return "\n".join("  ".join(_justified(row, widths)).rstrip() for row in cut)


def metric_table(
    columns: Sequence[tuple[str, Mapping[str, float], Mapping[str, tuple[float, float]]]],
    *,
    starred: bool = True,
) -> str:
    """Return a Markdown table with a row per metric and a column per set of predictions.

    Args:
      columns: For each column its name, its metrics and the intervals of some of them. A metric that
        one of them lacks has no row.
      starred: Whether to star the best value of a row.
    """
    rows = []
    for key, metric in METRICS.items():
        if not all(key in values for _, values, _ in columns):
            continue
        numbers = [values[key] for _, values, _ in columns]
        best = None
        if starred and metric.higher_is_better is not None and max(numbers) > min(numbers):
            best = max(numbers) if metric.higher_is_better else min(numbers)
        texts = [
            _with_interval(number, intervals.get(key), metric.scale)
            for number, (_, _, intervals) in zip(numbers, columns, strict=True)
        ]
        cells = [
            Cell(f"{text}*" if number == best else text)
            for text, number in zip(texts, numbers, strict=True)
        ]
        rows.append((metric.heading, cells))
    return to_markdown(Table.from_rows("", [name for name, _, _ in columns], rows, "metric"))


def _with_interval(value: float, interval: tuple[float, float] | None, scale: int) -> str:
    digits = 2 if scale == 100 else 4
    text = f"{scale * value:.{digits}f}"
    if interval is None:
        return text
    low, high = (f"{scale * end:.{digits}f}" for end in interval)
    return f"{text} [{low}, {high}]"


def _justified(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return [row[0].ljust(widths[0]), *numbers]


def _cut(text: str, space: int) -> str:
    return text if len(text) <= space else text[: space - 1] + "…"
