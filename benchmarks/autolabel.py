"""AutoLabel's buckets: their evaluation against the passes alone that it cannot do without."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks._harness import Call, Case, Contestant
from benchmarks._training import images, make_trainer
from calib_jax import augment, losses, train

SECONDS = 75
_STEPS, _EPS = 2, 0.03  # of an attack


def cases(quick: bool) -> Iterator[Case]:
    """ResNet-20 on random images."""
    batch = 16 if quick else 64
    variants: dict[str, dict[str, Any]] = {
        "randaug_autolabel": {"max_magnitude": 2},
        "augmix_autolabel": {},
        "mixup_autolabel": {},
        "adversarial_autolabel": {"num_buckets": 4, "steps": _STEPS, "eps": _EPS},
    }
    for name, options in variants.items():
        trainer = make_trainer(name, batch, train_set=images(batch), **options)
        yield Case(
            f"{name}: all buckets on {batch} validation images, ResNet-20",
            Contestant("attacks and forward passes alone", partial(_attacked, trainer))
            if name == "adversarial_autolabel"
            else Contestant("forward passes alone", partial(_forward, trainer)),
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
    evaluator = trainer.evaluator(state)

    def call() -> Any:
        after = trainer.method.after_epoch(state.method_state, evaluator, jax.random.key(0))
        return jax.block_until_ready(after.confidence)

    return call


def _forward(trainer: train.Trainer) -> Call:
    state = trainer.init(0)

    def call() -> Any:
        for _ in range(state.method_state.confidence.size):
            jax.block_until_ready(trainer.predict(state, trainer.val))
        return state.method_state.confidence

    return call


def _attacked(trainer: train.Trainer) -> Call:
    state, val = trainer.init(0), trainer.val.dataset
    given = state.params, state.model_state, val.inputs["image"] / np.float32(255), val.labels

    @jax.jit
    def attacked(params: Any, collections: Any, images: Any, labels: Any) -> jax.Array:
        def logits(images: jax.Array) -> jax.Array:
            return trainer.network.bind(collections)(params, {"image": images})[0]

        x = augment.pgd_start(jax.random.key(0), images, eps=_EPS)
        for _ in range(_STEPS):
            x = augment.pgd_step(
                lambda x, y: losses.cross_entropy(logits(x), y), x, images, labels, eps=_EPS
            )
        return logits(x)

    def call() -> Any:
        for _ in range(state.method_state.confidence.size):
            jax.block_until_ready(attacked(*given))
        return state.method_state.confidence

    return call
