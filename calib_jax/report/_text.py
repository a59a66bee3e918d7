"""Summaries to read as text: Markdown, and what a command prints at its end."""

from collections.abc import Mapping
from typing import Any

from calib_jax.report._comparison import (
    Cell,
    Column,
    Table,
    calibrator_tables,
    compact_columns,
    compact_table,
    detection_table,
    generation_tables,
    language_columns,
    runs,
    shift_table,
    temperature,
)
from calib_jax.report._robustness import (
    ROBUSTNESS_IN_SHORT,
    ROBUSTNESS_MEANS,
    robustness_table,
)
from calib_jax.report._summary import temperature_scaling
from calib_jax.report._tables import markdown_table

_IN_TERMINAL = {("error", False), ("nll", False), ("ece", False), ("ece", True)}
_IN_TERMINAL |= {("ece_mass", False), ("ece_mass", True)}
_STARS = {"best": "*", "near": "~", "": " "}
_STARS_MEAN = "* best, ~ within its standard deviation; ECE-15"
_TERMINAL_WIDTH = 100
_FITTED_BY = {"temperature": "least NLL", "temperature_ece_mass": "least equal-mass ECE on a grid"}
_FITTED_BY["temperature_ece"] = "least ECE of ten bins on a grid"


def legend(summary: Mapping[str, Any]) -> str:
    """What the marks in the tables mean, and which temperature scaling +T is."""
    text = (
        "Mean ± standard deviation over the seeds. The best of each comparison is bold, † is within "
        "one standard deviation of it. Binned ECEs have 15 bins."
    )
    if scaling := temperature_scaling(summary):
        how = f" by {_FITTED_BY[scaling]}" if scaling in _FITTED_BY else ""
        text += (
            f" +T: after temperature scaling, here the calibrator {scaling}, fitted on "
            f"validation{how}, its mean T in brackets."
        )
    return text


def summary_markdown(
    summary: Mapping[str, Any], *, data: str = "", model: str = "", texts: bool = False
) -> str:
    """All tables of a comparison.

    For every split the compact table, and ECE and error as rows of AdaFocal's tables 1 and 2; then
    the splits side by side, detection of every other set, and a table for every calibrator.

    Args:
      summary: from `summarize`.
      data: the data set's name.
      model: the network's name.
      texts: the sets are texts, whose classes are seldom of one size: F1 of a single set too.
    """
    parts = ["# Results", legend(summary)]
    for split in summary["splits"]:
        parts += [f"## {split}", markdown(compact_table(summary, split), "method")]
        parts += _paper_rows(summary, split, data if split == "test" else f"{data} {split}", model)
    if len(summary["splits"]) > 1 or texts:
        shifted = shift_table(summary)
        parts += [f"## {shifted.title}", BY_SET_MEANS, markdown(shifted, "method")]
    for table in generation_tables(summary):
        parts += [f"## {table.title}", GENERATIONS_MEAN, markdown(table, "method")]
    if robust := robustness_table(summary):
        parts += [f"## {robust.title}", ROBUSTNESS_MEANS, markdown(robust, "method")]
    for outside in summary["out_of_distribution"]:
        table = detection_table(summary, outside)
        parts += [f"## {table.title}", DETECTION_MEANS, markdown(table, "method")]
    parts.append("## Every calibrator")
    for split in summary["splits"]:
        for table in calibrator_tables(summary, split):
            parts += [f"### {table.title}", markdown(table, "metric")]
    return "\n\n".join(parts) + "\n"


BY_SET_MEANS = (
    "F1: macro; in brackets, weighted by the sizes of the classes. ECE-10: ten bins of equal width, "
    "closed on the left."
)


DETECTION_MEANS = (
    "AUROC: how often an example of the other set has more entropy (or less confidence) than one of "
    "the test set; 50 % is chance. FPR95: share of test examples that raise a false alarm where 95 % "
    "of the other set are found."
)


GENERATIONS_MEAN = (
    "Networks that were taught by the one before; the first is the teacher's own. Best of the "
    "generations in bold. Chosen: by validation, for each seed."
)


