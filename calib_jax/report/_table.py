"""Tables, and two of their renderers: Markdown and text for a terminal. HTML is in page.html.jinja."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from calib_jax.metrics import METRICS, Metric
from calib_jax.report._summary import with_gap

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


def compare(numbers: Sequence[Number | None], digits: int, metric: Metric) -> list[Cell]:
    """Return the cells of competing numbers, of which the best is marked, and what is near to it.

    Numbers that look equal are equal: only the digits that are shown count. A number is near the best
    one if it is within the latter's standard deviation. Without one, that is with a single seed,
    nothing is marked, as the difference may be chance.

    Args:
      numbers: Mean and standard deviation of each; `None` for what was not measured.
      digits: Digits after the point.
      metric: Metric that they are values of; nothing is marked if it has no direction.
    """
    sign = "+" if metric.key == "gap" else ""
    cells = []
    for number, mark in zip(numbers, _marks(numbers, digits, metric.higher_is_better), strict=True):
        if number is None:
            cells.append(EMPTY)
            continue
        mean, std = number
        spread = "" if std is None else f"±{std:.{digits}f}"
        cells.append(Cell(f"{mean:{sign}.{digits}f}", spread, mark=mark))
    return cells


def _marks(
    numbers: Sequence[Number | None], digits: int, higher_is_better: bool | None
) -> list[str]:
    shown = [math.nan if n is None else round(n[0], digits) for n in numbers]
    best = best_of(shown, higher_is_better)
    stds = [n[1] for n, x in zip(numbers, shown, strict=True) if n and x == best]
    known = [std for std in stds if std is not None]
    if best is None or not known:
        return [""] * len(numbers)
    spread = max(known)
    near = ["near" if abs(x - best) <= spread else "" for x in shown]
    return ["best" if x == best else mark for x, mark in zip(shown, near, strict=True)]


def best_of(values: Sequence[float], higher_is_better: bool | None) -> float | None:
    """Return the best of the finite values; `None` without a direction or if all are the same."""
    finite = [value for value in values if math.isfinite(value)]
    if higher_is_better is None or len(set(finite)) < 2:
        return None
    return max(finite) if higher_is_better else min(finite)


def to_markdown(table: Table, max_width: int | None = None) -> str:
    """Render as Markdown, aligned to be read as it is: names left, numbers right.

    Args:
      table: Table to render.
      max_width: Number of characters of a line. What is wider is continued in a table below, with at
        least one column each.
    """
    header = [table.corner, *(f"{c.title} {c.subtitle}".strip() for c in table.columns)]
    rows = [header, *([name, *map(cell_markdown, cells)] for name, cells in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    blocks: list[list[int]] = [[]]
    for i, width in enumerate(widths[1:], 1):
        line = 1 + sum(widths[j] + 3 for j in (0, *blocks[-1]))
        if max_width and blocks[-1] and line + width + 3 > max_width:
            blocks.append([])
        blocks[-1].append(i)
    return "\n\n".join(_markdown_lines(rows, widths, [0, *block]) for block in blocks)


def _markdown_lines(
    rows: Sequence[Sequence[str]], all_widths: Sequence[int], shown: Sequence[int]
) -> str:
    """Render the columns that are shown."""
    widths = [all_widths[i] for i in shown]
    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    cells = [[row[i] for i in shown] for row in rows]
    lines = ["| " + " | ".join(_justified(row, widths)) + " |" for row in cells]
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
    max_width: int | None = None,
) -> str:
    """Return a Markdown table with a row per metric and a column per set of predictions.

    Args:
      columns: For each column its name, its metrics and the intervals of some of them. A metric that
        one of them lacks has no row.
      starred: Whether to star the best value of a row in which all have intervals.
      max_width: Number of characters of a line; what is wider is continued in a table below.

    >>> print(metric_table([("a", {"nll": 0.5}, {"nll": (0.4, 0.6)})]))
    | metric     |                       a |
    |------------|------------------------:|
    | NLL (nats) | 0.5000 [0.4000, 0.6000] |
    """
    rows = []
    names, intervals = [name for name, _, _ in columns], [ends for _, _, ends in columns]
    values = [with_gap(measured) for _, measured, _ in columns]
    for key, metric in METRICS.items():
        if not all(key in measured for measured in values):
            continue
        numbers = [measured[key] for measured in values]
        is_starred = starred and all(key in ends for ends in intervals)
        best = best_of(numbers, metric.higher_is_better) if is_starred else None
        cells = [
            Cell(with_interval(x, ends.get(key), metric) + ("*" if x == best else ""))
            for x, ends in zip(numbers, intervals, strict=True)
        ]
        rows.append((metric.heading, cells))
    return to_markdown(Table.from_rows("", names, rows, "metric"), max_width)


def with_interval(value: float, interval: tuple[float, float] | None, metric: Metric) -> str:
    """Return a value in the metric's unit with its interval, if it has one: `1.23 [1.01, 1.45]`."""
    digits = 2 if metric.is_percent else 4
    sign = "+" if metric.key == "gap" else ""
    text, *ends = (f"{metric.scale * x:{sign}.{digits}f}" for x in (value, *(interval or ())))
    return f"{text} [{', '.join(ends)}]" if ends else text


def _justified(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return [row[0].ljust(widths[0]), *numbers]


def _cut(text: str, space: int) -> str:
    return text if len(text) <= space else text[: space - 1] + "…"
