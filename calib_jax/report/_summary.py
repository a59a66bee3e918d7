"""Many runs in few tables: mean and standard deviation over the seeds, method by method."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from calib_jax.report._tables import METRICS, markdown_table

# The compact table: metric, title, factor, digits, is it shown after temperature scaling too?
# Every one of them is better when smaller; a temperature changes no prediction, hence no error.
_COMPACT = (
    ("error", "error %", 100, 2, False),
    ("nll", "NLL", 1, 3, True),
    ("brier", "Brier", 1, 3, True),
    ("ece", "ECE equal width %", 100, 2, True),
    ("ece_mass", "ECE equal mass %", 100, 2, True),
    ("smooth_ece", "smooth ECE %", 100, 2, True),
    ("classwise_ece", "classwise ECE %", 100, 2, True),
    ("aurc", "AURC %", 100, 2, True),
)
_IN_TERMINAL = {("error", False), ("nll", False), ("ece", False), ("ece", True)}
_IN_TERMINAL |= {("ece_mass", False), ("ece_mass", True)}
_STARS = {"best": "*", "near": "~", "": " "}
_STARS_MEAN = "* best, ~ within its standard deviation; ECE-15; +T after temperature scaling by T"
_TERMINAL_WIDTH = 100

LEGEND = (
    "Mean ± standard deviation over the seeds. The best of each comparison is bold, † is within one "
    "standard deviation of it. +T: after temperature scaling fitted on validation, its mean T in "
    "brackets. Binned ECEs have 15 bins."
)


def summarise(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and number of runs of everything that was measured.

    Args:
      results: what the runs' `results.json` hold, in the order in which the methods shall stand.

    Returns:
      `{"methods": {method: {"seeds": [...], "num_parameters": s, "train_seconds": s}},
      "splits": {split: {method: {calibrator: {"metrics": {name: s}, "parameters": {name: s}}}}}}`
      with `s = {"mean": ..., "std": ..., "n": ...}`; `std` divides by `n - 1` and is `None` for one
      seed; a parameter's mean and std are lists.
    """
    methods: dict[str, Any] = {}
    splits: dict[str, Any] = {}
    for record in results:
        name, seed = record["method"], record["seed"]
        method = methods.setdefault(name, {"seeds": []})
        if seed in method["seeds"]:
            raise ValueError(f"results: {name} with seed {seed} is there twice, expected once")
        method["seeds"].append(seed)
        for key in ("num_parameters", "train_seconds"):
            method.setdefault(key, []).append(record[key])
        for split, judgements in record["splits"].items():
            by_calibrator = splits.setdefault(split, {}).setdefault(name, {})
            for judgement in judgements:
                entry = by_calibrator.setdefault(judgement["name"], {})
                for kind in ("metrics", "parameters"):
                    values = entry.setdefault(kind, {})
                    for key, value in judgement[kind].items():
                        values.setdefault(key, []).append(value)
    for method in methods.values():
        method |= {k: _statistics(v) for k, v in method.items() if k != "seeds"}
    for by_method in splits.values():
        for by_calibrator in by_method.values():
            for entry in by_calibrator.values():
                for kind, values in entry.items():
                    entry[kind] = {key: _statistics(value) for key, value in values.items()}
    return {"methods": methods, "splits": splits}


class Cell(NamedTuple):
    """A number as it is shown: `**1.23**±0.04 (1.5)`."""

    mean: str
    spread: str = ""
    note: str = ""
    mark: str = ""  # "best", "near" or nothing


_NOTHING = Cell("–")


class Table(NamedTuple):
    """A table before it becomes Markdown or HTML.

    Attributes:
      title: of the whole.
      groups: title and number of columns of each group, left to right.
      columns: title of each column within its group; empty where the group is one column.
      rows: name and cells of each row.
    """

    title: str
    groups: list[tuple[str, int]]
    columns: list[str]
    rows: list[tuple[str, list[Cell]]]


