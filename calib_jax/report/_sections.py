"""The sections of a report's page. Pictures that are also files join `plots`, by their names."""

import pathlib
from collections.abc import Mapping

import numpy as np

from calib_jax import metrics
from calib_jax.report._dynamics_plots import plot_dynamics
from calib_jax.report._page import Picture, Section, png
from calib_jax.report._prediction_plots import plot_reliability, plot_roc
from calib_jax.report._read import Run, read_logits
from calib_jax.report._robustness import (
    ROBUSTNESS_LEGEND,
    plot_operations,
    plot_severity,
    robustness_table,
)
from calib_jax.report._summary import Record, Summary
from calib_jax.report._summary_tables import detection_table, generation_tables, shift_table
from calib_jax.report._summary_text import BY_SET_LEGEND, DETECTION_LEGEND, GENERATIONS_LEGEND
from calib_jax.report._table import Cell, Table, to_markdown

_NUM_LISTED = 20  # examples that are listed by their margin

Runs = Mapping[str, Run]  # first run of each method


def variant_sections(settings: Mapping[str, str]) -> list[Section]:
    """Return the settings of the variants."""
    if not settings:
        return []
    lines = "\n".join(f"{name}: {text}" for name, text in settings.items())
    return [Section("Variants", "Everything else is as in the configuration below.", code=lines)]


def has_texts(runs: Runs) -> bool:
    """Return whether the data are texts, whose errors are kept."""
    return any((run.folder / "errors.json").is_file() for run in runs.values())


def by_set_sections(summary: Summary, runs: Runs) -> list[Section]:
    """Return the table by set, if there are several, or texts, whose classes are seldom of one size."""
    if len(summary["splits"]) < 2 and not has_texts(runs):
        return []
    table = shift_table(summary)
    return [Section(table.title, BY_SET_LEGEND, tables=[table])]


def robustness_sections(summary: Summary, plots: dict[str, bytes]) -> list[Section]:
    """Return table and plots of corruptions, attacks and image operations."""
    sections = []
    if table := robustness_table(summary):
        pictures = []
        if figure := plot_severity(summary):
            plots["severity"] = png(figure)
            pictures.append(Picture(
                plots["severity"], "Accuracy and ECE against the severity of corruptions",
                "Means over the corruption types and the seeds, in a band of a standard deviation.",
            ))  # fmt: skip
        sections.append(Section(table.title, ROBUSTNESS_LEGEND, tables=[table], pictures=pictures))
    if figure := plot_operations(summary):
        plots["operations"] = png(figure)
        picture = Picture(
            plots["operations"], "Accuracy against the magnitude of each image operation",
            "On the test set, 0 being without it; means over the seeds. Autocontrast and equalize have "
            "no magnitude.",
        )  # fmt: skip
        sections.append(Section("Under image operations", pictures=[picture]))
    return sections


def dynamics_sections(workdir: pathlib.Path, runs: Runs, plots: dict[str, bytes]) -> list[Section]:
    """Return what a recording phase measured of the training examples, with the first seed."""
    paths = sorted(workdir.glob("phases/records/seed_*/artifacts.npz"))
    if not paths:
        return []
    with np.load(paths[0], allow_pickle=False) as archive:
        records = dict(archive)
    plots["dynamics"] = png(plot_dynamics(records))
    names = next(
        (r.record["label_names"] for r in runs.values() if r.record.get("label_names")), ()
    )
    lowest = np.argsort(records["aum"], kind="stable")[:_NUM_LISTED]
    rows = []
    for i in lowest:
        label = records["labels"][i]
        numbers = [f"{records[key][i]:.2f}" for key in ("aum", "confidence", "correctness")]
        cells = [Cell(names[label] if names else str(label)), *map(Cell, numbers)]
        rows.append((str(records["ids"][i]), cells))
    table = Table.from_rows("", ["label", "AUM", "confidence", "correct"], rows, "id")
    return [Section(
        "Training dynamics of the examples",
        f"Below, the {len(lowest)} examples with the lowest area under the margin: wrong labels, if "
        "there are any, are likely to be among them. Id: place in the set's official files; correct: "
        "share of the epochs in which the label was predicted.",
        pictures=[Picture(
            plots["dynamics"],
            "AUM against confidence, and confidence against variability, of training examples",
            "Left: area under the margin. Right: the data map. Dashed: the medians. A method that "
            "halves the examples into easy and hard does so at that of AUM or at that of confidence, "
            f"by its option categorize. Seed {paths[0].parent.name.removeprefix('seed_')}.",
        )],
        code=to_markdown(table),
    )]  # fmt: skip


