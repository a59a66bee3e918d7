"""Comparison of several workdirs, of networks and of language models: a table per data set."""

import json
import pathlib
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from calib_jax._io import write_atomic
from calib_jax.report._compare_plots import Point, plot_across
from calib_jax.report._page import save_plot
from calib_jax.report._read import name_in, read_json, read_runs
from calib_jax.report._robustness import ROBUSTNESS_LEGEND, robustness_table
from calib_jax.report._summary import summarize, temperature_scaling
from calib_jax.report._summary_tables import UNCALIBRATED, language_columns
from calib_jax.report._summary_text import BY_SET_LEGEND, MARKS_LEGEND
from calib_jax.report._table import EMPTY, Cell, Column, Table, to_markdown
from calib_jax.report._types import Config, Json, Record, Summary

_SCALED = "temperature"  # whichever way a workdir fits it
_DELTA_LEGEND = " That of the same workdir or, if it has none, the first in the table."
Sizes = dict[tuple[str, str], int]  # number of examples by row and set


def compare_workdirs(
    workdirs: Sequence[str | pathlib.Path],
    by: str = "",
    folder: str | pathlib.Path | None = None,
) -> str:
    """Compare workdirs, as Markdown: a table per set, a row per method.

    Accuracy, F1 and ECE; where images were corrupted or attacked, a table of that per data set too.
    A workdir's test set is the one of its data set, so that workdirs of other data join in other
    tables, and a set that one was trained for and another shifted to is one table.

    Args:
      workdirs: Workdirs of `calib_jax.main`, or of `calib_jax.llm`, whose rows are models.
      by: Key of the config in which the workdirs differ, such as `method.adversarial.eps`: the x axis
        of the plots; the workdirs' names if it is empty.
      folder: Folder for `comparison.md` and, per data set that was corrupted or attacked,
        `comparison_SET.png`; nothing is written without it.

    Raises:
      ValueError: Nothing is finished in one of them, a file cannot be read, or `by` is in no config.
    """
    paths = [pathlib.Path(path) for path in workdirs]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    records: list[Record] = []
    sizes: Sizes = {}
    sources = []
    robust: dict[str, list[Record]] = {}
    for path, name in zip(paths, names, strict=True):
        read = _read_llm if (path / "settings.json").is_file() else _read_trained
        new_records, source = read(path, name, sizes)
        records += new_records
        sources.append(f"- {name}: {source}")
        if measured := [record for record in new_records if "robustness" in record]:
            config = read_json(path / "config.json")
            x = _setting(config, by, path) if by else name
            title = _robustness_title(config, name)
            robust.setdefault(title, []).extend({**record, "x": x} for record in measured)
    summary = summarize(records)
    parts = _set_tables(summary, sizes)
    figures = {}
    for title, measured in robust.items():
        table, figures[title] = _robustness(title, measured, by or "workdir")
        parts += table
    text = "\n\n".join([*parts, _legend(summary), "\n".join(sources)])
    if folder:
        _write(pathlib.Path(folder), text, figures)
    return text


def _set_tables(summary: Summary, sizes: Sizes) -> list[str]:
    """Return heading and table of every set."""
    parts = []
    for split, methods in summary["splits"].items():
        numbers = [Cell(str(sizes[m, split])) if (m, split) in sizes else EMPTY for m in methods]
        columns = [Column("examples", numbers), *language_columns(summary, split, methods)]
        parts += [f"## {split}", to_markdown(Table(split, list(methods), columns))]
    return parts


def _legend(summary: Summary) -> str:
    legend = f"{MARKS_LEGEND} {BY_SET_LEGEND}"
    if temperature_scaling(summary):
        legend += (
            " +T: after temperature scaling, fitted on validation, by the calibrator named below."
        )
    return legend


