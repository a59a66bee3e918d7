"""What is computed and saved of a trained network: predictions, metrics, plots and errors."""

import pathlib
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from calib_jax import posthoc, report, train
from calib_jax.data import Dataset
from calib_jax.evaluation import (
    Evaluation,
    Predictions,
    confident_errors,
    detect,
    evaluate,
    num_kept,
)
from calib_jax.experiment import _build, _robustness, _workdir
from calib_jax.experiment._keys import Config, JsonDict

Evaluations = Mapping[str, Sequence[Evaluation]]  # of each split, uncalibrated and calibrated


def evaluate_state(
    config: Config,
    name: str,
    seed: int,
    folder: pathlib.Path,
    sets: _build.Data,
    trainer: train.Trainer,
    state: train.TrainState,
    seconds: float,
) -> JsonDict:
    """Predict every set and evaluate those that have the classes of the training set.

    Args:
      config: Config of the experiment.
      name: Name of the method or variant.
      seed: Seed of the run.
      folder: Folder for logits, plots and errors.
      sets: Data of the experiment.
      trainer: Trainer of the network.
      state: State with the network.
      seconds: Time that its training took.

    Returns:
      The content of `results.json`.
    """
    splits = {"val": sets.val, "test": sets.test, **sets.shift}
    predicted = {
        split: _predict(trainer, state, dataset, folder / "logits" / f"{split}.npz")
        for split, dataset in splits.items()
    }
    evaluations = {
        split: evaluate(
            predicted[split],
            predicted["val"],
            config.calibrate,
            seed=seed,
            num_samples=config.num_bootstrap,
        )
        for split, dataset in splits.items()
        if split != "val" and dataset.label_names == sets.train.label_names
    }
    _save_calibrators(folder / "calibrators", config.calibrate, predicted["val"])
    _save_plots(folder / "plots", evaluations, config.plot_format)
    if sets.texts:
        errors = {
            split: confident_errors(
                predicted[split],
                splits[split].ids,
                splits[split].label_names,
                sets.texts[split],
                num_kept(split),
            )
            for split in evaluations
        }
        _workdir.write_json(folder / "errors.json", errors)
    validation = trainer.validation_metrics(predicted["val"].logits, predicted["val"].labels)
    record = {
        "method": name,
        "seed": seed,
        "label_names": sets.train.label_names,
        "checkpoint": f"checkpoints/{int(state.step)}",
        "num_parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "train_seconds": round(seconds, 1),
        "validation": {key: float(value) for key, value in validation.items()},
        "splits": {split: [r.to_json() for r in results] for split, results in evaluations.items()},
        "out_of_distribution": {
            split: detect(predicted["test"], predicted[split], evaluations["test"])
            for split in sets.shift
        },
    }
    robust = _robustness.evaluate(config, sets.test, evaluations["test"], trainer, state, seed)
    return record | ({"robustness": robust} if robust else {})


def _predict(
    trainer: train.Trainer, state: train.TrainState, dataset: Dataset, path: pathlib.Path
) -> Predictions:
    """Return the predictions of a set, which are written to `path`, too."""
    loader = trainer.val if dataset is trainer.val.dataset else trainer.loader(dataset)
    logits = np.asarray(trainer.predict(state, loader))
    arrays = {"logits": logits, "labels": dataset.labels, "ids": dataset.ids}
    if dataset.label_probs is not None:
        arrays["label_probs"] = dataset.label_probs
    _workdir.write_npz(path, **arrays)
    return Predictions(logits, dataset.labels, label_probs=dataset.label_probs)


def _save_plots(folder: pathlib.Path, evaluations: Evaluations, plot_format: str) -> None:
    folder.mkdir(exist_ok=True)
    if not train.is_primary() or plot_format == "none":
        return
    for split, results in evaluations.items():
        panels = [(r.name, r.confidence, r.correct) for r in results]
        figures = {
            "reliability": report.plot_reliability(panels),
            "risk_coverage": report.plot_risk_coverage(panels),
        }
        for name, figure in figures.items():
            report.save_plot(figure, folder / f"{name}_{split}.{plot_format}")


def _save_calibrators(folder: pathlib.Path, names: Sequence[str], validation: Predictions) -> None:
    """Write the calibrators that the evaluation uses, to be applied to new predictions."""
    for name in names if train.is_primary() else ():
        fitted = posthoc.CALIBRATORS[name](validation.logits, validation.labels)
        posthoc.save(folder / f"{name}.npz", fitted)
