"""Robustness as a config asks for it: corruptions, image operations and attacks."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from calib_jax import augment, train
from calib_jax._hints import check_choice
from calib_jax.data import Dataset
from calib_jax.evaluation import (
    Evaluation,
    attack_accuracy,
    corruption_metrics,
    operated_images,
    shift_metrics,
)
from calib_jax.experiment._keys import Config, JsonDict
from calib_jax.experiment._shift import corruption_source, load_shift
from calib_jax.methods import PyTree

# The benchmark's own 15; all 19; the 17 that the AutoLabel paper's code base has for CIFAR-100-C.
_SUITES = {
    "standard": augment.CORRUPTIONS[:15],
    "all": augment.CORRUPTIONS,
    "autolabel": tuple(n for n in augment.CORRUPTIONS if n not in ("motion_blur", "snow")),
}


def check(options: Config) -> None:
    """Raise a ValueError for a corruption or operation that does not exist."""
    corruption_names(options.corruptions)
    operation_names(options.operations)


def corruption_names(wanted: Sequence[str]) -> list[str]:
    """Return corruptions by name, or by the name of a suite."""
    names: list[str] = []
    for name in wanted:
        check_choice("config.robustness.corruptions", name, (*_SUITES, *augment.CORRUPTIONS))
        names += _SUITES.get(name, (name,))
    return list(dict.fromkeys(names))


def operation_names(wanted: Sequence[str]) -> list[str]:
    """Return operations by name, or all."""
    for name in wanted:
        check_choice("config.robustness.operations", name, ("all", *augment.OPS))
    return [name for name in augment.OPS if name in wanted or "all" in wanted]


def evaluate(
    config: Config,
    test: Dataset,
    evaluations: Sequence[Evaluation],
    trainer: train.Trainer,
    state: train.TrainState,
    seed: int,
) -> JsonDict:
    """Evaluate the robustness that the config asks for; return an empty dict for none.

    Returns:
      `{"corruptions": {"mean", "severity": {"0", "1", …}, "type": {name}, "each": {name: {"1", …}},
      "source": whether they are published files or with what strengths they were made},
      "operations": {name: {"0", "1", …}}, "attack": {"clean_accuracy", "accuracy"}}`
    """
    options = config.robustness
    measured: JsonDict = {}
    scaled = (e for e in evaluations if e.name.startswith("temperature"))
    temperature = next((e.parameters["temperature"][0] for e in scaled), None)
    predict = _predictor(trainer, state, temperature)
    corruptions = corruption_names(options.corruptions)
    operations = operation_names(options.operations)
    if corruptions or operations:
        subset = _subset(test, options.num_corrupted)
        unchanged = {"0": predict(subset)}  # of the same images: the fewer, the larger is any ECE
    if corruptions:
        each = _corruptions(
            corruptions, options.severities, subset, config.data.dir or None, predict
        )
        measured["corruptions"] = each | {"severity": unchanged | each["severity"]}
    if operations:
        measured["operations"] = {
            name: unchanged | {str(m): predict(_operated(subset, name, m)) for m in range(1, 11)}
            for name in operations
        }
    if options.attack_eps:
        subset = _subset(test, options.num_attacked)
        measured["attack"] = attack(
            trainer,
            state,
            subset,
            eps=options.attack_eps,
            steps=options.attack_steps,
            restarts=options.attack_restarts,
            seed=seed,
        )
    return measured


def _corruptions(
    names: Sequence[str],
    severities: Sequence[int],
    test: Dataset,
    folder: str | None,
    predict: Callable[[Dataset], dict[str, float]],
) -> JsonDict:
    """Evaluate one corrupted set after the other: no two are in memory together."""
    sources = {corruption_source(test, name, s, folder) for name in names for s in severities}

    def measure(name: str, severity: int) -> dict[str, float]:
        return predict(load_shift(f"{name}:{severity}", test, folder)[1])

    measured = corruption_metrics(names, severities, measure)
    return measured | {"source": " and ".join(sorted(sources))}


def _operated(test: Dataset, name: str, magnitude: int) -> Dataset:
    images = operated_images(test.inputs["image"], test.ids, name, magnitude)
    return dataclasses.replace(test, inputs=test.inputs | {"image": images})


def _predictor(
    trainer: train.Trainer, state: train.TrainState, temperature: float | None
) -> Callable[[Dataset], dict[str, float]]:
    def predict(subset: Dataset) -> dict[str, float]:
        return shift_metrics(
            trainer.predict(state, trainer.loader(subset)), subset.labels, temperature
        )

    return predict


def attack(
    trainer: train.Trainer,
    state: train.TrainState,
    test: Dataset,
    *,
    eps: float,
    steps: int,
    restarts: int,
    seed: int,
) -> dict[str, float]:
    """Attack the network of a state on the images of a set; see `evaluation.attack_accuracy`."""

    def predict(variables: tuple[PyTree, PyTree], images: jax.Array) -> jax.Array:
        params, model_state = variables
        return trainer.network.bind(model_state)(params, {"image": images})[0]

    return attack_accuracy(
        predict,
        (trainer.eval_params(state.params), state.model_state),
        test.inputs["image"],
        test.labels,
        eps=eps,
        steps=steps,
        restarts=restarts,
        seed=seed,
        batch_size=trainer.eval_batch_size,
        shard=trainer.shard_batch,
        to_host=train.to_host,
    )


def check_set(options: Config, test: Dataset) -> None:
    """Raise a ValueError for a test set that cannot be corrupted or attacked."""
    wanted = {
        "num_corrupted": options["corruptions"] or options["operations"],
        "num_attacked": options["attack_eps"],
    }
    for key in filter(wanted.get, wanted):
        if "image" not in test.inputs and not test.read:
            raise ValueError(f"config.robustness: {test.name} has no images")
        if test.read and not options[key]:
            raise ValueError(
                f"config.robustness.{key}=0: expected how many images of {test.name} to hold in memory"
            )


def _subset(test: Dataset, number: int) -> Dataset:
    """Return `number` images at equal distances in the test set, in memory; 0 for all."""
    if 0 < number < len(test):
        test = dataclasses.replace(test.take(np.arange(number) * len(test) // number), notes=())
    if test.read:
        images = np.stack([test.read(row, None)["image"] for row in range(len(test))])
        test = dataclasses.replace(test, inputs={"image": images}, read=None)
    return test