def compact_table(summary: Mapping[str, Any], split: str) -> Table:
    """A row per method, before and after temperature scaling side by side, as papers print it."""
    methods = summary["splits"][split]
    seeds = _Column("seeds", "seeds", False, [Cell(str(_runs(methods[m]))) for m in methods])
    columns = [seeds, *_compact_columns(methods)]
    return Table(
        title=split,
        groups=list(Counter(column.title for column in columns).items()),
        columns=["+T" * column.calibrated for column in columns],
        rows=[(m, [column.cells[i] for column in columns]) for i, m in enumerate(methods)],
    )


def calibrator_tables(summary: Mapping[str, Any], split: str) -> list[Table]:
    """For each calibrator everything that was measured: a row per metric, a column per method."""
    by_method = summary["splits"][split]
    calibrators = dict.fromkeys(c for entries in by_method.values() for c in entries)
    tables = []
    for calibrator in calibrators:
        methods = {m: e[calibrator] for m, e in by_method.items() if calibrator in e}
        rows = []
        for key, title, percent, more_is_better in _metrics_of(methods):
            factor, digits = (100, 2) if percent else (1, 4)
            numbers = [_scaled(by_method[m], calibrator, key, factor) for m in methods]
            rows.append((title, _compare(numbers, digits, more_is_better)))
        for key in dict.fromkeys(k for e in methods.values() for k in e["parameters"]):
            rows.append((key, [_parameter(e["parameters"].get(key)) for e in methods.values()]))
        tables.append(
            Table(f"{split}: {calibrator}", [(m, 1) for m in methods], [""] * len(methods), rows)
        )
    return tables


def summary_markdown(summary: Mapping[str, Any]) -> str:
    """The compact table of every split, then a table for every calibrator."""
    parts = ["# Results", LEGEND]
    for split in summary["splits"]:
        parts += [f"## {split}", _markdown(compact_table(summary, split), "method")]
    parts.append("## Every calibrator")
    for split in summary["splits"]:
        for table in calibrator_tables(summary, split):
            parts += [f"### {table.title}", _markdown(table, "metric")]
    return "\n\n".join(parts) + "\n"


def comparison_text(summary: Mapping[str, Any]) -> str:
    """What a command prints at its end: aligned, no line longer than 100 characters."""
    parts = []
    for split, methods in summary["splits"].items():
        columns = [c for c in _compact_columns(methods) if (c.key, c.calibrated) in _IN_TERMINAL]
        titles = ["+T" if c.calibrated else c.title.replace("equal ", "") for c in columns]
        rows = [["method", *titles, "T"]]
        for i, (name, entry) in enumerate(methods.items()):
            cells = [c.cells[i] for c in columns]
            numbers = [c.mean + c.spread + _STARS[c.mark] for c in cells]
            rows.append([name, *numbers, _temperature(entry).strip("()") or "–"])
        runs = sorted({_runs(entry) for entry in methods.values()})
        seeds = " to ".join(map(str, runs[:1] + runs[1:][-1:]))
        parts.append(f"{split}, {seeds} seed{'s' * (runs != [1])}\n{_aligned(rows)}")
    return "\n\n".join([*parts, _STARS_MEAN])


class _Column(NamedTuple):
    key: str
    title: str
    calibrated: bool
    cells: list[Cell]


def _compact_columns(methods: Mapping[str, Any]) -> list[_Column]:
    """The compact table's columns, less those of which nothing was measured."""
    columns = []
    for key, title, factor, digits, twice in _COMPACT:
        for calibrator in ("uncalibrated", "temperature")[: 1 + twice]:
            cells = _compare(
                [_scaled(e, calibrator, key, factor) for e in methods.values()], digits
            )
            if all(cell == _NOTHING for cell in cells):
                continue
            calibrated = calibrator == "temperature"
            if calibrated and "ece" in key:
                notes = map(_temperature, methods.values())
                cells = [c._replace(note=note) for c, note in zip(cells, notes, strict=True)]
            columns.append(_Column(key, title, calibrated, cells))
    return columns


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = _TERMINAL_WIDTH - sum(w + 2 for w in widths[1:])
    widths[0] = min(widths[0], room)
    return "\n".join(
        "  ".join([_cut(row[0], room).ljust(widths[0])]
                  + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]).rstrip()
        for row in rows
    )  # fmt: skip


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _markdown(table: Table, corner: str) -> str:
    titles = [title for title, count in table.groups for _ in range(count)]
    header = [corner, *(f"{t} {c}".strip() for t, c in zip(titles, table.columns, strict=True))]
    return markdown_table([header, *([name, *map(_text, cells)] for name, cells in table.rows)])


