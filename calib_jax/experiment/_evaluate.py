"""What is computed and saved of a trained network: predictions, metrics, plots and errors."""

import pathlib
from typing import Any

import jax
import numpy as np

from calib_jax import report, train
from calib_jax.evaluation import Evaluation, Predictions, detect, evaluate
from calib_jax.experiment import _build, _robustness, _workdir
from calib_jax.experiment._errors import confident_errors, num_kept


def evaluate_state(
    config: Any,
    name: str,
    seed: int,
    folder: pathlib.Path,
    sets: _build.Data,
    trainer: train.Trainer,
    state: train.TrainState,
    seconds: float,
) -> dict[str, Any]:
    """Predict every set and evaluate those that have the classes of the training set."""
    parts = {"val": sets.val, "test": sets.test, **sets.shift}
    predicted = {}
    for split, part in parts.items():
        loader = trainer.val if split == "val" else trainer.loader(part)
        logits = np.asarray(trainer.predict(state, loader))
        _workdir.write_npz(
            folder / "logits" / f"{split}.npz", logits=logits, labels=part.labels, ids=part.ids
        )
        predicted[split] = Predictions(logits, part.labels)
    evaluations: dict[str, list[Evaluation]] = {}
    for split, part in parts.items():
        if split != "val" and part.label_names == sets.train.label_names:
            evaluations[split] = evaluate(
                predicted[split],
                predicted["val"],
                config.calibrate,
                seed=seed,
                num_samples=config.num_bootstrap,
            )
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for split, results in evaluations.items() if train.is_primary() else ():
        panels = [(r.name, r.confidence, r.correct) for r in results]
        report.plot_reliability(panels).savefig(plots / f"reliability_{split}.png", dpi=110)
        report.plot_risk_coverage(panels).savefig(plots / f"risk_coverage_{split}.png", dpi=110)
    sizes = [leaf.size for leaf in jax.tree.leaves(state.params)]
    if sets.texts:
        errors = {
            split: confident_errors(
                predicted[split], parts[split], sets.texts[split], num_kept(split)
            )
            for split in evaluations
        }
        _workdir.write_json(folder / "errors.json", errors)
    validation = trainer.validation_metrics(predicted["val"].logits, predicted["val"].labels)
    record = {
        "method": name,
        "seed": seed,
        "label_names": sets.train.label_names,
        "num_parameters": sum(sizes),
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
