"""A summary as Markdown, and as the text that a command prints at its end."""

from calib_jax.metrics import METRICS
from calib_jax.report._robustness import (
    ROBUSTNESS_LEGEND,
    TERMINAL_COLUMNS,
    robustness_table,
)
from calib_jax.report._summary import temperature_scaling
from calib_jax.report._summary_tables import (
    calibrator_tables,
    compact_columns,
    compact_table,
    detection_table,
    ensemble_table,
    generation_tables,
    language_columns,
    mean_temperature,
    num_seeds,
    shift_table,
)
from calib_jax.report._table import (
    EMPTY,
    Cell,
    Column,
    Table,
    cell_markdown,
    to_markdown,
    to_text,
)
from calib_jax.report._types import Summary
from calib_jax.report._verdict import method_verdicts

_IN_TERMINAL = ("error", "nll", "ece", "ece_mass")
_TERMINAL_LEGEND = "* best, ~ within its standard deviation; ECE-15"
_CRITERIA = {
    "temperature": "least NLL",
    "temperature_ece": "least ECE of ten bins on a grid",
    "temperature_ece_mass": "least equal-mass ECE on a grid",
}

MARKS_LEGEND = (
    "Mean ± standard deviation over the seeds. The best of each comparison is bold, † is within one "
    "standard deviation of it; with one seed nothing is marked, as a difference may be chance."
)
ENSEMBLES_LEGEND = (
    "An ensemble is the mean of the seeds' probabilities, then calibrated like a seed. Change: against "
    "the mean of the seeds, before calibration. Disagreement: share of pairs of seeds that predict "
    "different classes. Mutual information: entropy of the mean less mean entropy, in nats."
)
BY_SET_LEGEND = (
    "F1: macro; in brackets, weighted by the sizes of the classes. ECE-10: ten bins of equal width, "
    "closed on the left."
)
DETECTION_LEGEND = (
    "AUROC: how often an example of the other set has more entropy (or less confidence) than one of "
    "the test set; 50 % is chance. FPR95: share of test examples that raise a false alarm where 95 % "
    "of the other set are found."
)
GENERATIONS_LEGEND = (
    "Each network had the one before as teacher; the first had none. Best of the "
    "generations in bold. Chosen: by validation, for each seed."
)


def legend(summary: Summary) -> str:
    """Return what the marks in the tables mean, and which temperature scaling +T is."""
    text = f"{MARKS_LEGEND} Gap: confidence less accuracy. Binned ECEs have 15 bins."
    if scaling := temperature_scaling(summary):
        criterion = f" by {_CRITERIA[scaling]}" if scaling in _CRITERIA else ""
        text += (
            f" +T: after temperature scaling, here the calibrator {scaling}, fitted on "
            f"validation{criterion}, its mean T in brackets."
        )
    return text


def summary_markdown(
    summary: Summary, *, data: str = "", model: str = "", texts: bool = False
) -> str:
    """Return all tables of a summary as Markdown.

    For every split the compact table, and ECE and error as rows of AdaFocal's tables 1 and 2; then
    the splits side by side, detection of every other set, and a table for every calibrator.

    Args:
      summary: Summary from `summarize`.
      data: Name of the data set.
      model: Name of the network.
      texts: Whether the sets are texts, whose classes are seldom of one size: then F1 of a single set
        is shown too.
    """
    parts = ["# Results", legend(summary)]
    for split in summary["splits"]:
        parts += [f"## {split}", to_markdown(compact_table(summary, split))]
        parts += method_verdicts(summary, split)
        if ensembles := ensemble_table(summary, split):
            parts += [f"### {ensembles.title}", ENSEMBLES_LEGEND, to_markdown(ensembles)]
        parts += _paper_rows(summary, split, data if split == "test" else f"{data} {split}", model)
    if len(summary["splits"]) > 1 or texts:
        parts += _titled(shift_table(summary), BY_SET_LEGEND)
    for table in generation_tables(summary):
        parts += _titled(table, GENERATIONS_LEGEND)
    if robustness := robustness_table(summary):
        parts += _titled(robustness, ROBUSTNESS_LEGEND)
    for outside in summary["out_of_distribution"]:
        parts += _titled(detection_table(summary, outside), DETECTION_LEGEND)
    parts.append("## Every calibrator")
    for split in summary["splits"]:
        for table in calibrator_tables(summary, split):
            parts += [f"### {table.title}", to_markdown(table)]
    return "\n\n".join(parts) + "\n"