def _text(cell: Cell) -> str:
    number = cell.mean + cell.spread
    number = {"best": f"**{number}**", "near": f"{number}†"}.get(cell.mark, number)
    return f"{number} {cell.note}".strip()


def _statistics(values: list[Any]) -> dict[str, Any]:
    array = np.asarray(values, float)
    std = np.std(array, axis=0, ddof=1).tolist() if len(values) > 1 else None
    return {"mean": np.mean(array, axis=0).tolist(), "std": std, "n": len(values)}


def _runs(by_calibrator: Mapping[str, Any]) -> int:
    return max(s["n"] for s in by_calibrator["uncalibrated"]["metrics"].values())


def _scaled(
    by_calibrator: Mapping[str, Any], calibrator: str, key: str, factor: float
) -> tuple[float, float | None] | None:
    """Mean and std in the table's unit; `None` where this was not measured."""
    metrics = by_calibrator.get(calibrator, {"metrics": {}})["metrics"]
    found = metrics.get("accuracy" if key == "error" else key)
    if found is None:
        return None
    mean = 1 - found["mean"] if key == "error" else found["mean"]
    return factor * mean, None if found["std"] is None else factor * found["std"]


def _compare(
    numbers: Sequence[tuple[float, float | None] | None],
    digits: int,
    more_is_better: bool | None = False,
) -> list[Cell]:
    """Cells of competing numbers. Those that look equal are equal: only shown digits count."""
    shown = [None if n is None else round(n[0], digits) for n in numbers]
    finite = [s for s in shown if s is not None and math.isfinite(s)]
    best, spread = None, None
    if more_is_better is not None and finite and min(finite) < max(finite):
        best = max(finite) if more_is_better else min(finite)
        spread = max((n[1] or 0 for n, s in zip(numbers, shown, strict=True) if n and s == best))
    cells = []
    for number, value in zip(numbers, shown, strict=True):
        if number is None:
            cells.append(_NOTHING)
            continue
        mean, std = number
        mark = ""
        if best is not None and value is not None:
            near = spread is not None and abs(value - best) <= spread
            mark = "best" if value == best else "near" if near else ""
        cells.append(
            Cell(f"{mean:.{digits}f}", "" if std is None else f"±{std:.{digits}f}", mark=mark)
        )
    return cells


def _temperature(by_calibrator: Mapping[str, Any]) -> str:
    found = by_calibrator.get("temperature", {}).get("parameters", {}).get("temperature")
    return "" if found is None else f"({np.mean(found['mean']):.2f})"


def _parameter(found: Mapping[str, Any] | None) -> Cell:
    if found is None:
        return _NOTHING
    spreads = found["std"] or [None] * len(found["mean"])
    pairs = zip(found["mean"], spreads, strict=True)
    return Cell(", ".join(f"{m:.3g}" + ("" if s is None else f"±{s:.2g}") for m, s in pairs))


def _metrics_of(methods: Mapping[str, Any]) -> list[tuple[str, str, bool, bool | None]]:
    """The table's rows: the known metrics in their order, then others under their own names."""
    measured = dict.fromkeys(key for entry in methods.values() for key in entry["metrics"])
    known = [row for row in METRICS if row[0] in measured]
    names = {row[0] for row in METRICS}
    return known + [(key, key, False, None) for key in measured if key not in names]
