"""From a config to the phases of a method, and the artifacts that a phase leaves for the next."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from calib_jax import methods, posthoc, train
from calib_jax._hints import expected_one_of
from calib_jax.data import Dataset
from calib_jax.experiment import _build
from calib_jax.experiment._custom import Custom
from calib_jax.experiment._keys import Config
from calib_jax.experiment._variants import run_config
from calib_jax.methods import Phase

Arrays = dict[str, np.ndarray]
_NONE = Custom()


def phases(config: Config, name: str, custom: Custom = _NONE) -> list[Phase]:
    """Return the phases of a method or variant, its teacher's first; each knows its owner.

    Args:
      config: Config of the experiment.
      name: Name of the method or variant.
      custom: Objects in place of the config's.
    """
    recipe = _build.build_recipe(config, name, custom)
    if recipe.teacher:
        *before, last = phases(config, _teacher(config, name, custom), custom)
        students = (phase._replace(owner=name) for phase in recipe.phases)
        return [*before, last._replace(provides="teacher"), *students]
    *preparations, last = recipe.phases
    if config.fine_tune.data and not preparations:
        preparations = [methods.dynamics_phase()]
    return [*preparations, last._replace(owner=name)]


def with_teachers(config: Config, names: Sequence[str], custom: Custom = _NONE) -> list[str]:
    """Return the methods to run, each after its teacher, which is added if it is missing."""
    ordered: dict[str, None] = {}
    for name in names:
        ordered |= dict.fromkeys(filter(None, (_teacher(config, name, custom), name)))
    return list(ordered)


def _teacher(config: Config, name: str, custom: Custom) -> str:
    """Return the teacher of a method, '' for none; it must be a method that trains once."""
    teacher = _build.build_recipe(config, name, custom).teacher
    if not teacher:
        return ""
    known = [
        other
        for other in (*methods.NAMES, *config.method.variants)
        if other != name and not _build.build_recipe(config, other).teacher
    ]
    if teacher not in known:
        raise ValueError(
            f"config.method.{name}.teacher={teacher!r}: {expected_one_of(teacher, known)}"
        )
    return teacher


class Artifact(NamedTuple):
    """Arrays that a phase may leave for later phases.

    Attributes:
      make: Function `(trainer, state) -> arrays`.
      shapes: Function `(training set) -> arrays` of the same shapes, for a dry run.
    """

    make: Callable[[train.Trainer, train.TrainState], Arrays]
    shapes: Callable[[Dataset], Arrays]


def _dynamics(trainer: train.Trainer, state: train.TrainState) -> Arrays:
    examples = trainer.train.dataset
    recorded = jax.tree.map(train.to_host, state.method_state)
    return methods.recorded_dynamics(recorded) | {"labels": examples.labels, "ids": examples.ids}


def _dynamics_shapes(examples: Dataset) -> Arrays:
    column = np.zeros(len(examples), np.float32)
    shapes = dict.fromkeys(("aum", "confidence", "variability", "correctness"), column)
    shapes["logits"] = np.zeros((len(examples), examples.num_classes), np.float32)
    return shapes | {"labels": examples.labels, "ids": examples.ids}


def _teaching(trainer: train.Trainer, state: train.TrainState) -> Arrays:
    """Return a teacher's logits of the training set, without dropout, and its temperature T.

    Paper: T of 0.01, 0.02, …, 5 with the least ECE, bins not given; here: ten, each with its left end,
    as in the code it builds on.
    """
    examples, validation = trainer.train.dataset, trainer.val
    fit = posthoc.CALIBRATORS["temperature_ece"]
    scaling = fit(trainer.predict(state, validation), validation.dataset.labels)
    assert isinstance(scaling, posthoc.Temperature)
    return {
        "teacher_logits": np.asarray(trainer.predict(state, trainer.loader(examples))),
        "teacher_temperature": np.asarray(scaling.temperature),
        "ids": examples.ids,
    }


def _teaching_shapes(examples: Dataset) -> Arrays:
    logits = np.zeros((len(examples), examples.num_classes), np.float32)
    return {"teacher_logits": logits, "teacher_temperature": np.ones(()), "ids": examples.ids}


ARTIFACTS = {
    "dynamics": Artifact(_dynamics, _dynamics_shapes),
    "teacher": Artifact(_teaching, _teaching_shapes),
}


def planned_trainers(
    config: Config,
    sets: _build.Data,
    names: Sequence[str],
    network: train.Network,
    custom: Custom = _NONE,
) -> Iterator[tuple[Phase, train.Trainer]]:
    """Yield the phases of methods with their trainers, built on artifacts of zeros.

    A phase that several methods share comes once.

    Args:
      config: Config of the experiment.
      sets: Data of the experiment.
      names: Methods and variants, each after its teacher.
      network: Network to train.
      custom: Objects in place of the config's.
    """
    seen = set()
    for name in names:
        artifacts: Arrays = {}
        for phase in phases(config, name, custom):
            if (phase.owner, phase.name) not in seen:
                _, settings = run_config(config, phase.owner)
                yield phase, _build.build_trainer(settings, sets, phase, artifacts, network)
            seen.add((phase.owner, phase.name))
            if phase.provides:
                artifacts |= ARTIFACTS[phase.provides].shapes(sets.train)