def comparison_text(summary: Summary, *, texts: bool = False) -> str:
    """Return what a command prints at its end: aligned, no line longer than 100 characters.

    Args:
      summary: Summary from `summarize`.
      texts: Whether the sets are texts: then macro F1, as papers on language print, replaces NLL.
    """
    parts = []
    for split, methods in summary["splits"].items():
        counts = sorted({num_seeds(entry) for entry in methods.values()})
        seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        plural = "" if counts == [1] else "s"
        parts.append(
            f"{split}, {seeds} seed{plural}\n{to_text(_terminal_table(summary, split, texts))}"
        )
    for table in generation_tables(summary)[:1]:
        parts.append(f"{table.title}, mean over the seeds\n{to_text(_row_per_generation(table))}")
    if robustness := robustness_table(summary):
        columns = [c for c in robustness.columns if c.title in TERMINAL_COLUMNS]
        title = f"{robustness.title[0].lower()}{robustness.title[1:]}"
        parts.append(f"{title}\n{to_text(robustness._replace(columns=columns))}")
    scaling = temperature_scaling(summary)
    after = f"; +T after {scaling} scaling by T" if scaling else ""
    return "\n\n".join([*parts, _TERMINAL_LEGEND + after])


def _titled(table: Table, legend: str) -> list[str]:
    return [f"## {table.title}", legend, to_markdown(table)]


def _terminal_table(summary: Summary, split: str, texts: bool) -> Table:
    """Return the few columns of the compact table that fit a terminal, and the temperatures."""
    methods, scaling = summary["splits"][split], temperature_scaling(summary)
    columns = []
    for column in compact_columns(summary, split):
        wanted = column.key in _IN_TERMINAL and not (column.key == "nll" and column.subtitle)
        if wanted and not (texts and column.key == "nll"):
            columns.append(column._replace(title=column.title.replace("equal ", "")))
    if texts:
        f1 = [c for c in language_columns(summary, split, methods) if c.key == "f1_macro"]
        columns[1:1] = [column._replace(title=METRICS["f1_macro"].heading) for column in f1]
    temperatures = [mean_temperature(entry, scaling) for entry in methods.values()]
    cells = [Cell(text) if text else EMPTY for text in temperatures]
    return Table(split, list(methods), [*columns, Column("T", cells, is_ranked=False)])


def _row_per_generation(table: Table) -> Table:
    """Return a row for every generation of every method, given a table with a row per method."""
    titles = [title for title, _ in table.groups[:-1]]  # the last one shows which was chosen
    width = table.groups[0][1]
    names, generations, chosen = [], [], []
    cells: list[list[Cell]] = [[] for _ in range(width)]
    for name, (*numbers, selection) in table.rows:
        for i, title in enumerate(titles):
            generation = title.removeprefix("generation ")
            times = selection.mean.split(", ").count(generation)
            names.append(name)
            generations.append(Cell(generation))
            chosen.append(Cell(f"{times} x" if times else ""))
            for j in range(width):
                cells[j].append(numbers[i * width + j]._replace(spread=""))
    columns = [Column("generation", generations, is_ranked=False)]
    columns += [Column(table.columns[j].subtitle, cells[j]) for j in range(width)]
    columns.append(Column("chosen", chosen, is_ranked=False))
    return Table(table.title, names, columns)


def _paper_rows(summary: Summary, split: str, data: str, model: str) -> list[str]:
    """Return two tables of one row, to be put below those of other data sets and networks."""
    methods = list(summary["splits"][split])
    columns = compact_columns(summary, split)
    parts = []
    for key in ("ece_mass", "error"):
        shown = [column for column in columns if column.key == key]
        if not shown:
            continue
        title = METRICS[key].short_heading
        if key == "ece_mass" and temperature_scaling(summary):
            title += ": before / after T (T)"
        texts = [
            " / ".join(cell_markdown(column.cells[i]) for column in shown)
            for i in range(len(methods))
        ]
        row = (data, [Cell(model), *map(Cell, texts)])
        table = Table.from_rows(title, ["model", *methods], [row], "data set")
        parts += [f"### {split}: {title}", to_markdown(table)]
    return parts
