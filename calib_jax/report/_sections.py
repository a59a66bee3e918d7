"""The sections of a report's page."""

import pathlib
from collections.abc import Mapping

import numpy as np

from calib_jax import metrics
from calib_jax.report._dynamics_plots import plot_dynamics
from calib_jax.report._group_tables import CLASSES_LEGEND, class_table, outcomes
from calib_jax.report._interactive import MAX_ROWS, Sample, take_sample
from calib_jax.report._page import Picture, Section
from calib_jax.report._prediction_plots import plot_reliability, plot_roc
from calib_jax.report._read import Run
from calib_jax.report._robustness import (
    ROBUSTNESS_LEGEND,
    plot_operations,
    plot_severity,
    robustness_table,
)
from calib_jax.report._summary_tables import (
    calibrator_tables,
    detection_table,
    ensemble_table,
    generation_tables,
    shift_table,
)
from calib_jax.report._summary_text import (
    BY_SET_LEGEND,
    DETECTION_LEGEND,
    ENSEMBLES_LEGEND,
    GENERATIONS_LEGEND,
)
from calib_jax.report._table import Cell, Table, to_markdown
from calib_jax.report._types import Record, Summary
from calib_jax.report._verdict import gap_text

_NUM_LISTED = 20  # examples that are listed by their margin

Runs = Mapping[str, Run]  # first run of each method


def main_split(summary: Summary) -> str:
    """Return the set that a report is about: test or, without one, the first."""
    return "test" if "test" in summary["splits"] else next(iter(summary["splits"]))


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


def ensemble_sections(summary: Summary) -> list[Section]:
    """Return how the ensembles of the seeds compare with a seed."""
    tables = [table for s in summary["splits"] if (table := ensemble_table(summary, s))]
    return [Section("Ensembles of the seeds", ENSEMBLES_LEGEND, tables=tables)] if tables else []


def calibrator_sections(summary: Summary) -> list[Section]:
    """Return all that was measured, a folded section per set and calibrator."""
    return [
        Section(table.title, tables=[table], folded=True)
        for split in summary["splits"]
        for table in calibrator_tables(summary, split)
    ]


def class_sections(summary: Summary, runs: Runs) -> list[Section]:
    """Return a folded table by class of each method, with its first seed."""
    split, sections = main_split(summary), []
    for method, run in runs.items():
        names, examples = run.record.get("label_names"), run.read_split(split)
        if names and examples:
            title = f"By class: {method} on {split}, seed {run.record['seed']}"
            rows = outcomes(examples.logits, examples.labels)
            table = class_table(title, examples.labels, rows, names)
            sections.append(Section(title, CLASSES_LEGEND, tables=[table], folded=True))
    return sections


def interactive_samples(summary: Summary, runs: Runs) -> list[Sample]:
    """Return the rows of the interactive figure, with the first seed of each method."""
    split = main_split(summary)
    read = {method: run.read_split(split) for method, run in runs.items()}
    shown = {method: examples for method, examples in read.items() if examples}
    samples = []
    for method, (logits, labels, _) in shown.items():
        record = runs[method].record
        *_, (_, temperature) = _temperatures(record, split)
        samples.append(take_sample(
            f"{method} on {split}, seed {record['seed']}", logits, labels,
            names=record.get("label_names") or None,
            temperatures={} if temperature == 1 else {"temperature scaling": temperature},
            max_rows=MAX_ROWS // len(shown),
        ))  # fmt: skip
    return samples


def robustness_sections(summary: Summary) -> list[Section]:
    """Return table and plots of corruptions, attacks and image operations."""
    sections = []
    if table := robustness_table(summary):
        pictures = []
        if figure := plot_severity(summary):
            pictures.append(Picture(
                figure, "Accuracy and ECE against the severity of corruptions",
                "Means over the corruption types and the seeds, in a band of a standard deviation.",
                "severity",
            ))  # fmt: skip
        sections.append(Section(table.title, ROBUSTNESS_LEGEND, tables=[table], pictures=pictures))
    if figure := plot_operations(summary):
        picture = Picture(
            figure, "Accuracy against the magnitude of each image operation",
            "On the test set, 0 being without it; means over the seeds. Autocontrast and equalize have "
            "no magnitude.", "operations",
        )  # fmt: skip
        sections.append(Section("Under image operations", pictures=[picture]))
    return sections


def dynamics_sections(workdir: pathlib.Path, runs: Runs) -> list[Section]:
    """Return what a recording phase measured of the training examples, with the first seed."""
    paths = sorted(workdir.glob("phases/records/seed_*/artifacts.npz"))
    if not paths:
        return []
    with np.load(paths[0], allow_pickle=False) as archive:
        records = dict(archive)
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
            plot_dynamics(records),
            "AUM against confidence, and confidence against variability, of training examples",
            "Left: area under the margin. Right: the data map. Dashed: the medians. A method that "
            "halves the examples into easy and hard does so at that of AUM or at that of confidence, "
            f"by its option categorize. Seed {paths[0].parent.name.removeprefix('seed_')}.",
            "dynamics",
        )],
        code=to_markdown(table),
    )]  # fmt: skip


def generation_sections(summary: Summary) -> list[Section]:
    """Return the tables of students, each of which had the one before as teacher."""
    tables = generation_tables(summary)
    return [Section("Generations", GENERATIONS_LEGEND, tables=tables)] if tables else []


def detection_sections(summary: Summary, runs: Runs) -> list[Section]:
    """Return table and ROC curves of every out-of-distribution set."""
    sections = []
    for outside in summary["out_of_distribution"]:
        curves, text = {}, DETECTION_LEGEND
        for method, run in runs.items():
            inside, other = run.read_split("test"), run.read_split(outside)
            if inside is None or other is None:
                missing = "test" if inside is None else outside
                text += f" No curve of {method}: {missing}.npz is not among its logits."
                continue
            logits = np.concatenate([inside.logits, other.logits])
            is_other = np.arange(len(logits)) >= len(inside.logits)
            curves[method] = [
                (np.asarray(metrics.predictive_entropy(logits / t)), is_other)
                for _, t in _temperatures(run.record, "test")
            ]
        pictures = []
        if curves:
            seeds = sorted({runs[method].record["seed"] for method in curves})
            pictures.append(Picture(
                plot_roc(curves),
                f"ROC curves of telling {outside} from test by entropy, of {', '.join(curves)}",
                "By entropy of the softmax; solid before, dashed after temperature scaling. "
                f"Seed {', '.join(map(str, seeds))}.",
                f"roc_{outside}",
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
    split = main_split(summary)
    sections = []
    for method, run in runs.items():
        record, examples = run.record, run.read_split(split)
        title = f"Reliability of {method} on {split}"
        if examples is None:
            text = f"No diagram: {split}.npz is not among the logits."
            sections.append(Section(title, text))
            continue
        logits, labels, _ = examples
        pictures = []
        for name, temperature in _temperatures(record, split):
            confidence, correct = map(np.asarray, metrics.top_label(logits / temperature, labels))
            gap = 100 * (confidence.mean() - correct.mean())
            pictures.append(Picture(
                plot_reliability([(name, confidence, correct)]),
                f"Reliability diagram of {method} on {split}, {name}: mean confidence "
                f"{confidence.mean():.1%}, accuracy {correct.mean():.1%}",
                f"{name.capitalize()}: {gap_text(gap)}. Seed {record['seed']}.",
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
