"""AutoLabel's buckets: their evaluation against the forward passes alone that it cannot do without."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax

from benchmarks._harness import Call, Case, Contestant
from benchmarks._training import images, make_trainer
from calib_jax import train

SECONDS = 60


def cases(quick: bool) -> Iterator[Case]:
    """ResNet-20 on random images."""
    batch = 16 if quick else 64
    variants: dict[str, dict[str, Any]] = {
        "randaug_autolabel": {"max_magnitude": 2},
        "augmix_autolabel": {},
        "mixup_autolabel": {},
    }
    for name, options in variants.items():
        trainer = make_trainer(name, batch, train_set=images(batch), **options)
        yield Case(
            f"{name}: all buckets on {batch} validation images, ResNet-20",
            Contestant("forward passes alone", partial(_forward, trainer)),
            [
                Contestant(
                    "bucket evaluation",
                    partial(_buckets, trainer),
                    compared=False,
                    at_most=1.15,
                )
            ],
            tolerance=0.0,
            overhead=True,
        )


def _buckets(trainer: train.Trainer) -> Call:
    state = trainer.init(0)
    logits = trainer.predict(state, trainer.val)
    labels = jax.device_put(trainer.val.dataset.labels)

    def evaluate(measure: Any = None, arguments: Any = None, limit: int = 0) -> Any:
        if measure is None:
            return logits, labels
        return trainer.measuring(state.params, state.network, trainer.val, measure, arguments)

    def call() -> Any:
        after = trainer.method.after_epoch(state.method, evaluate, jax.random.key(0))
        return jax.block_until_ready(after.confidence)

    return call


def _forward(trainer: train.Trainer) -> Call:
    state = trainer.init(0)

    def call() -> Any:
        for _ in range(state.method.confidence.size):
            jax.block_until_ready(trainer.predict(state, trainer.val))
        return state.method.confidence

    return call
