"""The report of a workdir: its summary, plots and page, from what its runs left."""

import datetime
import json
import pathlib
from collections import Counter
from collections.abc import Sequence

from calib_jax._io import write_atomic, write_json
from calib_jax.report import _sections
from calib_jax.report._bin_sections import bin_sections, label_sections
from calib_jax.report._confusion import confusion_sections
from calib_jax.report._page import Picture, Section, save_plot, write_html
from calib_jax.report._read import (
    Run,
    name_in,
    read_ensembles,
    read_rows,
    read_runs,
    run_folders,
    settings_text,
    variants,
)
from calib_jax.report._summary import summarize, summarize_ensembles
from calib_jax.report._summary_tables import compact_table
from calib_jax.report._summary_text import comparison_text, legend, summary_markdown
from calib_jax.report._training_plots import plot_curves
from calib_jax.report._types import Config, Rows, Summary
from calib_jax.report._verdict import method_verdicts


def write_report(workdir: str | pathlib.Path) -> str:
    """Write `summary.json`, `summary.md`, `report.html` and `plots/*.png` of a workdir.

    All runs that have a `results.json` count; the report names those that have none yet.

    Args:
      workdir: Folder with `config.json` and `<method>/seed_<n>/` for every run.

    Returns:
      The comparison for the terminal.

    Raises:
      ValueError: No run is finished, or a file cannot be read.
    """
    workdir = pathlib.Path(workdir)
    config, runs = read_runs(workdir)
    summary = summarize([run.record for run in runs])
    if ensembles := read_ensembles(workdir, summary):
        summary["ensembles"] = summarize_ensembles(ensembles)
    rows: dict[str, list[Rows]] = {}
    first_runs: dict[str, Run] = {}
    for run in runs:
        rows.setdefault(run.record["method"], []).append(read_rows(run.folder / "metrics.jsonl"))
        first_runs.setdefault(run.record["method"], run)
    settings = {m: settings_text(variants(config)[m]) for m in rows if m in variants(config)}

    options = config.get("config", config)
    plot_format = options.get("plot_format", "png")
    is_interactive = options.get("interactive", True)
    curves = Picture(
        plot_curves(rows),
        f"Curves over the epochs of {', '.join(rows)}",
        "Mean over the seeds, in a band of a standard deviation to either side.",
        "curves",
    )
    sections = [
        *_sections.variant_sections(settings),
        *_sections.ensemble_sections(summary),
        *_sections.by_set_sections(summary, first_runs),
        *_sections.generation_sections(summary),
        *_sections.robustness_sections(summary),
        *_sections.dynamics_sections(workdir, first_runs),
        *_sections.detection_sections(summary, first_runs),
        *_sections.reliability_sections(summary, first_runs),
        *label_sections(rows, first_runs),
        *_sections.calibrator_sections(summary),
        *_sections.class_sections(summary, first_runs),
        *bin_sections(rows, first_runs),
        *confusion_sections(runs),
        Section("Training", pictures=[curves]),
        Section("Configuration", code=json.dumps(config, indent=2), folded=True),
    ]
    write_html(
        workdir / "report.html",
        title=f"Calibration report: {workdir.resolve().name}",
        verdicts=method_verdicts(summary, _sections.main_split(summary)),
        headline=_headline(workdir, config, summary, runs),
        tables=[compact_table(summary, split) for split in summary["splits"]],
        legend=legend(summary),
        sections=sections,
        samples=_sections.interactive_samples(summary, first_runs) if is_interactive else (),
    )
    (workdir / "plots").mkdir(exist_ok=True)
    for picture in (picture for section in sections for picture in section.pictures):
        if picture.name and plot_format != "none":
            save_plot(picture.figure, workdir / "plots" / f"{picture.name}.{plot_format}")
    write_json(workdir / "summary.json", summary)
    texts = _sections.has_texts(first_runs)
    markdown = summary_markdown(
        summary, data=name_in(config, "data"), model=name_in(config, "model"), texts=texts
    )
    if settings:
        lines = "".join(f"- {name}: {text}\n" for name, text in settings.items())
        markdown += f"\nVariants:\n\n{lines}"
    write_atomic(workdir / "summary.md", markdown)
    return f"{comparison_text(summary, texts=texts)}\nreport: {workdir / 'report.html'}"


def _headline(workdir: pathlib.Path, config: Config, summary: Summary, runs: Sequence[Run]) -> str:
    """Return what was compared, on what, where and when, as far as the config tells."""
    methods = list(summary["methods"])
    text = " and ".join(filter(None, [", ".join(methods[:-1]), methods[-1]]))
    for word, section in (("on", "data"), ("with", "model")):
        if name := name_in(config, section):
            text += f" {word} {name}"
    seeds = sorted({seed for m in summary["methods"].values() for seed in m["seeds"]})
    plural = "s" if len(seeds) > 1 else ""
    text += f"; seed{plural} {', '.join(map(str, seeds))}"
    if "devices" in config:
        devices = config["devices"]
        counts = Counter([devices] if isinstance(devices, str) else devices)
        text += "; trained on " + ", ".join(f"{n} × {name}" for name, n in counts.items())
    finished = [run.folder for run in runs]
    last = max((folder / "results.json").stat().st_mtime for folder in finished)
    text += f"; last run finished on {datetime.date.fromtimestamp(last).isoformat()}."
    unfinished = [f"{f.parent.name} {f.name}" for f in run_folders(workdir) if f not in finished]
    if unfinished:
        text += f" Not finished, hence not counted: {', '.join(unfinished)}."
    return text
