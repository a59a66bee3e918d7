"""Ensembles of the finished seeds of each method, evaluated for the report."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np

from calib_jax.evaluation import Predictions, evaluate_ensemble
from calib_jax.experiment import _workdir
from calib_jax.experiment._keys import Config


def write_ensembles(workdir: pathlib.Path, config: Config) -> None:
    """Write `<method>/ensemble.json` of every method with several finished seeds, if it is not there.

    Only sets on which all seeds have the same examples count.

    Args:
      workdir: Folder with `<method>/seed_<n>/` for every run.
      config: Config of the experiment.
    """
    methods: dict[pathlib.Path, list[pathlib.Path]] = {}
    for path in sorted(workdir.glob("*/seed_*/results.json")):
        methods.setdefault(path.parent.parent, []).append(path.parent)
    for folder, runs in methods.items():
        seeds = [int(run.name.removeprefix("seed_")) for run in runs]
        path = folder / "ensemble.json"
        is_written = path.exists() and json.loads(path.read_text())["seeds"] == seeds
        if len(runs) < 2 or is_written:
            continue
        splits = {}
        validation = _read(runs, "val")
        for split in json.loads((runs[0] / "results.json").read_text())["splits"]:
            test = _read(runs, split)
            if validation and test:
                evaluations = evaluate_ensemble(
                    test, validation, config.calibrate, num_samples=config.num_bootstrap
                )
                splits[split] = [evaluation.to_json() for evaluation in evaluations]
        _workdir.write_json(path, {"seeds": seeds, "splits": splits})


def _read(runs: Sequence[pathlib.Path], split: str) -> list[Predictions]:
    """Return the predictions of all runs on a set; none if they are not of the same examples."""
    predictions, examples = [], []
    for run in runs:
        path = run / "logits" / f"{split}.npz"
        if not path.is_file():
            return []
        with np.load(path, allow_pickle=False) as archive:
            truth = archive.get("label_probs")
            logits, labels = archive["logits"], archive["labels"]
            predictions.append(Predictions(logits, labels, label_probs=truth))
            examples.append(archive["ids"])
    is_same = all(np.array_equal(ids, examples[0]) for ids in examples)
    return predictions if is_same else []
