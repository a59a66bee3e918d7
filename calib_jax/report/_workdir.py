"""From a workdir's runs to its summary and report."""

import datetime
import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calib_jax import metrics
from calib_jax._io import write_atomic, write_json
from calib_jax.augment import OPS
from calib_jax.report._bin_plots import (
    plot_bins,
    plot_correspondence,
    plot_gamma,
    plot_training_bins,
)
from calib_jax.report._comparison import detection_table, generation_tables, shift_table
from calib_jax.report._confusion import confusion_sections
from calib_jax.report._dynamics_plots import plot_dynamics
from calib_jax.report._html import Picture, Section, png, write_html
from calib_jax.report._plots import plot_reliability, plot_roc
from calib_jax.report._robustness import (
    ROBUSTNESS_MEANS,
    plot_labels,
    plot_operations,
    plot_severity,
    robustness_table,
)
from calib_jax.report._runs import (
    named,
    read_json,
    read_logits,
    read_rows,
    read_runs,
    run_folders,
    settings_text,
    variants,
)
from calib_jax.report._summary import summarize
from calib_jax.report._tables import markdown_table
from calib_jax.report._text import (
    BY_SET_MEANS,
    DETECTION_MEANS,
    GENERATIONS_MEAN,
    comparison_text,
    summary_markdown,
)
from calib_jax.report._training_plots import plot_curves

_LOWEST = 20  # examples that are listed by their margin

Runs = Mapping[str, tuple[Mapping[str, Any], pathlib.Path]]  # of each method: results and folder


def write_report(workdir: str | pathlib.Path) -> str:
    """Writes `summary.json`, `summary.md`, `report.html` and `plots/*.png` of a workdir.

    All runs that have a `results.json` count; the report names those that have none yet.

    Args:
      workdir: holds `config.json` and `<method>/seed_<n>/` for every run.

    Returns:
      The comparison for the terminal.

    Raises:
      ValueError: no run is finished, or a file cannot be read.
    """
    workdir = pathlib.Path(workdir)
    config, records = read_runs(workdir)
    summary = summarize([record for record, _ in records])
    rows: dict[str, list[list[dict[str, Any]]]] = {}
    first_runs: dict[str, tuple[dict[str, Any], pathlib.Path]] = {}
    for record, folder in records:
        rows.setdefault(record["method"], []).append(read_rows(folder / "metrics.jsonl"))
        first_runs.setdefault(record["method"], (record, folder))

    plots = {"curves": png(plot_curves(rows))}
    settings = {m: settings_text(variants(config)[m]) for m in rows if m in variants(config)}
    sections = [
        *_variants(settings),
        *_by_set(summary, first_runs),
        *_generations(summary),
        *_robust(summary, plots),
        *_dynamics(workdir, first_runs, plots),
        *_detection(summary, first_runs, plots),
        *_reliability(summary, first_runs),
        *_labels(rows, first_runs, plots),
        *_bins(rows, first_runs, plots),
        *confusion_sections(records, plots),
        Section("Training", pictures=[Picture(
            plots["curves"], f"Curves over the epochs of {', '.join(rows)}",
            "Mean over the seeds, in a band of a standard deviation to either side.",
        )]),
        Section("Configuration", code=json.dumps(config, indent=2), folded=True),
    ]  # fmt: skip
    finished = [folder for _, folder in records]
    unfinished = [f"{f.parent.name} {f.name}" for f in run_folders(workdir) if f not in finished]
    write_html(
        workdir / "report.html",
        title=f"Calibration report: {workdir.resolve().name}",
        headline=_headline(config, summary, finished, unfinished),
        summary=summary,
        sections=sections,
    )
    (workdir / "plots").mkdir(exist_ok=True)
    for name, picture in plots.items():
        write_atomic(workdir / "plots" / f"{name}.png", picture)
    write_json(workdir / "summary.json", summary)
    texts = _texts(first_runs)
    markdown = summary_markdown(
        summary, data=named(config, "data"), model=named(config, "model"), texts=texts
    )
    listed = "".join(f"- {name}: {text}\n" for name, text in settings.items())
    write_atomic(workdir / "summary.md", markdown + (f"\nVariants:\n\n{listed}" if listed else ""))
    return f"{comparison_text(summary, texts=texts)}\nreport: {workdir / 'report.html'}"


