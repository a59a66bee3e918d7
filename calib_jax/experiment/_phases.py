"""The trainings that a run of a method consists of, and what one hands to the next."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from calib_jax import methods, train
from calib_jax.data import Dataset
from calib_jax.experiment._build import build_method


class Phase(NamedTuple):
    """One training of a run; most methods have one, some learn about the data first.

    Attributes:
      name: of its folder. All phases but the last are shared by the methods of a workdir: the same
        name means the same training.
      method: to train with; it finds what earlier phases handed over in `Info.handed`.
      hand_over: `(trainer, state) -> arrays` for the phases after it.
      promise: `(training set) -> arrays` of the shapes that it will hand over, for a dry run.
    """

    name: str
    method: methods.Method
    hand_over: Callable[[train.Trainer, train.TrainState], dict[str, np.ndarray]] = lambda *_: {}
    promise: Callable[[Dataset], dict[str, np.ndarray]] = lambda _: {}


def phases(config: Any, name: str) -> list[Phase]:
    """The phases of a method."""
    method = build_method(config, name)
    last = Phase("train", method)
    return [_recording(), last] if method.wants_records else [last]


def _recording() -> Phase:
    """Ordinary training that records how each example fares."""

    def hand_over(trainer: train.Trainer, state: train.TrainState) -> dict[str, np.ndarray]:
        examples = trainer.train.dataset
        return methods.records(state.method) | {"labels": examples.labels, "ids": examples.ids}

    def promise(examples: Dataset) -> dict[str, np.ndarray]:
        nothing = np.zeros(len(examples), np.float32)
        made = dict.fromkeys(("aum", "confidence", "variability", "correctness"), nothing)
        made["logits"] = np.zeros((len(examples), examples.num_classes), np.float32)
        return made | {"labels": examples.labels, "ids": examples.ids}

    plain = methods.create("cross_entropy")
    return Phase("records", methods.recorded(plain), hand_over, promise)
