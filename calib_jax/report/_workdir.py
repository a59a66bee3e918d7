"""From a workdir's runs to its summary and report."""

import datetime
import json
import pathlib
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calib_jax import metrics
from calib_jax.report._html import Picture, Section, png, write_html
from calib_jax.report._plots import plot_reliability
from calib_jax.report._summary import comparison_text, summarise, summary_markdown
from calib_jax.report._training_plots import plot_curves, plot_gamma


def write_report(workdir: str | pathlib.Path) -> str:
    """Writes `summary.json`, `summary.md`, `report.html` and `plots/curves.png` of a workdir.

    All runs that have a `results.json` count; the report names those that have none yet.

    Args:
      workdir: holds `config.json` and `<method>/seed_<n>/` for every run.

    Returns:
      The comparison for the terminal.

    Raises:
      ValueError: no run is finished, or a file cannot be read.
    """
    workdir = pathlib.Path(workdir)
    folders = sorted(path for path in workdir.glob("*/seed_*") if path.is_dir())
    finished = [folder for folder in folders if (folder / "results.json").is_file()]
    if not finished:
        raise ValueError(
            f"{workdir}: no finished run, expected <method>/seed_<n>/results.json; train first"
        )
    records = [(_read_json(folder / "results.json"), folder) for folder in finished]
    # Cross entropy is what the others are compared with.
    records.sort(key=lambda r: (r[0]["method"] != "cross_entropy", r[0]["method"], r[0]["seed"]))
    summary = summarise([record for record, _ in records])
    rows: dict[str, list[list[dict[str, Any]]]] = {}
    first_runs: dict[str, tuple[dict[str, Any], pathlib.Path]] = {}
    for record, folder in records:
        rows.setdefault(record["method"], []).append(_read_rows(folder / "metrics.jsonl"))
        first_runs.setdefault(record["method"], (record, folder))

    config = _read_json(workdir / "config.json")
    curves = png(plot_curves(rows))
    sections = [
        *_reliability(summary, first_runs),
        *_gamma(rows, first_runs),
        Section("Training", pictures=[Picture(
            curves, f"Curves over the epochs of {', '.join(rows)}",
            "Mean over the seeds, in a band from the smallest to the largest of them.",
        )]),
        Section("Configuration", code=json.dumps(config, indent=2), folded=True),
    ]  # fmt: skip
    unfinished = [f"{f.parent.name} {f.name}" for f in folders if f not in finished]
    write_html(
        workdir / "report.html",
        title=f"Calibration report: {workdir.resolve().name}",
        headline=_headline(config, summary, finished, unfinished),
        summary=summary,
        sections=sections,
    )
    (workdir / "plots").mkdir(exist_ok=True)
    (workdir / "plots" / "curves.png").write_bytes(curves)
    (workdir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    (workdir / "summary.md").write_text(summary_markdown(summary), encoding="utf-8")
    return f"{comparison_text(summary)}\nreport: {workdir / 'report.html'}"


def _headline(
    record: Mapping[str, Any],
    summary: Mapping[str, Any],
    finished: Sequence[pathlib.Path],
    unfinished: Sequence[str],
) -> str:
    """What was compared, on what, where and when, as far as config.json says so."""
    config = record.get("config", record)
    methods = list(summary["methods"])
    text = " and ".join(filter(None, [", ".join(methods[:-1]), methods[-1]]))
    for word, part in (("on", "data"), ("with", "model")):
        if "name" in config.get(part, {}):
            text += f" {word} {config[part]['name']}"
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


def _reliability(
    summary: Mapping[str, Any], runs: Mapping[str, tuple[Mapping[str, Any], pathlib.Path]]
) -> list[Section]:
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
        logits, labels = _read_logits(path)
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
    found = [j["parameters"] for j in record["splits"].get(split, []) if j["name"] == "temperature"]
    after = [(f"after temperature {p['temperature'][0]:.2f}", p["temperature"][0]) for p in found]
    return [("before temperature scaling", 1.0), *after]


def _gamma(
    rows: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]],
    runs: Mapping[str, tuple[Mapping[str, Any], pathlib.Path]],
) -> list[Section]:
    return [
        Section(f"γ of {method}, bin by bin", pictures=[Picture(
            png(plot_gamma(seeds[0])), f"γ per probability bin over the epochs of {method}",
            "Below: γ, focal loss above zero and inverse focal below. On top, where it was recorded: "
            "confidence less accuracy of the bin on validation, which drives it. Bins hold equally "
            f"many examples; their ranges are the last ones. Seed {runs[method][0]['seed']}.",
        )])
        for method, seeds in rows.items() if any("method/gamma" in row for row in seeds[0])
    ]  # fmt: skip


def _read_json(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; is this a workdir of calib_jax.main?")
    return _parse(path.read_text(encoding="utf-8"), str(path))


def _read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file, though the run has results; run it again")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_parse(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1)]


def _read_logits(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    # Asked first because NumPy leaves a file that is no archive open.
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: expected an npz archive, this is none; run the method again")
    with np.load(path, allow_pickle=False) as archive:
        return archive["logits"], archive["labels"]


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not valid JSON ({error.msg}); remove or mend it") from None