def _headline(
    record: Mapping[str, Any],
    summary: Mapping[str, Any],
    finished: Sequence[pathlib.Path],
    unfinished: Sequence[str],
) -> str:
    """What was compared, on what, where and when, as far as config.json says so."""
    methods = list(summary["methods"])
    text = " and ".join(filter(None, [", ".join(methods[:-1]), methods[-1]]))
    for word, part in (("on", "data"), ("with", "model")):
        if name := named(record, part):
            text += f" {word} {name}"
    seeds = sorted({seed for m in summary["methods"].values() for seed in m["seeds"]})
    text += f"; seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    if "devices" in record:
        devices = record["devices"]
        counts = Counter([devices] if isinstance(devices, str) else devices)
        text += "; trained on " + ", ".join(f"{n} × {name}" for name, n in counts.items())
    last = max((folder / "results.json").stat().st_mtime for folder in finished)
    text += f"; last run finished on {datetime.date.fromtimestamp(last).isoformat()}."
    if unfinished:
        text += f" Not finished, hence not counted: {', '.join(unfinished)}."
    return text


def _variants(settings: Mapping[str, str]) -> list[Section]:
    """What the variants among the rows are."""
    if not settings:
        return []
    lines = "\n".join(f"{name}: {text}" for name, text in settings.items())
    return [Section("Variants", "Everything else is as in the configuration below.", code=lines)]


def _texts(runs: Runs) -> bool:
    """Whether the data are texts, of which the errors are kept."""
    return any((folder / "errors.json").is_file() for _, folder in runs.values())


def _by_set(summary: Mapping[str, Any], runs: Runs) -> list[Section]:
    """Where there are several sets, or texts, whose classes are seldom of one size."""
    if len(summary["splits"]) < 2 and not _texts(runs):
        return []
    table = shift_table(summary)
    return [Section(table.title, BY_SET_MEANS, tables=[table])]


def _robust(summary: Mapping[str, Any], plots: dict[str, bytes]) -> list[Section]:
    sections = []
    if table := robustness_table(summary):
        pictures = []
        if figure := plot_severity(summary):
            plots["severity"] = png(figure)
            pictures.append(Picture(
                plots["severity"], "Accuracy and ECE against the severity of corruptions",
                "Means over the corruption types and the seeds, in a band of a standard deviation.",
            ))  # fmt: skip
        sections.append(Section(table.title, ROBUSTNESS_MEANS, tables=[table], pictures=pictures))
    if figure := plot_operations(summary):
        plots["operations"] = png(figure)
        picture = Picture(
            plots["operations"], "Accuracy against the magnitude of each image operation",
            "On the test set, 0 being without it; means over the seeds. Autocontrast and equalize have "
            "no magnitude.",
        )  # fmt: skip
        sections.append(Section("Under image operations", pictures=[picture]))
    return sections


def _labels(
    rows: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], runs: Runs, plots: dict[str, bytes]
) -> list[Section]:
    """The label confidences that AutoLabel has learned, the first seed's; they join `plots`."""
    sections = []
    for method, seeds in rows.items():
        if not any("method/label_confidence" in row for row in seeds[0]):
            continue
        options = read_json(runs[method][1] / "config.json")["config"]["method"]
        options = options.get(options.get("variants", {}).get(method, {}).get("of", method), {}) | (
            options.get("variants", {}).get(method, {})
        )
        if "max_magnitude" in options:
            ops = options["ops"]
            names = OPS if ops == "all" else [op.strip() for op in ops.split(",")]
            meaning = "A panel is an operation, a bucket a magnitude."
        elif "magnitude" in options:
            names = [f"depth {d}" for d in (1, 2, 3)]
            meaning = "A panel is a depth of the chain; the more, the heavier the original image."
        else:
            names, meaning = [], "A later bucket is farther from the original image."
        plots[f"labels_{method}"] = png(plot_labels(seeds[0], names))
        sections.append(Section(
            f"Label confidences of {method}",
            pictures=[Picture(
                plots[f"labels_{method}"],
                f"Confidence in the label of each distance bucket over the epochs of {method}",
                f"What the table of AutoLabel gives to the true class. {meaning} "
                f"Seed {runs[method][0]['seed']}.",
            )],
        ))  # fmt: skip
    return sections


def _dynamics(workdir: pathlib.Path, runs: Runs, plots: dict[str, bytes]) -> list[Section]:
    """What a recording phase learned of the training examples, the first seed's."""
    paths = sorted(workdir.glob("phases/records/seed_*/handed_over.npz"))
    if not paths:
        return []
    with np.load(paths[0], allow_pickle=False) as archive:
        records = dict(archive)
    plots["dynamics"] = png(plot_dynamics(records))
    names = next((r["label_names"] for r, _ in runs.values() if r.get("label_names")), ())
    lowest = np.argsort(records["aum"], kind="stable")[:_LOWEST]
    rows = [["id", "label", "AUM", "confidence", "correct"]]
    for i in lowest:
        numbers = (f"{records[key][i]:.2f}" for key in ("aum", "confidence", "correctness"))
        label = records["labels"][i]
        rows.append([str(records["ids"][i]), names[label] if names else str(label), *numbers])
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
            f"by its option categorise. Seed {paths[0].parent.name.removeprefix('seed_')}.",
        )],
        code=markdown_table(rows),
    )]  # fmt: skip


