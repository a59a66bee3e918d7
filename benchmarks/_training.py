"""Training steps of any method on random images; their time does not depend on what is in them."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks._harness import Call
from calib_jax import data, methods, models, train

CLASSES = 10
# What earlier phases of an experiment hand to the methods that ask for it, by the set's size.
_HANDED: Mapping[str, Any] = {
    "aum": lambda n: np.arange(n, dtype=np.float32),
    "confidence": lambda n: np.linspace(0, 1, n, dtype=np.float32),
    "teacher_logits": lambda n: np.zeros((n, CLASSES), np.float32),
    "teacher_temperature": lambda n: np.asarray(1.7),
}


def images(n: int) -> data.Dataset:
    rng = np.random.default_rng(0)
    return data.Dataset(
        "random",
        "train",
        {"image": rng.integers(0, 256, (n, 32, 32, 3)).astype(np.uint8)},
        rng.integers(0, CLASSES, n).astype(np.int32),
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(CLASSES))),
    )


def make_trainer(
    method: str,
    batch: int,
    *,
    train_set: data.Dataset,
    model: str = "resnet20",
    workers: int = 0,
    **options: Any,
) -> train.Trainer:
    """The runner's trainer with SGD; `batch` rows a step, those of two groups together."""
    chosen = methods.recipe(method, **options).phases[-1]
    n = len(train_set)
    handed = {name: make(n) for name, make in _HANDED.items()}
    schedule = train.make_schedule("constant", 0.01, total_steps=1)
    shapes = tuple((name, x.shape[1:], str(x.dtype)) for name, x in train_set.inputs.items())
    return train.Trainer(
        _network(model, shapes),
        chosen,
        lambda *_: train.make_optimizer("sgd", schedule, weight_decay=5e-4),
        train_set,
        train_set.take(np.arange(batch)),
        train.Setup(batch, epochs=1, eval_batch_size=batch, workers=workers),
        artifacts=handed,
    )


@functools.cache
def _network(model: str, shapes: tuple[tuple[str, tuple[int, ...], str], ...]) -> train.Network:
    """Return a network whose random parameters all trainers share.

    Initialization takes twice as long to compile as a step; its time is in the suite `compile`.
    """
    module = models.create(model, CLASSES)
    if not shapes:  # a set that is streamed
        return train.Network(module)
    example = {name: jnp.zeros((1, *shape), dtype) for name, shape, dtype in shapes}
    params, model_state = jax.jit(train.Network(module).init)(jax.random.key(0), example)
    # Copies, because a step reuses the memory of the state that it is given.
    return train.Network(
        module, model_state=model_state, pretrained=lambda seed: jax.tree.map(jnp.copy, params)
    )


@functools.cache
def one_step(method: str, model: str, batch: int) -> "OneStep":
    """Return the trainer of a method, compiled once."""
    return OneStep(make_trainer(method, batch, train_set=images(batch), model=model))


class OneStep:
    """A trainer with one batch, over and over."""

    def __init__(self, trainer: train.Trainer) -> None:
        self.trainer = trainer
        self.chunk = next(trainer.train.chunks(trainer.train.shuffled(0, 0), 0, 1))
        self.key = jax.random.key(0)

    @functools.cached_property
    def state(self) -> train.TrainState:
        return self.trainer.init(0)

    def call(self) -> Call:
        def call() -> Any:
            self.state, sums = jax.block_until_ready(
                self.trainer.advance(self.state, self.chunk, self.key)
            )
            return sums.weight > 0

        return call

    def compiled(self) -> Any:
        """The program of the step; the same, and at once, if the step has been called."""
        return self.trainer.advance.lower(self.state, self.chunk, self.key).compile()
