"""The report of a workdir: its summary, plots and page, from what its runs left."""

import datetime
import json
import pathlib
from collections import Counter
from collections.abc import Sequence

from calib_jax._io import write_atomic, write_json
from calib_jax.report._bin_sections import bin_sections, label_sections
from calib_jax.report._confusion import confusion_sections
from calib_jax.report._page import Picture, Section, png, write_html
from calib_jax.report._read import (
    Config,
    Rows,
    Run,
    name_in,
    read_rows,
    read_runs,
    run_folders,
    settings_text,
    variants,
)
from calib_jax.report._sections import (
    by_set_sections,
    detection_sections,
    dynamics_sections,
    generation_sections,
    has_texts,
    reliability_sections,
    robustness_sections,
    variant_sections,
)
from calib_jax.report._summary import Summary, summarize
from calib_jax.report._summary_text import comparison_text, summary_markdown
from calib_jax.report._training_plots import plot_curves


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
    rows: dict[str, list[Rows]] = {}
    first_runs: dict[str, Run] = {}
    for run in runs:
        rows.setdefault(run.record["method"], []).append(read_rows(run.folder / "metrics.jsonl"))
        first_runs.setdefault(run.record["method"], run)
    settings = {m: settings_text(variants(config)[m]) for m in rows if m in variants(config)}

    plots = {"curves": png(plot_curves(rows))}
    curves = Picture(
        plots["curves"],
        f"Curves over the epochs of {', '.join(rows)}",
        "Mean over the seeds, in a band of a standard deviation to either side.",
    )
    sections = [
        *variant_sections(settings),
        *by_set_sections(summary, first_runs),
        *generation_sections(summary),
        *robustness_sections(summary, plots),
        *dynamics_sections(workdir, first_runs, plots),
        *detection_sections(summary, first_runs, plots),
        *reliability_sections(summary, first_runs),
        *label_sections(rows, first_runs, plots),
        *bin_sections(rows, first_runs, plots),
        *confusion_sections(runs, plots),
        Section("Training", pictures=[curves]),
        Section("Configuration", code=json.dumps(config, indent=2), folded=True),
    ]
    write_html(
        workdir / "report.html",
        title=f"Calibration report: {workdir.resolve().name}",
        headline=_headline(workdir, config, summary, runs),
        summary=summary,
        sections=sections,
    )
    (workdir / "plots").mkdir(exist_ok=True)
    for name, picture in plots.items():
        write_atomic(workdir / "plots" / f"{name}.png", picture)
    write_json(workdir / "summary.json", summary)
    texts = has_texts(first_runs)
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
