"""Temperature scaling: one number for all logits."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import as_logits
from calib_jax.posthoc._common import fitting_data

_CRITERIA = ("nll", "ece", "ece_mass")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Temperature:
    """`softmax(logits / T)`: changes every confidence and no prediction.

    Attributes:
      temperature: T > 0; above 1 lowers confidence.
    """

    temperature: jax.Array

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        criterion: str = "nll",
        grid: ArrayLike | None = None,
        num_bins: int = 15,
        closed: str = "right",
    ) -> "Temperature":
        """Finds T on held-out data.

        Args:
          logits: `[n, num_classes]`.
          labels: integers `[n]`.
          criterion: `'nll'`, `'ece'` (equal width) or `'ece_mass'` (equal mass).
          grid: temperatures to try; the first that attains the minimum wins. `None` with `'nll'`
            finds the exact minimum by bisection (see `metrics.inverse_temperature`), with the others
            tries 0.01, 0.02, ..., 5.
          num_bins: of the ECE.
          closed: side of the ECE's bins.
        """
        logits, labels = fitting_data(logits, labels)
        if criterion not in _CRITERIA:
            raise ValueError(f"criterion={criterion!r}: expected one of {', '.join(_CRITERIA)}")
        if grid is None and criterion == "nll":
            return cls(_by_bisection(logits, labels))
        values = np.asarray(np.arange(1, 501) / 100 if grid is None else grid)
        if values.ndim != 1 or values.size == 0 or not np.all(values > 0):
            raise ValueError(f"grid: expected a list of temperatures > 0, got {grid!r}")
        temperatures = jnp.asarray(values, jnp.float32)
        errors = _on_grid(
            logits, labels, temperatures, criterion=criterion, num_bins=num_bins, closed=closed
        )
        return cls(temperatures[jnp.argmin(errors)])

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`."""
        return jax.nn.softmax(as_logits(logits) / self.temperature)


@jax.jit
def _by_bisection(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return 1 / metrics.inverse_temperature(logits, labels)


@partial(jax.jit, static_argnames=("criterion", "num_bins", "closed"))
def _on_grid(
    logits: jax.Array,
    labels: jax.Array,
    temperatures: jax.Array,
    *,
    criterion: str,
    num_bins: int,
    closed: str,
) -> jax.Array:
    """The criterion at each temperature `[grid]`, a few temperatures at a time."""
    # The prediction is the same at every temperature; only its confidence is computed anew.
    _, correct = metrics.top_label(logits, labels)
    below_top = logits - jnp.max(logits, axis=-1, keepdims=True)
    ahead = jnp.take_along_axis(below_top, labels[:, None], axis=-1)[:, 0]

    def error(temperature: jax.Array) -> jax.Array:
        norm = jnp.sum(jnp.exp(below_top / temperature), axis=-1)
        if criterion == "nll":
            return jnp.mean(jnp.log(norm) - ahead / temperature)
        scheme = "mass" if criterion == "ece_mass" else "width"
        return metrics.ece(1 / norm, correct, num_bins=num_bins, scheme=scheme, closed=closed)

    return jax.lax.map(error, temperatures, batch_size=16)
