"""Methods side by side: tables before they become Markdown, HTML or text."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from calib_jax.report._summary import temperature_scaling
from calib_jax.report._tables import METRICS

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
_DETECTION = (("auroc", "AUROC %", True), ("fpr95", "FPR95 %", False))  # title, is more better?


class Cell(NamedTuple):
    """A number as it is shown: `**1.23**±0.04 (1.5)`."""

    mean: str
    spread: str = ""
    note: str = ""
    mark: str = ""  # "best", "near" or nothing; "text" for words


NOTHING = Cell("–")


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


class Column(NamedTuple):
    """A column of a table with a row per method; `key` names what it shows."""

    key: str
    title: str
    calibrated: bool
    cells: list[Cell]


def compact_table(summary: Mapping[str, Any], split: str) -> Table:
    """A row per method, before and after temperature scaling side by side, as papers print it."""
    methods = summary["splits"][split]
    seeds = Column("seeds", "seeds", False, [Cell(str(runs(methods[m]))) for m in methods])
    return by_method(split, methods, [seeds, *compact_columns(summary, split)])


def shift_table(summary: Mapping[str, Any]) -> Table:
    """A row per method, a group of columns per set: accuracy, F1 and ECE, as papers on language print."""
    names = list(dict.fromkeys(m for methods in summary["splits"].values() for m in methods))
    columns = [
        column._replace(title=f"{split}: {column.title}")
        for split in summary["splits"]
        for column in language_columns(summary, split, names)
    ]
    return by_method("Accuracy, F1 and ECE by set", names, columns)


def language_columns(summary: Mapping[str, Any], split: str, names: Sequence[str]) -> list[Column]:
    """Accuracy, macro F1 with the weighted one beside it, and ECE, less what was not measured."""
    methods = summary["splits"][split]

    def cells(key: str, calibrator: str, more: bool) -> list[Cell]:
        found = [_scaled(methods.get(m, {}), calibrator, key, 100) for m in names]
        return compare(found, 2, more)

    f1, weighted = (cells(f"f1_{kind}", "uncalibrated", True) for kind in ("macro", "weighted"))
    f1 = [
        c if w == NOTHING else c._replace(note=f"({w.mean}{w.spread})")
        for c, w in zip(f1, weighted, strict=True)
    ]
    accuracy = cells("accuracy", "uncalibrated", True)
    columns = [Column("accuracy", "accuracy %", False, accuracy)]
    columns.append(Column("f1_macro", "F1 %", False, f1))
    scaling, (key, title) = temperature_scaling(summary), ece_key(summary)
    for calibrator in filter(None, ("uncalibrated", scaling)):
        error = cells(key, calibrator, False)
        columns.append(Column(key, f"{title} %", calibrator == scaling, error))
    return [c for c in columns if any(cell != NOTHING for cell in c.cells)]


def detection_table(summary: Mapping[str, Any], outside: str) -> Table:
    """A row per method: how well its doubt tells the set `outside` from the test set."""
    methods = summary["out_of_distribution"][outside]
    columns = []
    for score in dict.fromkeys(score for scores in methods.values() for score in scores):
        for key, title, more_is_better in _DETECTION:
            for when in ("before", "after"):
                found = [m.get(score, {}).get(when, {}).get(key) for m in methods.values()]
                cells = compare([in_unit(f, 100) for f in found], 2, more_is_better)
                columns.append(Column(key, f"{title} by {score}", when == "after", cells))
    shown = [column for column in columns if any(cell != NOTHING for cell in column.cells)]
    return by_method(f"{outside} told from test", methods, shown)


def generation_tables(summary: Mapping[str, Any]) -> list[Table]:
    """For every set how the networks that taught one another fare, a group of columns for each.

    The best of a row is marked: generations compete with one another, not methods.
    """
    scaling, error = temperature_scaling(summary), ece_key(summary)
    shown = [("f1_macro", "F1 macro %", "uncalibrated", True)]
    shown.append((error[0], f"{error[1]} %", "uncalibrated", False))
    shown += [(error[0], "+T", scaling, False)] * bool(scaling)
    tables = []
    for split, methods in summary.get("generations", {}).items():
        numbers = sorted({int(n) for generations in methods.values() for n in generations})
        rows = []
        for method, generations in methods.items():
            by_metric = [
                compare([_scaled(generations.get(str(n), {}), c, key, 100) for n in numbers], 2, up)
                for key, _, c, up in shown
            ]
            cells = [metric[i] for i in range(len(numbers)) for metric in by_metric]
            chosen = summary["methods"][method]["chosen"]
            rows.append((method, [*cells, Cell(", ".join(map(str, chosen)))]))
        groups = [(f"generation {n}", len(shown)) for n in numbers] + [("chosen", 1)]
        titles = [title for _, title, _, _ in shown] * len(numbers)
        tables.append(Table(f"Generations on {split}", groups, [*titles, ""], rows))
    return tables


def ece_key(summary: Mapping[str, Any]) -> tuple[str, str]:
    """The ECE that papers on language print, if it was measured, and how it is called."""
    measured = {
        key
        for methods in summary["splits"].values()
        for entry in methods.values()
        for key in entry["uncalibrated"]["metrics"]
    }
    return ("ece_10", "ECE-10") if "ece_10" in measured else ("ece", "ECE-15")


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
            rows.append((title, compare(numbers, digits, more_is_better)))
        for key in dict.fromkeys(k for e in methods.values() for k in e["parameters"]):
            rows.append((key, [_parameter(e["parameters"].get(key)) for e in methods.values()]))
        tables.append(
            Table(f"{split}: {calibrator}", [(m, 1) for m in methods], [""] * len(methods), rows)
        )
    return tables


def compact_columns(summary: Mapping[str, Any], split: str) -> list[Column]:
    """The compact table's columns, less those of which nothing was measured."""
    methods, scaling = summary["splits"][split], temperature_scaling(summary)
    columns = []
    for key, title, factor, digits, twice in _COMPACT:
        for calibrator in ("uncalibrated", scaling)[: 1 + twice]:
            cells = compare([_scaled(e, calibrator, key, factor) for e in methods.values()], digits)
            if all(cell == NOTHING for cell in cells):
                continue
            calibrated = calibrator == scaling
            if calibrated and "ece" in key:
                notes = (temperature(e, scaling) for e in methods.values())
                cells = [
                    c._replace(note=f"({t})" * bool(t)) for c, t in zip(cells, notes, strict=True)
                ]
            columns.append(Column(key, title, calibrated, cells))
    return columns


