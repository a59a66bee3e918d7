"""Several workdirs, and language models that were asked, in one table per data set."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from calib_jax._io import write_atomic
from calib_jax.report._across import Point, plot_across
from calib_jax.report._comparison import NOTHING, Cell, Column, by_method, language_columns
from calib_jax.report._html import png
from calib_jax.report._robustness import ROBUSTNESS_MEANS, robustness_table
from calib_jax.report._runs import named, read_json, read_logits, read_runs
from calib_jax.report._summary import summarize, temperature_scaling
from calib_jax.report._text import BY_SET_MEANS, markdown

_SCALED = "temperature"  # whichever way a workdir fits it
_DELTA_MEANS = " That of the same workdir or, if it has none, the first in the table."
Sizes = dict[tuple[str, str], int]  # examples of each row and set


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
      workdirs: of `calib_jax.main`, or of `calib_jax.llm`, whose rows are models.
      by: key of the config in which the workdirs differ, such as `method.adversarial.eps`: the x axis
        of the plots. '' for the workdirs' names.
      folder: where to write `comparison.md` and, per data set that was corrupted or attacked,
        `comparison_SET.png`; nothing is written without it.

    Raises:
      ValueError: nothing is finished in one of them, a file cannot be read, or `by` is in no config.
    """
    paths = [pathlib.Path(path) for path in workdirs]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    records: list[dict[str, Any]] = []
    sizes: Sizes = {}
    sources = []
    robust: dict[str, list[dict[str, Any]]] = {}
    for path, name in zip(paths, names, strict=True):
        asked = (path / "settings.json").is_file()
        found, source = (_asked if asked else _trained)(path, name, sizes)
        records += found
        sources.append(f"- {name}: {source}")
        if measured := [record for record in found if "robustness" in record]:
            config = read_json(path / "config.json")
            x = _setting(config, by, path) if by else name
            title = _robustness_title(config, name)
            robust.setdefault(title, []).extend(record | {"x": x} for record in measured)
    summary = summarize(records)
    parts = []
    for split, methods in summary["splits"].items():
        shown = [str(sizes[m, split]) if (m, split) in sizes else NOTHING.mean for m in methods]
        examples = Column("examples", "examples", False, [Cell(number) for number in shown])
        columns = [examples, *language_columns(summary, split, list(methods))]
        parts += [f"## {split}", markdown(by_method(split, methods, columns), "method")]
    figures = {}
    for title, measured in robust.items():
        table, figures[title] = _robustness(title, measured, by or "workdir")
        parts += table
    means = (
        "Mean ± standard deviation over the seeds. The best is bold, † is within one standard "
        f"deviation of it. {BY_SET_MEANS}"
    )
    if temperature_scaling(summary):
        means += (
            " +T: after temperature scaling, fitted on validation, by the calibrator named below."
        )
    text = "\n\n".join([*parts, means, "\n".join(sources)])
    if folder:
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "comparison.md", text + "\n")
        for title, figure in figures.items():
            if figure:
                write_atomic(folder / f"comparison_{title.replace(' ', '_')}.png", png(figure))
    return text


def _robustness(
    title: str, records: Sequence[dict[str, Any]], label: str
) -> tuple[list[str], Figure | None]:
    """Return the table of comparable rows under corruption and attack, and their plot against `x`."""
    summary = summarize([record | {"splits": {}} for record in records])
    x = {record["method"]: record["x"] for record in records}
    text = []
    if table := robustness_table(summary):
        heading = f"## {title}: {table.title[0].lower()}{table.title[1:]}"
        text = [heading, ROBUSTNESS_MEANS + _DELTA_MEANS, markdown(table, "method")]
    points = [
        Point(row.rpartition("/")[2], x[row], found) for row, found in summary["robustness"].items()
    ]
    return text, plot_across(points, label)


def _trained(workdir: pathlib.Path, name: str, sizes: Sizes) -> tuple[list[dict[str, Any]], str]:
    """The results of a workdir under names that tell them from others', and where they are from."""
    config, runs = read_runs(workdir)
    titles, model = _set_titles(config, name), named(config, "model")
    scaling = temperature_scaling(summarize([record for record, _ in runs]))
    shown = {"uncalibrated": "uncalibrated", scaling: _SCALED}
    records = []
    for record, folder in runs:
        row = f"{name}/{record['method']}"
        splits = {}
        for split, evaluations in record["splits"].items():
            title = titles.get(split, split)
            splits[title] = [
                e | {"name": shown[e["name"]]} for e in evaluations if e["name"] in shown
            ]
            path = folder / "logits" / f"{split}.npz"
            if path.is_file():
                sizes[row, title] = len(read_logits(path)[1])
        kept = {"robustness": record["robustness"]} if record.get("robustness") else {}
        kept |= {"method": row, "seed": record["seed"], "splits": splits}
        records.append(kept)
    source = f"{model or 'a network'}, {_seeds(records)}"
    return records, f"{source}, +T by {scaling}" if scaling else source


def _setting(config: Mapping[str, Any], key: str, workdir: pathlib.Path) -> float | str:
    """Return the value of a dotted key of a workdir's config."""
    value: Any = config.get("config", config)
    for part in key.removeprefix("config.").split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise ValueError(f"--by={key}: no such key in {workdir / 'config.json'}")
        value = value[part]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else json.dumps(value).strip('"')


def _robustness_title(config: Mapping[str, Any], name: str) -> str:
    """Name the test set; results of one title are comparable: the same images, corruptions and attack."""
    options = config.get("config", config).get("robustness", {})
    title = _set_titles(config, name)["test"]
    if options.get("attack_eps"):
        title += f" attacked at {options['attack_eps']:g}"
    if number := options.get("num_corrupted"):
        title += f" {number} images"
    return title


def _set_titles(config: Mapping[str, Any], name: str) -> dict[str, str]:
    """What others may call a workdir's test set, and what it makes of it by corrupting images."""
    data = config.get("config", config).get("data", {})
    # As a shifted set with options is called; those of its training and validation parts aside.
    options = [
        str(value)
        for key, value in data.get("options", {}).items()
        if value and key not in ("num_train", "num_val")
    ]
    test = "_".join([data.get("name") or name, *options])
    made = [entry.replace(":", "_") for entry in data.get("shift", ()) if ":" in entry]
    return {"test": test} | {split: f"{test} {split}" for split in made}


def _asked(workdir: pathlib.Path, name: str, sizes: Sizes) -> tuple[list[dict[str, Any]], str]:
    """The same of a language model; each of its prompts counts as a seed."""
    path = workdir / "results.json"
    if not path.is_file():
        raise ValueError(f"{path}: no such file; run calib_jax.llm until all is answered")
    content = read_json(path)
    settings = content["settings"]
    title = settings["data"] + (f" {settings['split']}" if settings["split"] != "test" else "")
    row = f"{name}/{settings['model']}"
    sizes[row, title] = content["num_examples"]
    records = [
        {"method": row, "seed": r["seed"], "splits": {title: [_uncalibrated(r["metrics"])]}}
        for r in content["results"]
    ]
    shots = f"{settings['shots']} examples per class in the prompt"
    how = f"{shots}, {_seeds(records)}" if settings["shots"] else "no examples in the prompt"
    return records, f"{settings['model']}, {how}"


def _uncalibrated(metrics: dict[str, float]) -> dict[str, Any]:
    return {"name": "uncalibrated", "metrics": metrics, "parameters": {}}


def _seeds(records: Sequence[dict[str, Any]]) -> str:
    seeds = sorted({record["seed"] for record in records})
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