def _generations(summary: Mapping[str, Any]) -> list[Section]:
    tables = generation_tables(summary)
    return [Section("Generations", GENERATIONS_MEAN, tables=tables)] if tables else []


def _detection(summary: Mapping[str, Any], runs: Runs, plots: dict[str, bytes]) -> list[Section]:
    """For every other set its table and ROC curves, which join `plots`."""
    sections = []
    for outside in summary["out_of_distribution"]:
        curves, text = {}, DETECTION_MEANS
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
            seeds = sorted({runs[method][0]["seed"] for method in curves})
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


def _reliability(summary: Mapping[str, Any], runs: Runs) -> list[Section]:
    """Before and after temperature scaling, on the test split or, without one, on the first."""
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


def _temperatures(record: Mapping[str, Any], split: str) -> list[tuple[str, float]]:
    """What is shown of a run: as it is, and after the temperature scaling that tables call +T."""
    judgements = record["splits"].get(split, [])
    found = [j["parameters"] for j in judgements if j["name"].startswith("temperature")][:1]
    after = [(f"after temperature {p['temperature'][0]:.2f}", p["temperature"][0]) for p in found]
    return [("before temperature scaling", 1.0), *after]


def _bins(
    rows: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], runs: Runs, plots: dict[str, bytes]
) -> list[Section]:
    """What was logged of the methods' bins, the first seed of each; the pictures join `plots`."""
    sections = []
    watched = {m: s for m, s in rows.items() if any("method/val_gap" in row for row in s[0])}
    if len(watched) > 1:
        plots["bins"] = png(plot_bins(watched))
        sections.append(Section("Calibration of all methods, bin by bin", pictures=[Picture(
            plots["bins"], f"Gap and confidence in three bins over the epochs of {', '.join(watched)}",
            "Above: confidence less accuracy on validation, mean over the seeds in a band of a "
            "standard deviation. Below: mean probability that training examples in the bin give "
            "their label (solid), and confidence on validation (starred).",
        )]))  # fmt: skip
    for method, seeds in rows.items():
        logged = {key for row in seeds[0] for key in row}
        seed = f"Seed {runs[method][0]['seed']}."
        if logged & {"method/gamma", "method/gap", "method/val_gap"}:
            what = "γ" if "method/gamma" in logged else "Calibration gap"
            caption = (
                "Below: γ, focal loss above zero and inverse focal below. On top, where it was "
                "recorded: confidence less accuracy of the bin on validation, which drives it."
                if "method/gamma" in logged
                else "Confidence less accuracy of the bin on validation"
                + (", which drives the loss." if "method/gap" in logged else ".")
            )
            plots[f"bins_{method}"] = png(plot_gamma(seeds[0]))
            sections.append(Section(f"{what} of {method}, bin by bin", pictures=[Picture(
                plots[f"bins_{method}"], f"{what} per probability bin over the epochs of {method}",
                f"{caption} Bins hold equally many examples; their ranges are the last ones. {seed}",
            )]))  # fmt: skip
        if "method/train_confidence" in logged:
            plots[f"correspondence_{method}"] = png(plot_correspondence(seeds[0]))
            sections.append(Section(
                f"Training and validation confidence of {method}",
                pictures=[Picture(
                    plots[f"correspondence_{method}"],
                    f"Confidence in training and validation over the epochs of {method}, three bins",
                    "Training examples are put in the bins of the validation set by the probability "
                    "of their label. Where its confidence moves, that of validation should follow; "
                    "the shaded distance to the accuracy is the calibration gap. "
                    f"Ranges are the last ones. {seed}",
                )],
            ))  # fmt: skip
        if "method/train_own_confidence" in logged:
            plots[f"training_bins_{method}"] = png(plot_training_bins(seeds[0]))
            sections.append(Section(
                f"Training confidence of {method} in other bins",
                pictures=[Picture(
                    plots[f"training_bins_{method}"],
                    f"Training confidence of {method} by true and predicted class, and in own bins",
                    "Above: in the true and in the predicted class, by bins of validation. Below: "
                    "training and validation each in bins of their own that hold equally many examples; "
                    f"shaded, the ranges of those bins. {seed}",
                )],
                folded=True,
            ))  # fmt: skip
    return sections
