"""Losses, value and gradient of a batch, against plain torch."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _data
from benchmarks._harness import Call, Case, Contestant, on_device
from calib_jax import losses

Loss = Callable[..., jax.Array]

SECONDS = 18
_BATCHES = (128, 1024)
_CLASSES = (10, 100)
_GAMMA = 3.0


def cases(quick: bool) -> Iterator[Case]:
    """The cases one by one; all are small."""
    for batch in _BATCHES:
        for num_classes in _CLASSES:
            yield from _against_torch(batch, num_classes)


def _against_torch(batch: int, num_classes: int) -> Iterator[Case]:
    logits, labels = _data.predictions(batch, num_classes)

    def torch_loss(name: str, *arguments: Any) -> Contestant:
        return Contestant("torch", lambda: torch_step(name, logits, labels, *arguments), torch=True)

    def case(name: str, ours: Contestant, rival: Contestant) -> Case:
        sizes = f"B={batch}, K={num_classes}"
        return Case(f"{name}, {sizes}", ours, [rival], tolerance=2e-4, relative=True)

    yield case(
        "cross entropy", step(losses.cross_entropy, logits, labels), torch_loss("cross_entropy")
    )
    yield case(
        f"focal, gamma {_GAMMA:g}",
        step(lambda z, y: losses.focal(z, y, _GAMMA), logits, labels),
        torch_loss("focal", _GAMMA),
    )
    yield case(
        "MMCE_w",
        step(losses.mmce_weighted, logits, labels),
        torch_loss("mmce_weighted"),
    )


def step(loss: Loss, *arguments: Any, name: str = "calib_jax") -> Contestant:
    """Mean loss and its gradient with respect to the logits, jitted once."""
    both = jax.jit(jax.value_and_grad(lambda *a: jnp.mean(loss(*a))))
    return Contestant(name, lambda: on_device(both, *arguments))


def torch_step(name: str, logits: np.ndarray, labels: np.ndarray, *arguments: Any) -> Call:
    import torch

    from benchmarks import _plain_torch

    loss_function = getattr(_plain_torch, name)
    z = torch.from_numpy(logits.copy()).requires_grad_()
    y = torch.from_numpy(labels.astype(np.int64))

    def call() -> tuple[Any, Any]:
        z.grad = None
        loss = loss_function(z, y, *arguments)
        loss.backward()
        return loss.detach(), z.grad

    return call