def comparison_text(summary: Mapping[str, Any], *, texts: bool = False) -> str:
    """What a command prints at its end: aligned, no line longer than 100 characters.

    Args:
      summary: from `summarize`.
      texts: the sets are texts: macro F1, as papers on language print, in the place of NLL.
    """
    scaling = temperature_scaling(summary)
    parts = []
    for split, methods in summary["splits"].items():
        columns = _chosen(summary, split, _IN_TERMINAL)
        if texts:
            f1 = [c for c in language_columns(summary, split, methods) if c.key == "f1_macro"]
            columns = [c for c in columns if c.key != "nll"]
            columns[1:1] = [c._replace(title="F1 macro %") for c in f1]
        titles = ["+T" if c.calibrated else c.title.replace("equal ", "") for c in columns]
        rows = [["method", *titles, "T"]]
        for i, (name, entry) in enumerate(methods.items()):
            cells = [c.cells[i] for c in columns]
            numbers = [c.mean + c.spread + _STARS[c.mark] for c in cells]
            rows.append([name, *numbers, temperature(entry, scaling) or "–"])
        counts = sorted({runs(entry) for entry in methods.values()})
        seeds = " to ".join(map(str, counts[:1] + counts[1:][-1:]))
        parts.append(f"{split}, {seeds} seed{'s' * (counts != [1])}\n{_aligned(rows)}")
    for table in generation_tables(summary)[:1]:
        parts.append(f"{table.title}, mean over the seeds\n{_aligned(_by_generation(table))}")
    if robust := robustness_table(summary):
        titles = [title for title, count in robust.groups for _ in range(count)]
        wanted = [i for i, title in enumerate(titles) if title in ROBUSTNESS_IN_SHORT]
        rows = [["method", *("+T" if robust.columns[i] else titles[i] for i in wanted)]]
        for name, cells in robust.rows:
            shown = [cells[i] for i in wanted]
            rows.append([name, *(c.mean + c.spread + _STARS[c.mark] for c in shown)])
        parts.append(f"{robust.title[0].lower()}{robust.title[1:]}\n{_aligned(rows)}")
    means = f"{_STARS_MEAN}; +T after {scaling} scaling by T" if scaling else _STARS_MEAN
    return "\n\n".join([*parts, means])


def _by_generation(table: Table) -> list[list[str]]:
    """A row for every generation of every method; the table has a row per method."""
    *groups, _ = table.groups  # the last one says which was chosen
    width = groups[0][1]
    rows = [["method", "generation", *table.columns[:width], "chosen"]]
    for name, (*cells, chosen) in table.rows:
        for i, (title, _) in enumerate(groups):
            numbers = [c.mean + _STARS[c.mark] for c in cells[i * width : (i + 1) * width]]
            number = title.removeprefix("generation ")
            times = chosen.mean.split(", ").count(number)
            rows.append([name, number, *numbers, f"{times} x" if times else ""])
    return rows


def _paper_rows(summary: Mapping[str, Any], split: str, data: str, model: str) -> list[str]:
    """Two tables of one row, to be put under one another with those of other data and networks."""
    methods = list(summary["splits"][split])
    texts: dict[str, list[str]] = {}
    for column in _chosen(
        summary, split, {("error", False), ("ece_mass", False), ("ece_mass", True)}
    ):
        cells = [_text(cell) for cell in column.cells]
        before = texts.get(column.key)
        if before:
            cells = [f"{b} / {after}" for b, after in zip(before, cells, strict=True)]
        texts[column.key] = cells
    titles = {"ece_mass": "ECE equal mass %", "error": "error %"}
    if temperature_scaling(summary):
        titles["ece_mass"] += ": before / after T (T)"
    parts = []
    for key, title in titles.items():
        if key in texts:
            header = ["data set", "model", *methods]
            parts += [f"### {split}: {title}", markdown_table([header, [data, model, *texts[key]]])]
    return parts


def _chosen(summary: Mapping[str, Any], split: str, wanted: set[tuple[str, bool]]) -> list[Column]:
    return [c for c in compact_columns(summary, split) if (c.key, c.calibrated) in wanted]


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


def markdown(table: Table, corner: str) -> str:
    titles = [title for title, count in table.groups for _ in range(count)]
    header = [corner, *(f"{t} {c}".strip() for t, c in zip(titles, table.columns, strict=True))]
    return markdown_table([header, *([name, *map(_text, cells)] for name, cells in table.rows)])


def _text(cell: Cell) -> str:
    number = cell.mean + cell.spread
    number = {"best": f"**{number}**", "near": f"{number}†"}.get(cell.mark, number)
    return f"{number} {cell.note}".strip()
