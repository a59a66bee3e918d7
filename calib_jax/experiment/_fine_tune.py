"""Fine-tuning: adapt a trained network to a shifted set with a few of its examples."""

import copy
import dataclasses
from collections.abc import Mapping

import numpy as np

from calib_jax import data, dynamics, methods, train
from calib_jax.data import Dataset
from calib_jax.experiment import _build
from calib_jax.experiment._keys import Config


def num_examples(share: float, sets: _build.Data) -> int:
    """Return the number of examples to adapt with."""
    assert sets.tune is not None
    return max(1, round(share * len(sets.tune)))


def tuning_trainer(
    config: Config,
    sets: _build.Data,
    trained: tuple[train.Trainer, train.TrainState],
    artifacts: Mapping[str, np.ndarray],
    share: float,
    seed: int,
) -> train.Trainer:
    """Return the trainer that continues from a trained network, on a subset of another set.

    Args:
      config: Config of the run, with `fine_tune`.
      sets: Data of the run, with `tune`.
      trained: Trainer and state of the network.
      artifacts: Arrays with `confidence`, of the data map: the less sure half of the training set is
        mixed in.
      share: Share of `sets.tune`. A larger share contains a smaller one.
      seed: Seed of the run, which the examples of the share depend on.
    """
    tune = sets.tune
    assert tune is not None
    number = num_examples(share, sets)
    new = tune.take(data.random_subset(len(tune), number, seed=[seed, len(tune)]))
    easy = np.asarray(dynamics.median_split(np.asarray(artifacts["confidence"])))
    old = sets.train.take(np.flatnonzero(~easy))

    wanted = config.fine_tune
    changed = copy.deepcopy(config)
    changed.train.eval_batch_size = config.train.eval_batch_size or config.train.batch_size
    changed.train.evaluate_every, changed.train.log_test = 0, False
    changed.train.epochs, changed.train.batch_size = wanted.epochs, wanted.batch_size
    changed.optimizer.learning_rate = wanted.learning_rate or config.optimizer.learning_rate
    trainer, state = trained
    network = dataclasses.replace(
        trainer.network,
        pretrained=lambda _: trainer.eval_params(state.params),
        model_state=state.model_state,
    )
    phase = methods.fine_tuning(len(new), len(old), wanted.alpha, wanted.mixed)
    both = sets._replace(train=_one_after_the_other(new, old))
    return _build.build_trainer(changed, both, phase, {}, network)


def _one_after_the_other(first: Dataset, second: Dataset) -> Dataset:
    """Return two sets as one; shorter texts are padded, which their masks leave out."""
    inputs = {}
    for key, rows in first.inputs.items():
        others = second.inputs[key]
        if key != "image":
            width = max(rows.shape[-1], others.shape[-1])
            rows, others = (_padded(x, width) for x in (rows, others))
        inputs[key] = np.concatenate([rows, others])
    return dataclasses.replace(
        second,
        inputs=inputs,
        labels=np.concatenate([first.labels, second.labels]),
        ids=np.concatenate([first.ids, second.ids]),
    )


def _padded(rows: np.ndarray, width: int) -> np.ndarray:
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, width - rows.shape[-1])]
    return np.pad(rows, padding)
