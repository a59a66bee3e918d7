"""Calibrators that learn a step function of each class's probability and normalize."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import as_logits
from calib_jax.metrics._binning import find_bin
from calib_jax.posthoc._common import FittingData, fitting_data, nan_unless


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Isotonic:
    """One rising function per class, one class against the rest; rows are then normalized.

    Attributes:
      scores: probabilities at which each function bends `[num_classes, points]`, ascending.
      values: its values there `[num_classes, points]`.

    >>> calibrator = posthoc.Isotonic.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> calibrator([[2.0, 0.0]]).tolist()
    [[0.75, 0.25]]
    """

    scores: jax.Array
    values: jax.Array

    @classmethod
    def fit(
        cls, logits: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None
    ) -> "Isotonic":
        """Fit an isotonic regression of each class's indicator on its probability.

        Runs on the host, by scikit-learn; the number of bends depends on the data, so it cannot be
        part of a jitted function (calling the result can).

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          weights: `[n]`, 0 for padding.

        References:
          Zadrozny & Elkan, 2002 (KDD).
        """
        from sklearn.isotonic import IsotonicRegression  # a second to import, for this alone

        data = fitting_data(logits, labels, weights)
        probs, classes = np.asarray(jax.nn.softmax(data.logits)), np.asarray(data.labels)
        if not data.valid:
            nothing = jnp.full((probs.shape[1], 2), jnp.nan, data.logits.dtype)
            return cls(nothing, nothing)
        weight = np.ones(len(classes)) if data.weights is None else np.asarray(data.weights)
        counted = weight > 0
        probs, classes, weight = probs[counted], classes[counted], weight[counted]
        curves = []
        for k in range(probs.shape[1]):
            model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
            model.fit(probs[:, k], classes == k, weight)
            curves.append((model.X_thresholds_, model.y_thresholds_))
        longest = max(2, *(len(x) for x, _ in curves))
        padded = [[np.pad(c, (0, longest - len(c)), mode="edge") for c in xy] for xy in curves]
        scores, values = np.asarray(padded, probs.dtype).transpose(1, 0, 2)
        return cls(jnp.asarray(scores), jnp.asarray(values))

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`; uniform where every class came out as 0."""
        probs = jax.nn.softmax(as_logits(logits))
        scores, values = (jnp.asarray(x, probs.dtype) for x in (self.scores, self.values))
        return _normalized(
            jax.vmap(jnp.interp, in_axes=(1, 0, 0), out_axes=1)(probs, scores, values)
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HistogramBinning:
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
    ) -> "HistogramBinning":
        """Count each class's frequency, against the rest, per bin; an empty bin keeps its middle.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          num_bins, scheme: as in `metrics.bin_stats`.
          weights: `[n]`, 0 for padding.

        References:
          Zadrozny & Elkan, 2001 (ICML).
        """
        data = fitting_data(logits, labels, weights)
        return cls(*_fit_histogram(data, num_bins=num_bins, scheme=scheme))

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`; uniform where every class came out as 0."""
        probs = jax.nn.softmax(as_logits(logits))
        edges, values = (jnp.asarray(x, probs.dtype) for x in (self.edges, self.values))

        def one_class(p: jax.Array, edges: jax.Array, values: jax.Array) -> jax.Array:
            return values[find_bin(edges, p, "left")]

        return _normalized(jax.vmap(one_class, in_axes=(1, 0, 0), out_axes=1)(probs, edges, values))


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


def _normalized(scores: jax.Array) -> jax.Array:
    total = jnp.sum(scores, axis=-1, keepdims=True)
    none = total == 0
    return jnp.where(none, 1 / scores.shape[-1], scores / jnp.where(none, 1.0, total))
