"""The trainings that a run of a method consists of, and what one hands to the next."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from calib_jax import methods, posthoc, train
from calib_jax._hints import expected_one_of
from calib_jax.data import Dataset
from calib_jax.experiment._build import build_method
from calib_jax.experiment._variants import run_config

Handed = dict[str, np.ndarray]


class Phase(NamedTuple):
    """One training of a run; most methods have one, some learn about the data first.

    Attributes:
      name: of its folder. A method's only training, `'train'`, is in the folder of the run itself.
      method: to train with; it finds what earlier phases handed over in `Info.handed`.
      hand_over: `(trainer, state) -> arrays` for the phases after it.
      promise: `(training set) -> arrays` of the shapes that it will hand over, for a dry run.
      row: the method or variant that it is a result of, and is evaluated for. Of another method than
        the run's own: that one's training, which this run builds on. '' for one that only prepares: it
        is shared by all methods of a workdir, and the same name means the same training.
      number: of the training; those with different numbers have other random numbers.
      config: of the training, with the settings of its method's variant; None for the experiment's.
    """

    name: str
    method: methods.Method
    hand_over: Callable[[train.Trainer, train.TrainState], Handed] = lambda *_: {}
    promise: Callable[[Dataset], Handed] = lambda _: {}
    row: str = ""
    number: int = 0
    config: Any = None


def phases(config: Any, name: str) -> list[Phase]:
    """The phases of a method; those with its `row` compete to be its result."""
    method, (_, own) = build_method(config, name), run_config(config, name)
    if method.taught_by:
        *before, first = phases(config, _teacher(config, name))
        teacher = first._replace(hand_over=_teach, promise=_promise_to_teach)
        students = [
            Phase(
                f"generation_{g}",
                method,
                _teach,
                _promise_to_teach,
                row=name,
                number=g - 1,
                config=own,
            )
            for g in range(2, method.generations + 1)
        ]
        return [*before, teacher, *students]
    last = Phase("train", method, row=name, config=own)
    records = method.wants_records or config.fine_tune.data
    return [_recording(), last] if records else [last]


def with_teachers(config: Any, names: Sequence[str]) -> list[str]:
    """The methods to run, each after the one that it is taught by, which joins if it is missing."""
    ordered: dict[str, None] = {}
    for name in names:
        ordered |= dict.fromkeys(filter(None, (_teacher(config, name), name)))
    return list(ordered)


def _teacher(config: Any, name: str) -> str:
    """The method that another is taught by, '' if by none; it must be one that trains once."""
    teacher = build_method(config, name).taught_by
    if not teacher:
        return ""
    known = [
        other
        for other in (*methods.NAMES, *config.method.variants)
        if other != name and not build_method(config, other).taught_by
    ]
    if teacher not in known:
        raise ValueError(
            f"config.method.{name}.teacher={teacher!r}: {expected_one_of(teacher, known)}"
        )
    return teacher


def _recording() -> Phase:
    """Ordinary training that records how each example fares, without any variant's settings."""

    def hand_over(trainer: train.Trainer, state: train.TrainState) -> Handed:
        examples = trainer.train.dataset
        recorded = jax.tree.map(train.to_host, state.method_state)
        return methods.records(recorded) | {"labels": examples.labels, "ids": examples.ids}

    def promise(examples: Dataset) -> Handed:
        nothing = np.zeros(len(examples), np.float32)
        made = dict.fromkeys(("aum", "confidence", "variability", "correctness"), nothing)
        made["logits"] = np.zeros((len(examples), examples.num_classes), np.float32)
        return made | {"labels": examples.labels, "ids": examples.ids}

    plain = methods.create("cross_entropy")
    return Phase("records", methods.recorded(plain), hand_over, promise)


def _teach(trainer: train.Trainer, state: train.TrainState) -> Handed:
    """What a student needs of its teacher: logits of the training set, without dropout, and T.

    Paper: T of 0.01, 0.02, …, 5 with the least ECE, bins not given; here: ten, each with its left end,
    as in the code it builds on.
    """
    examples, validation = trainer.train.dataset, trainer.val
    fit = posthoc.CALIBRATORS["temperature_ece"]
    scaling = fit(trainer.predict(state, validation), validation.dataset.labels)
    return {
        "teacher_logits": np.asarray(trainer.predict(state, trainer.loader(examples))),
        "teacher_temperature": np.asarray(scaling.temperature),
        "ids": examples.ids,
    }


def _promise_to_teach(examples: Dataset) -> Handed:
    logits = np.zeros((len(examples), examples.num_classes), np.float32)
    return {"teacher_logits": logits, "teacher_temperature": np.ones(()), "ids": examples.ids}
