"""AdaFocal, look-up and loss with gradient: against a loop over the examples, and over cross entropy."""

from collections.abc import Iterator
from functools import partial

import jax.numpy as jnp
import numpy as np

from benchmarks import _data
from benchmarks._harness import Case, Contestant
from benchmarks.losses import step, torch_step
from calib_jax import losses

SECONDS = 12
# As late in a training: some bins focal, some inverse focal, edges of equal mass.
_EDGES = (np.arange(1, 15) / 15.0) ** 0.7
_GAMMAS = np.linspace(3.0, -0.8, 15)


def cases(quick: bool) -> Iterator[Case]:
    """The cases one by one; all are small."""
    state = losses.AdaFocalState(
        edges=jnp.asarray(_EDGES, jnp.float32), gamma=jnp.asarray(_GAMMAS, jnp.float32)
    )
    for batch in (128, 1024):
        for num_classes in (10, 100):
            logits, labels = _data.predictions(batch, num_classes)
            sizes = f"B={batch}, K={num_classes}"
            ours = step(losses.adafocal, logits, labels, state)
            tables = _EDGES.tolist(), _GAMMAS.tolist()
            loop = Contestant(
                "torch, a loop over the examples",
                partial(torch_step, "adafocal", logits, labels, *tables),
                torch=True,
                at_least=10.0 if batch == 1024 else None,
            )
            yield Case(f"AdaFocal, 15 bins, {sizes}", ours, [loop], tolerance=2e-4, relative=True)
            yield Case(
                f"AdaFocal over cross entropy, {sizes}",
                step(losses.cross_entropy, logits, labels, name="cross entropy"),
                [Contestant("AdaFocal", ours.prepare, compared=False, at_most=1.5)],
                tolerance=0.0,
                overhead=True,
            )
