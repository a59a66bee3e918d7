"""Temperature scaling: one number for all logits."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import at_most, take_label, weighted_mean
from calib_jax._hints import check_choice
from calib_jax.posthoc._common import Calibrator, FittingData, below_top, fitting_data, nan_unless

_CRITERIA = ("nll", "ece", "ece_mass")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Temperature(Calibrator):
    """`softmax(logits / T)`: changes every confidence and no prediction.

    Attributes:
      temperature: T > 0; above 1 lowers confidence.

    >>> calibrator = posthoc.Temperature.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> [round(float(p), 3) for p in calibrator([[2.0, 0.0]])[0]]
    [0.75, 0.25]
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
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "Temperature":
        """Find T on held-out data.

        Without a grid, T is at most 1,000, or 1,000 times the typical distance of the two largest
        logits if that is more than 1 (no finite T is best where the predictions are no better than
        guesses); and where all predictions are right it is that of a smoothed likelihood.
        `metrics.inverse_temperature` states both rules.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          criterion: `'nll'`, `'ece'` (equal width) or `'ece_mass'` (equal mass).
          grid: temperatures to try; the first that attains the minimum wins. `None` with `'nll'`
            finds the exact minimum by bisection (see `metrics.inverse_temperature`), with the others
            tries 0.01, 0.02, ..., 5.
          num_bins: of the ECE.
          closed: side of the ECE's bins.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.

        References:
          Guo et al., 2017, arXiv:1706.04599.
        """
        data = fitting_data(logits, labels, weights, check)
        check_choice("criterion", criterion, _CRITERIA)
        if grid is None and criterion == "nll":
            return cls(_by_bisection(data), num_classes=data.num_classes)
        values = np.asarray(np.arange(1, 501) / 100 if grid is None else grid)
        if values.ndim != 1 or values.size == 0 or not np.all(values > 0):
            raise ValueError(f"grid: expected a list of temperatures > 0, got {grid!r}")
        temperatures = jnp.asarray(values, data.logits.dtype)
        errors = _on_grid(data, temperatures, criterion=criterion, num_bins=num_bins, closed=closed)
        best = nan_unless(data.valid, temperatures[jnp.argmin(errors)])
        return cls(best, num_classes=data.num_classes)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]` with the argmax of the logits, whatever T is."""
        return scaled_softmax(self._as_logits(logits, check), self.temperature)


@partial(jax.jit, inline=True)
def scaled_softmax(logits: jax.Array, temperature: ArrayLike) -> jax.Array:
    """Return `softmax(logits / temperature)` in the dtype of the logits, with their argmax.

    At a high temperature many `exp(-distance / T)` round to the 1 of the largest logit, and the first
    of them would be the prediction: a smaller logit has less than 1. The slope is that of the softmax.
    """
    distance = below_top(logits)
    scores = jnp.exp(distance / jnp.asarray(temperature, logits.dtype))
    just_less = 1 - 2 * jnp.finfo(scores.dtype).eps
    scores = at_most(scores, jnp.where(distance < 0, just_less, 1.0).astype(scores.dtype))
    return scores / jnp.sum(scores, axis=-1, keepdims=True)


def log_scaled_softmax(logits: jax.Array, temperature: ArrayLike) -> jax.Array:
    """Return `log softmax(logits / temperature)`; finite for a masked class."""
    return jax.nn.log_softmax(below_top(logits) / jnp.asarray(temperature, logits.dtype))


@jax.jit
def _by_bisection(data: FittingData) -> jax.Array:
    beta = metrics.inverse_temperature(data.logits, data.labels, weights=data.weights)
    return nan_unless(data.valid, 1 / beta)


@partial(jax.jit, static_argnames=("criterion", "num_bins", "closed"))
def _on_grid(
    data: FittingData,
    temperatures: jax.Array,
    *,
    criterion: str,
    num_bins: int,
    closed: str,
) -> jax.Array:
    """Return the criterion at each temperature `[grid]`, a few temperatures at a time."""
    # The prediction is the same at every temperature; only its confidence is computed anew.
    _, correct = metrics.top_label(data.logits, data.labels)
    distance = below_top(data.logits)
    own = take_label(distance, data.labels)

    def error(temperature: jax.Array) -> jax.Array:
        norm = jnp.sum(jnp.exp(distance / temperature), axis=-1)
        if criterion == "nll":
            return weighted_mean(jnp.log(norm) - own / temperature, data.weights)
        scheme = "mass" if criterion == "ece_mass" else "width"
        binning = {"num_bins": num_bins, "scheme": scheme, "closed": closed}
        return metrics.ece(1 / norm, correct, weights=data.weights, **binning)

    return jax.lax.map(error, temperatures, batch_size=16)
