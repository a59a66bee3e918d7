"""AutoLabel's buckets: their evaluation against the forward passes alone that it cannot do without."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax

from benchmarks._harness import Call, Case, Contestant
from benchmarks.train_step import _images
from calib_jax import methods, models, train

_CLASSES = 10


def cases(quick: bool) -> Iterator[Case]:
    """ResNet-20 on random images."""
    batch, batches = (16, 1) if quick else (128, 2)
    for name, options in (
        ("randaug_autolabel", {"max_magnitude": 2}),
        ("augmix_autolabel", {}),
        ("mixup_autolabel", {}),
    ):
        yield Case(
            f"{name}: all buckets on {batch * batches} validation images, ResNet-20",
            Contestant("forward passes alone", partial(_forward, name, options, batch, batches)),
            [
                Contestant(
                    "bucket evaluation",
                    partial(_buckets, name, options, batch, batches),
                    compared=False,
                    at_most=1.15,
                )
            ],
            tolerance=0.0,
        )


def _trainer(name: str, options: dict[str, Any], batch: int, batches: int) -> train.Trainer:
    schedule = train.make_schedule("constant", 0.01, total_steps=1)
    return train.Trainer(
        train.Network(models.create("resnet20", _CLASSES)),
        methods.create(name, **options),
        lambda *_: train.make_optimizer("sgd", schedule),
        _images(batch),
        _images(batch * batches),
        train.Setup(batch_size=batch, epochs=1),
    )


def _buckets(name: str, options: dict[str, Any], batch: int, batches: int) -> Call:
    trainer = _trainer(name, options, batch, batches)
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


def _forward(name: str, options: dict[str, Any], batch: int, batches: int) -> Call:
    trainer = _trainer(name, options, batch, batches)
    state = trainer.init(0)

    def call() -> Any:
        for _ in range(state.method.confidence.size):
            jax.block_until_ready(trainer.predict(state, trainer.val))
        return state.method.confidence

    return call
