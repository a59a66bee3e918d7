"""Reading of what runs leave in a workdir."""

import json
import pathlib
import zipfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calib_jax import metrics
from calib_jax.report._types import Config, Json, Record, Row, Summary


class Split(NamedTuple):
    """A set of a run: logits `[n, num_classes]`, labels `[n]` and ids in official files `[n]`."""

    logits: np.ndarray
    labels: np.ndarray
    ids: np.ndarray


class Run(NamedTuple):
    """A finished run: the content of its `results.json`, and its folder."""

    record: Record
    folder: pathlib.Path

    def read_split(self, split: str) -> Split | None:
        """Read logits, labels and ids of a set; `None` if there is no such file."""
        path = self.folder / "logits" / f"{split}.npz"
        if not path.is_file():
            return None
        # Checked first because NumPy leaves a file that is no archive open.
        if not zipfile.is_zipfile(path):
            raise ValueError(f"{path}: expected an npz archive, this is none; run the method again")
        with np.load(path, allow_pickle=False) as archive:
            labels = archive["labels"]
            ids = archive["ids"] if "ids" in archive else np.arange(len(labels))
            return Split(archive["logits"], labels, ids)


class Predictions(NamedTuple):
    """Predictions of the seeds of a method on the same examples.

    Attributes:
      seeds: Seeds.
      predicted: Predicted class `[seeds, n]`.
      confidence: Probability of that class `[seeds, n]`.
      labels: Labels `[n]`.
      ids: Ids of the examples in the set's official files `[n]`.
    """

    seeds: list[int]
    predicted: np.ndarray
    confidence: np.ndarray
    labels: np.ndarray
    ids: np.ndarray


def run_folders(workdir: pathlib.Path) -> list[pathlib.Path]:
    """Return the folders of all runs, finished or not."""
    return sorted(path for path in workdir.glob("*/seed_*") if path.is_dir())


def read_runs(workdir: pathlib.Path) -> tuple[Config, list[Run]]:
    """Read `config.json` and the finished runs, in the order of the config's `method.name`.

    Methods of another command, which the config does not name, come after those; only cross entropy,
    which the others are compared with, comes first.

    Raises:
      ValueError: no run is finished, or a file cannot be read.
    """
    folders = [folder for folder in run_folders(workdir) if (folder / "results.json").is_file()]
    if not folders:
        raise ValueError(
            f"{workdir}: no finished run, expected <method>/seed_<n>/results.json; train first"
        )
    config = read_json(workdir / "config.json")
    runs = [Run(read_json(folder / "results.json"), folder) for folder in folders]
    order = [name.strip() for name in name_in(config, "method").split(",")]
    if "cross_entropy" not in order:
        order.insert(0, "cross_entropy")
    order += sorted({run.record["method"] for run in runs} - set(order))
    runs.sort(key=lambda run: (order.index(run.record["method"]), run.record["seed"]))
    return config, runs


def read_ensembles(workdir: pathlib.Path, summary: Summary) -> dict[str, Record]:
    """Read the evaluated ensembles by method and split, unless a seed has been added since."""
    ensembles = {}
    for method, entry in summary["methods"].items():
        path = workdir / method / "ensemble.json"
        if path.is_file():
            ensemble = read_json(path)
            if sorted(ensemble["seeds"]) == sorted(entry["seeds"]):
                ensembles[method] = ensemble["splits"]
    return ensembles


def name_in(config: Config, section: str) -> str:
    """Return the name in the section `data`, `model` or `method`; an empty text if there is none."""
    trained = config.get(section, {}).get("name")  # of data and network that were trained
    return trained or config.get("config", config).get(section, {}).get("name", "")


def variants(config: Config) -> Config:
    """Return the variants of methods by name, if the config has any."""
    return config.get("config", config).get("method", {}).get("variants", {})


def settings_text(variant: Config, prefix: str = "") -> str:
    """Return the settings of a variant in one line.

    Args:
      variant: Settings, nested as in a config; `of` names the method.
      prefix: Path of the settings within the variant.

    >>> settings_text({"of": "adafocal", "num_bins": 10, "train": {"epochs": 50}})
    'adafocal, num_bins=10, train.epochs=50'
    """
    shown = [variant["of"]] if "of" in variant and not prefix else []
    for key, value in variant.items():
        if isinstance(value, Mapping):
            shown.append(settings_text(value, f"{prefix}{key}."))
        elif key != "of" or prefix:
            shown.append(f"{prefix}{key}={value}")
    return ", ".join(shown)


def read_json(path: pathlib.Path) -> Json:
    """Read a JSON file of a workdir."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; is this a workdir of calib_jax.main?")
    return _parse(path.read_text(encoding="utf-8"), str(path))


def read_rows(path: pathlib.Path) -> list[Row]:
    """Read the lines of a metrics.jsonl."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file, though the run has results; run it again")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_parse(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1)]


def read_predictions(runs: Sequence[Run], split: str = "test") -> Predictions | None:
    """Read the predictions of a method; `None` if there are none.

    Those of all seeds if each has some and all are of the same examples, else those of the first.

    Args:
      runs: Runs of the method, one per seed.
      split: Name of the set.
    """
    read = []
    for run in runs:
        if examples := run.read_split(split):
            logits, labels, ids = examples
            confidence = np.asarray(metrics.top_label(logits, labels)[0])
            seeds, predicted = [run.record["seed"]], logits.argmax(1)
            read.append(Predictions(seeds, predicted[None], confidence[None], labels, ids))
    if not read:
        return None
    first = read[0]
    if len(read) < len(runs) or not all(
        np.array_equal(first.labels, p.labels) and np.array_equal(first.ids, p.ids) for p in read
    ):
        return first
    return first._replace(
        seeds=[p.seeds[0] for p in read],
        predicted=np.concatenate([p.predicted for p in read]),
        confidence=np.concatenate([p.confidence for p in read]),
    )


def _parse(text: str, where: str) -> Json:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not valid JSON ({error.msg}); remove or fix it") from None
