"""Histogram binning: each class's probability replaced by a frequency."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax.metrics._binning import find_bin
from calib_jax.posthoc._common import Calibrator, FittingData, fitting_data, nan_unless


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HistogramBinning(Calibrator):
    """Each class's probability replaced by its bin's frequency; rows are then normalized.

    Attributes:
      edges: inner edges of each class's bins `[num_classes, num_bins - 1]`.
      values: frequency in each bin `[num_classes, num_bins]`.

    >>> calibrator = posthoc.HistogramBinning.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> calibrator([[2.0, 0.0]]).tolist()
    [[0.75, 0.25]]
    """

    edges: jax.Array
    values: jax.Array

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        num_bins: int = 15,
        scheme: str = "width",
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "HistogramBinning":
        """Count each class's frequency, against the rest, per bin; an empty bin keeps its middle.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          num_bins, scheme: as in `metrics.bin_stats`.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.

        References:
          Zadrozny & Elkan, 2001 (ICML).
        """
        data = fitting_data(logits, labels, weights, check)
        params = _fit_histogram(data, num_bins=num_bins, scheme=scheme)
        return cls(*params, num_classes=data.num_classes)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`; uniform where every class came out as 0.

        A masked class keeps 0.
        """
        logits = self._as_logits(logits, check)
        probs = jax.nn.softmax(logits)
        edges, values = (jnp.asarray(x, probs.dtype) for x in (self.edges, self.values))

        def one_class(p: jax.Array, edges: jax.Array, values: jax.Array) -> jax.Array:
            return values[find_bin(edges, p, "left")]

        scores = jax.vmap(one_class, in_axes=(-1, 0, 0), out_axes=-1)(probs, edges, values)
        return normalized(scores, logits)


@partial(jax.jit, static_argnames=("num_bins", "scheme"))
def _fit_histogram(data: FittingData, *, num_bins: int, scheme: str) -> tuple[jax.Array, jax.Array]:
    probs = jax.nn.softmax(data.logits)

    def one_class(p: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        bins = metrics.bin_stats(
            p, data.labels == k, num_bins=num_bins, scheme=scheme, weights=data.weights
        )
        middle = (bins.edges[1:] + bins.edges[:-1]) / 2
        return bins.edges[1:-1], jnp.where(bins.count > 0, bins.accuracy, middle)

    classes = jnp.arange(probs.shape[1], dtype=data.labels.dtype)
    return nan_unless(data.valid, jax.vmap(one_class, in_axes=(1, 0))(probs, classes))


def normalized(scores: jax.Array, logits: jax.Array) -> jax.Array:
    """Return scores `[n, num_classes]` over their sum, or the uniform distribution if that is 0.

    Classes that are masked in `logits` have probability 0 either way.
    """
    possible = (logits > -jnp.inf).astype(scores.dtype)
    scores = scores * possible
    scores = jnp.where(jnp.sum(scores, axis=-1, keepdims=True) == 0, possible, scores)
    return scores / jnp.sum(scores, axis=-1, keepdims=True)