def _write(folder: pathlib.Path, text: str, figures: Mapping[str, Figure | None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "comparison.md", text + "\n")
    for title, figure in figures.items():
        if figure:
            save_plot(figure, folder / f"comparison_{title.replace(' ', '_')}.png")


def _robustness(
    title: str, records: Sequence[Record], label: str
) -> tuple[list[str], Figure | None]:
    """Return the table of comparable rows under corruption and attack, and their plot against `x`."""
    summary = summarize([{**record, "splits": {}} for record in records])
    x = {record["method"]: record["x"] for record in records}
    text = []
    if table := robustness_table(summary):
        heading = f"## {title}: {table.title[0].lower()}{table.title[1:]}"
        text = [heading, ROBUSTNESS_LEGEND + _DELTA_LEGEND, to_markdown(table)]
    points = [
        Point(row.rpartition("/")[2], x[row], entry) for row, entry in summary["robustness"].items()
    ]
    return text, plot_across(points, label)


def _read_trained(workdir: pathlib.Path, name: str, sizes: Sizes) -> tuple[list[Record], str]:
    """Return the results of a workdir, under names unique among the workdirs, and their origin."""
    config, runs = read_runs(workdir)
    titles, model = _set_titles(config, name), name_in(config, "model")
    scaling = temperature_scaling(summarize([run.record for run in runs]))
    new_names = {UNCALIBRATED: UNCALIBRATED, scaling: _SCALED}
    records: list[Record] = []
    for run in runs:
        record = run.record
        row = f"{name}/{record['method']}"
        splits = {}
        for split, evaluations in record["splits"].items():
            title = titles.get(split, split)
            splits[title] = [
                e | {"name": new_names[e["name"]]} for e in evaluations if e["name"] in new_names
            ]
            if examples := run.read_split(split):
                sizes[row, title] = len(examples.labels)
        kept = {"method": row, "seed": record["seed"], "splits": splits}
        if record.get("robustness"):
            kept["robustness"] = record["robustness"]
        records.append(kept)
    source = f"{model or 'a network'}, {_seeds(records)}"
    return records, f"{source}, +T by {scaling}" if scaling else source


def _setting(config: Config, key: str, workdir: pathlib.Path) -> float | str:
    """Return the value of a dotted key of a workdir's config."""
    value: Json = config.get("config", config)
    for name in key.removeprefix("config.").split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise ValueError(f"--by={key}: no such key in {workdir / 'config.json'}")
        value = value[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else json.dumps(value).strip('"')


def _robustness_title(config: Config, name: str) -> str:
    """Name the test set; results of one title are comparable: the same images, corruptions and attack."""
    options = config.get("config", config).get("robustness", {})
    title = _set_titles(config, name)["test"]
    if options.get("attack_eps"):
        title += f" attacked at {options['attack_eps']:g}"
    if number := options.get("num_corrupted"):
        title += f" {number} images"
    return title


def _set_titles(config: Config, name: str) -> dict[str, str]:
    """Return the names of a workdir's test set, and of its corrupted copies, among all workdirs."""
    data = config.get("config", config).get("data", {})
    # As a shifted set with options is called; the sizes of other splits do not matter.
    options = [
        str(value)
        for key, value in data.get("options", {}).items()
        if value and key not in ("num_train", "num_val")
    ]
    test = "_".join([data.get("name") or name, *options])
    corrupted = [entry.replace(":", "_") for entry in data.get("shift", ()) if ":" in entry]
    return {"test": test} | {split: f"{test} {split}" for split in corrupted}


def _read_llm(workdir: pathlib.Path, name: str, sizes: Sizes) -> tuple[list[Record], str]:
    """Return the results of a language model and their origin; each prompt counts as a seed."""
    path = workdir / "results.json"
    if not path.is_file():
        raise ValueError(f"{path}: no such file; run calib_jax.llm until all is answered")
    content = read_json(path)
    settings = content["settings"]
    title = settings["data"] + (f" {settings['split']}" if settings["split"] != "test" else "")
    row = f"{name}/{settings['model']}"
    sizes[row, title] = content["num_examples"]
    records: list[Record] = []
    for result in content["results"]:
        evaluation = {"name": UNCALIBRATED, "metrics": result["metrics"], "parameters": {}}
        splits = {title: [evaluation]}
        records.append({"method": row, "seed": result["seed"], "splits": splits})
    shots = f"{settings['shots']} examples per class in the prompt"
    how = f"{shots}, {_seeds(records)}" if settings["shots"] else "no examples in the prompt"
    return records, f"{settings['model']}, {how}"


def _seeds(records: Sequence[Record]) -> str:
    seeds = sorted({record["seed"] for record in records})
    plural = "s" if len(seeds) > 1 else ""
    return f"seed{plural} {', '.join(map(str, seeds))}"