def runs(by_calibrator: Mapping[str, Any]) -> int:
    """How many seeds a method has."""
    return max(s["n"] for s in by_calibrator["uncalibrated"]["metrics"].values())


def temperature(by_calibrator: Mapping[str, Any], scaling: str) -> str:
    """The mean temperature as it is shown; '' if there is none."""
    found = by_calibrator.get(scaling, {}).get("parameters", {}).get("temperature")
    return "" if found is None else f"{np.mean(found['mean']):.2f}"


def compare(
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
            cells.append(NOTHING)
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


def by_method(title: str, methods: Iterable[str], columns: Sequence[Column]) -> Table:
    """A table of columns that have a cell per method."""
    return Table(
        title=title,
        groups=list(Counter(column.title for column in columns).items()),
        columns=["+T" * column.calibrated for column in columns],
        rows=[(m, [column.cells[i] for column in columns]) for i, m in enumerate(methods)],
    )


def _scaled(
    by_calibrator: Mapping[str, Any], calibrator: str, key: str, factor: float
) -> tuple[float, float | None] | None:
    """Mean and std in the table's unit; `None` where this was not measured."""
    metrics = by_calibrator.get(calibrator, {"metrics": {}})["metrics"]
    found = in_unit(metrics.get("accuracy" if key == "error" else key), factor)
    return (factor - found[0], found[1]) if found and key == "error" else found


def in_unit(found: Mapping[str, Any] | None, factor: float) -> tuple[float, float | None] | None:
    """Mean and std of a summary's entry, in a table's unit."""
    if found is None:
        return None
    return factor * found["mean"], None if found["std"] is None else factor * found["std"]


def _parameter(found: Mapping[str, Any] | None) -> Cell:
    if found is None:
        return NOTHING
    spreads = found["std"] or [None] * len(found["mean"])
    pairs = zip(found["mean"], spreads, strict=True)
    return Cell(", ".join(f"{m:.3g}" + ("" if s is None else f"±{s:.2g}") for m, s in pairs))


def _metrics_of(methods: Mapping[str, Any]) -> list[tuple[str, str, bool, bool | None]]:
    """The table's rows: the known metrics in their order, then others under their own names."""
    measured = dict.fromkeys(key for entry in methods.values() for key in entry["metrics"])
    known = [row for row in METRICS if row[0] in measured]
    names = {row[0] for row in METRICS}
    return known + [(key, key, False, None) for key in measured if key not in names]
