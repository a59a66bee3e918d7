"""Several workdirs, and language models that were asked, in one table per data set."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from calib_jax.report._comparison import NOTHING, Cell, Column, by_method, language_columns
from calib_jax.report._runs import named, read_json, read_logits, read_runs
from calib_jax.report._summary import summarise, temperature_scaling
from calib_jax.report._text import BY_SET_MEANS, markdown

_SCALED = "temperature"  # whichever way a workdir fits it
Sizes = dict[tuple[str, str], int]  # examples of each row and set


def compare_workdirs(workdirs: Sequence[str | pathlib.Path]) -> str:
    """Accuracy, F1 and ECE of workdirs side by side, as Markdown: a table per set, a row per method.

    A workdir's test set is the one of its data set, so that workdirs of other data join in other
    tables, and a set that one was trained for and another shifted to is one table.

    Args:
      workdirs: of `calib_jax.main`, or of `calib_jax.llm`, whose rows are models.

    Raises:
      ValueError: nothing is finished in one of them, or a file cannot be read.
    """
    paths = [pathlib.Path(path) for path in workdirs]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    records: list[dict[str, Any]] = []
    sizes: Sizes = {}
    sources = []
    for path, name in zip(paths, names, strict=True):
        read = _asked if (path / "settings.json").is_file() else _trained
        found, source = read(path, name, sizes)
        records += found
        sources.append(f"- {name}: {source}")
    summary = summarise(records)
    parts = []
    for split, methods in summary["splits"].items():
        shown = [str(sizes[m, split]) if (m, split) in sizes else NOTHING.mean for m in methods]
        examples = Column("examples", "examples", False, [Cell(number) for number in shown])
        columns = [examples, *language_columns(summary, split, list(methods))]
        parts += [f"## {split}", markdown(by_method(split, methods, columns), "method")]
    means = (
        "Mean ± standard deviation over the seeds. The best is bold, † is within one standard "
        f"deviation of it. {BY_SET_MEANS}"
    )
    if temperature_scaling(summary):
        means += (
            " +T: after temperature scaling, fitted on validation, by the calibrator named below."
        )
    return "\n\n".join([*parts, means, "\n".join(sources)])


def _trained(workdir: pathlib.Path, name: str, sizes: Sizes) -> tuple[list[dict[str, Any]], str]:
    """The results of a workdir under names that tell them from others', and where they are from."""
    config, runs = read_runs(workdir)
    titles, model = _set_titles(config, name), named(config, "model")
    scaling = temperature_scaling(summarise([record for record, _ in runs]))
    shown = {"uncalibrated": "uncalibrated", scaling: _SCALED}
    records = []
    for record, folder in runs:
        row = f"{name}/{record['method']}"
        splits = {}
        for split, judgements in record["splits"].items():
            title = titles.get(split, split)
            splits[title] = [
                j | {"name": shown[j["name"]]} for j in judgements if j["name"] in shown
            ]
            path = folder / "logits" / f"{split}.npz"
            if path.is_file():
                sizes[row, title] = len(read_logits(path)[1])
        records.append({"method": row, "seed": record["seed"], "splits": splits})
    source = f"{model or 'a network'}, {_seeds(records)}"
    return records, f"{source}, +T by {scaling}" if scaling else source


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
