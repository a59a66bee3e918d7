"""The step of every method over cross entropy's, as many rows through the same network."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks._harness import Call, Case, Contestant
from benchmarks._training import one_step
from benchmarks.models import torch_resnet

SECONDS = 120

# At most so many times cross entropy; none where a method has work to do that no code can save:
# other images, or a second network and view. Adversarial training is a matter of PGD: see `augment`.
METHODS: dict[str, float | None] = {
    "label_smoothing": 1.03,
    "flsd53": 1.03,
    "adafocal": 1.03,
    "mmce": 1.03,
    "mdca": 1.03,
    "csd": 1.03,
    "mixup": 1.05,
    "aum_mixup": 1.05,
    "sim_mixup": 1.05,
    "mixup_autolabel": None,
    "randaug_autolabel": None,
    "augmix_autolabel": None,
    "lcl": None,
}


def cases(quick: bool) -> Iterator[Case]:
    """One case, so that all methods take turns with cross entropy."""
    sizes = model, batch = network(quick)
    yield Case(
        f"training step, {model}, B={batch}",
        Contestant("cross_entropy", partial(_step, "cross_entropy", *sizes)),
        [
            *(
                Contestant(name, partial(_step, name, *sizes), compared=False, at_most=target)
                for name, target in METHODS.items()
            ),
            *([] if quick else [_torch_contestant(batch)]),
        ],
        tolerance=0.0,
        overhead=True,
    )


def network(quick: bool) -> tuple[str, int]:
    """Its name, and the rows of a step."""
    return ("mlp", 8) if quick else ("resnet20", 64)


def _step(method: str, model: str, batch: int) -> Call:
    return one_step(method, model, batch).call()


def _torch_contestant(batch: int) -> Contestant:
    return Contestant("torch, cross entropy", partial(_torch, batch), compared=False, torch=True)


def _torch(batch: int) -> Call:
    start = one_step("cross_entropy", "resnet20", batch)
    dataset = start.trainer.train.dataset
    images = dataset.inputs["image"].astype(np.float32) / 255
    labels = dataset.labels.astype(np.int64)
    return torch_resnet(start.state.params, images, labels, channels_last=False)