def generation_sections(summary: Summary) -> list[Section]:
    """Return the tables of students that were taught one by another."""
    tables = generation_tables(summary)
    return [Section("Generations", GENERATIONS_LEGEND, tables=tables)] if tables else []


def detection_sections(summary: Summary, runs: Runs, plots: dict[str, bytes]) -> list[Section]:
    """Return table and ROC curves of every out-of-distribution set."""
    sections = []
    for outside in summary["out_of_distribution"]:
        curves, text = {}, DETECTION_LEGEND
        for method, (record, folder) in runs.items():
            paths = [folder / "logits" / f"{split}.npz" for split in ("test", outside)]
            if missing := [path.name for path in paths if not path.is_file()]:
                text += f" No curve of {method}: {missing[0]} is not among its logits."
                continue
            inside, other = (read_logits(path)[0] for path in paths)
            logits = np.concatenate([inside, other])
            is_other = np.arange(len(logits)) >= len(inside)
            curves[method] = [
                (np.asarray(metrics.predictive_entropy(logits / t)), is_other)
                for _, t in _temperatures(record, "test")
            ]
        pictures = []
        if curves:
            plots[f"roc_{outside}"] = png(plot_roc(curves))
            seeds = sorted({runs[method].record["seed"] for method in curves})
            pictures.append(Picture(
                plots[f"roc_{outside}"],
                f"ROC curves of telling {outside} from test by entropy, of {', '.join(curves)}",
                "By entropy of the softmax; solid before, dashed after temperature scaling. "
                f"Seed {', '.join(map(str, seeds))}.",
            ))  # fmt: skip
        sections.append(Section(
            f"Out of distribution: {outside}", text,
            tables=[detection_table(summary, outside)], pictures=pictures,
        ))  # fmt: skip
    return sections


def reliability_sections(summary: Summary, runs: Runs) -> list[Section]:
    """Return reliability diagrams before and after temperature scaling.

    They are of the test split or, without one, of the first.
    """
    split = "test" if "test" in summary["splits"] else next(iter(summary["splits"]))
    sections = []
    for method, (record, folder) in runs.items():
        path = folder / "logits" / f"{split}.npz"
        title = f"Reliability of {method} on {split}"
        if not path.is_file():
            sections.append(
                Section(title, text=f"No diagram: {path.name} is not among the logits.")
            )
            continue
        logits, labels = read_logits(path)
        pictures = []
        for name, temperature in _temperatures(record, split):
            confidence, correct = map(np.asarray, metrics.top_label(logits / temperature, labels))
            gap = confidence.mean() - correct.mean()
            pictures.append(Picture(
                png(plot_reliability([(name, confidence, correct)])),
                f"Reliability diagram of {method} on {split}, {name}: mean confidence "
                f"{confidence.mean():.1%}, accuracy {correct.mean():.1%}",
                f"{name.capitalize()}: on average {100 * abs(gap):.1f} % "
                f"{'over' if gap > 0 else 'under'}-confident. Seed {record['seed']}.",
            ))  # fmt: skip
        sections.append(Section(title, pictures=pictures))
    return sections


def _temperatures(record: Record, split: str) -> list[tuple[str, float]]:
    """Return name and temperature of what is shown of a run: before and, if there is any, after +T."""
    temperatures = [("before temperature scaling", 1.0)]
    for evaluation in record["splits"].get(split, []):
        if evaluation["name"].startswith("temperature"):
            temperature = evaluation["parameters"]["temperature"][0]
            temperatures.append((f"after temperature {temperature:.2f}", temperature))
            break
    return temperatures
