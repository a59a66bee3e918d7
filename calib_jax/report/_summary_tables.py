"""The tables of a summary: methods side by side, set by set, calibrator by calibrator."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from calib_jax.metrics import METRICS, Metric
from calib_jax.report._summary import temperature_scaling
from calib_jax.report._table import EMPTY, Cell, Column, Number, Table, compare
from calib_jax.report._types import Record, Summary

UNCALIBRATED = "uncalibrated"
AFTER = "+T"  # after temperature scaling
SCORES = ("nll", "brier", "ece", "ece_mass", "smooth_ece", "classwise_ece", "aurc")
_COMPACT = ("error", "gap", *SCORES, "true_ece")
_DETECTION = ("auroc", "fpr95")


def compact_table(summary: Summary, split: str) -> Table:
    """Return a row per method, before and after temperature scaling side by side, as papers print it."""
    methods, ensembles = summary["splits"][split], summary.get("ensembles", {}).get(split, {})
    counts = [Cell(str(num_seeds(methods[name]))) for name in (*methods, *ensembles)]
    scaling = temperature_scaling(summary)
    columns = [Column("seeds", counts)]
    for column in compact_columns(summary, split):
        metric, calibrator = METRICS[column.key], scaling if column.subtitle else UNCALIBRATED
        numbers = [_number(entry, calibrator, metric) for entry in ensembles.values()]
        cells = compare(numbers, _digits(metric), metric._replace(higher_is_better=None))
        columns.append(column._replace(cells=[*column.cells, *cells]))
    names = [*methods, *(f"{name}, ensemble" for name in ensembles)]
    return Table(split, names, columns)


def ensemble_table(summary: Summary, split: str) -> Table | None:
    """Return a row per ensemble: its change against the mean seed, and how far the seeds disagree."""
    ensembles = summary.get("ensembles", {}).get(split, {})
    if not ensembles:
        return None
    columns = []
    for metric in map(METRICS.__getitem__, ("error", "nll", "brier", "ece")):
        cells = []
        for name, entry in ensembles.items():
            seeds = _number(summary["splits"][split][name], UNCALIBRATED, metric)
            mean = _number(entry, UNCALIBRATED, metric)
            change = mean[0] - seeds[0] if mean and seeds else math.nan
            cells.append(Cell(f"{change:+.{_digits(metric)}f}"))
        columns.append(Column(f"{metric.short_heading}, change", cells, key=metric.key))
    for key in ("disagreement", "mutual_information"):
        metric = METRICS[key]
        numbers = [_number(entry, UNCALIBRATED, metric) for entry in ensembles.values()]
        columns.append(Column(metric.short_heading, compare(numbers, _digits(metric), metric)))
    return Table(f"Ensembles on {split}", list(ensembles), columns)


def compact_columns(summary: Summary, split: str) -> list[Column]:
    """Return the metrics of the compact table, without those of which nothing was measured."""
    methods, scaling = summary["splits"][split], temperature_scaling(summary)
    columns = []
    for metric in map(METRICS.__getitem__, _COMPACT):
        # A temperature changes no prediction, hence no error.
        for calibrator in (UNCALIBRATED,) if metric.key == "error" else (UNCALIBRATED, scaling):
            numbers = [_number(entry, calibrator, metric) for entry in methods.values()]
            cells = compare(numbers, _digits(metric), metric)
            subtitle = AFTER if calibrator == scaling else ""
            column = Column(metric.short_heading, cells, subtitle, metric.key)
            if column.is_empty:
                continue
            if subtitle and "ece" in metric.key:
                temperatures = [mean_temperature(entry, scaling) for entry in methods.values()]
                column = column._replace(cells=_with_notes(cells, temperatures))
            columns.append(column)
    return columns


def shift_table(summary: Summary) -> Table:
    """Return a row per method and a group of columns per set: accuracy, F1 and ECE."""
    names = list(dict.fromkeys(m for methods in summary["splits"].values() for m in methods))
    columns = [
        column._replace(title=f"{split}: {column.title}")
        for split in summary["splits"]
        for column in language_columns(summary, split, names)
    ]
    return Table("Accuracy, F1 and ECE by set", names, columns)


def language_columns(summary: Summary, split: str, names: Iterable[str]) -> list[Column]:
    """Return accuracy, F1 and ECE, as papers on language print them, if they were measured.

    F1 is the macro one, with the weighted one as its note.
    """
    entries = [summary["splits"][split].get(name, {}) for name in names]

    def cells(key: str, calibrator: str = UNCALIBRATED) -> list[Cell]:
        numbers = [_number(entry, calibrator, METRICS[key]) for entry in entries]
        return compare(numbers, 2, METRICS[key])

    weighted = ["" if w == EMPTY else w.mean + w.spread for w in cells("f1_weighted")]
    columns = [Column(METRICS["accuracy"].heading, cells("accuracy"), key="accuracy")]
    columns.append(Column("F1 %", _with_notes(cells("f1_macro"), weighted), key="f1_macro"))
    scaling, key, title = temperature_scaling(summary), *language_ece(summary)
    columns.append(Column(f"{title} %", cells(key), key=key))
    if scaling:
        columns.append(Column(f"{title} %", cells(key, scaling), AFTER, key))
    return [column for column in columns if not column.is_empty]


def language_ece(summary: Summary) -> tuple[str, str]:
    """Return key and name of the ECE that papers on language print, if measured, else of the usual."""
    measured = {
        key
        for methods in summary["splits"].values()
        for entry in methods.values()
        for key in entry[UNCALIBRATED]["metrics"]
    }
    return ("ece_10", "ECE-10") if "ece_10" in measured else ("ece", "ECE-15")


def detection_table(summary: Summary, outside: str) -> Table:
    """Return a row per method: how well its uncertainty tells the set `outside` from the test set."""
    methods = summary["out_of_distribution"][outside]
    columns = []
    for score in dict.fromkeys(score for scores in methods.values() for score in scores):
        for metric in map(METRICS.__getitem__, _DETECTION):
            for when, subtitle in (("before", ""), ("after", AFTER)):
                values = [m.get(score, {}).get(when, {}).get(metric.key) for m in methods.values()]
                numbers = [in_unit(value, metric.scale) for value in values]
                cells = compare(numbers, 2, metric)
                title = f"{metric.heading} by {score}"
                columns.append(Column(title, cells, subtitle, metric.key))
    shown = [column for column in columns if not column.is_empty]
    return Table(f"{outside} told from test", list(methods), shown)


def generation_tables(summary: Summary) -> list[Table]:
    """Return a table per set of generations, each taught by the one before: a group of columns for each.

    The best of a row is marked: generations compete with one another, not methods.
    """
    scaling, ece, title = temperature_scaling(summary), *language_ece(summary)
    shown = [("f1_macro", METRICS["f1_macro"].heading, UNCALIBRATED)]
    shown.append((ece, f"{title} %", UNCALIBRATED))
    if scaling:
        shown.append((ece, AFTER, scaling))
    tables = []
    for split, methods in summary.get("generations", {}).items():
        generations = sorted({int(n) for entries in methods.values() for n in entries})
        ranked = {
            method: [
                _ranked_generations(entries, generations, METRICS[key], calibrator)
                for key, _, calibrator in shown
            ]
            for method, entries in methods.items()
        }
        columns = [
            Column(f"generation {n}", [ranked[m][j][i] for m in methods], subtitle, key)
            for i, n in enumerate(generations)
            for j, (key, subtitle, _) in enumerate(shown)
        ]
        chosen = [", ".join(map(str, summary["methods"][m]["chosen"])) for m in methods]
        columns.append(Column("chosen", [Cell(text) for text in chosen], is_ranked=False))
        tables.append(Table(f"Generations on {split}", list(methods), columns))
    return tables


def _ranked_generations(
    entries: Record, generations: Sequence[int], metric: Metric, calibrator: str
) -> list[Cell]:
    numbers = [_number(entries.get(str(n), {}), calibrator, metric) for n in generations]
    return compare(numbers, 2, metric)


def calibrator_tables(summary: Summary, split: str) -> list[Table]:
    """Return all that was measured, a table per calibrator: a row per metric, a column per method."""
    by_method = summary["splits"][split]
    calibrators = dict.fromkeys(c for entries in by_method.values() for c in entries)
    tables = []
    for calibrator in calibrators:
        methods = {m: e[calibrator] for m, e in by_method.items() if calibrator in e}
        rows = []
        for metric in _measured_metrics(methods):
            numbers = [_number(by_method[m], calibrator, metric) for m in methods]
            digits = 2 if metric.is_percent else 4
            rows.append((metric.heading, compare(numbers, digits, metric)))
        for key in dict.fromkeys(k for e in methods.values() for k in e["parameters"]):
            cells = [_parameter_cell(e["parameters"].get(key)) for e in methods.values()]
            rows.append((key, cells))
        tables.append(Table.from_rows(f"{split}: {calibrator}", list(methods), rows, "metric"))
    return tables


def _digits(metric: Metric) -> int:
    return 2 if metric.is_percent else 3


def num_seeds(by_calibrator: Record) -> int:
    """Return how many seeds a method has."""
    return max(s["n"] for s in by_calibrator[UNCALIBRATED]["metrics"].values())


def mean_temperature(by_calibrator: Record, scaling: str) -> str:
    """Return the mean temperature as it is shown; an empty text if there is none."""
    entry = by_calibrator.get(scaling, {}).get("parameters", {}).get("temperature")
    return "" if entry is None else f"{np.mean(entry['mean']):.2f}"


def in_unit(entry: Record | None, scale: float) -> Number | None:
    """Return mean and standard deviation of an entry of a summary, in the unit of a table."""
    if entry is None:
        return None
    return scale * entry["mean"], None if entry["std"] is None else scale * entry["std"]


def _number(by_calibrator: Record, calibrator: str, metric: Metric) -> Number | None:
    """Return mean and standard deviation in the metric's unit; `None` if it was not measured."""
    measured = by_calibrator.get(calibrator, {"metrics": {}})["metrics"]
    if metric.key != "error":
        return in_unit(measured.get(metric.key), metric.scale)
    accuracy = in_unit(measured.get("accuracy"), metric.scale)
    return None if accuracy is None else (metric.scale - accuracy[0], accuracy[1])


def _with_notes(cells: Sequence[Cell], notes: Sequence[str]) -> list[Cell]:
    """Return the cells with notes in brackets; an empty note is none."""
    return [
        cell._replace(note=f"({note})") if note else cell
        for cell, note in zip(cells, notes, strict=True)
    ]


def _parameter_cell(entry: Record | None) -> Cell:
    if entry is None:
        return EMPTY
    spreads = entry["std"] or [None] * len(entry["mean"])
    pairs = zip(entry["mean"], spreads, strict=True)
    return Cell(", ".join(f"{m:.3g}" + ("" if s is None else f"±{s:.2g}") for m, s in pairs))


def _measured_metrics(methods: Mapping[str, Record]) -> list[Metric]:
    """Return the registered metrics in their order, then others, which are known by their keys only."""
    measured = dict.fromkeys(key for entry in methods.values() for key in entry["metrics"])
    known = [metric for key, metric in METRICS.items() if key in measured]
    others = [Metric(key, key, key, "", None, "") for key in measured if key not in METRICS]
    return known + others
