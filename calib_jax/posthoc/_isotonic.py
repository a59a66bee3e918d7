"""Isotonic regression of each class's, or each label's, probability."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax._arrays import indicator
from calib_jax.posthoc._binned import normalized
from calib_jax.posthoc._common import fitting_data
from calib_jax.posthoc._labels import LabelCalibrator, is_independent, label_data


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Isotonic(LabelCalibrator):
    """One rising function per class, one class against the rest; rows are then normalized.

    Of independent labels: one rising function per label, and nothing to normalize.

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
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "Isotonic":
        """Fit an isotonic regression of each class's indicator on its probability.

        Runs on the host, by scikit-learn; the number of bends depends on the data, so it cannot be
        part of a jitted function (calling the result can).

        Args:
          logits: `[n, num_classes]`, -inf for a masked class; or `[n]` of a label, or `[n, num_labels]`
            of independent labels.
          labels: integers; `[n]` for classes, the shape of the logits (0 or 1) for labels.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.

        References:
          Zadrozny & Elkan, 2002 (KDD).
        """
        independent = is_independent(logits, labels)
        if independent:
            of_labels = label_data(logits, labels, weights, check)
            probs, hits = jax.nn.sigmoid(of_labels.scores), of_labels.labels
            row_weights, valid = of_labels.weights[:, 0], jnp.all(of_labels.valid)
        else:
            data = fitting_data(logits, labels, weights, check)
            probs, hits = jax.nn.softmax(data.logits), indicator(data.labels, data.num_classes)
            row_weights = jnp.ones_like(probs[:, 0]) if data.weights is None else data.weights
            valid = data.valid
        curves = (np.asarray(x) for x in (probs, hits, row_weights))
        scores, values = _curves(*curves) if valid else np.full((2, probs.shape[1], 2), np.nan)
        return cls(
            jnp.asarray(scores, probs.dtype),
            jnp.asarray(values, probs.dtype),
            num_classes=probs.shape[1],
            independent=independent,
        )

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities of the shape of the logits; uniform where all classes came out as 0.

        A masked class keeps 0.
        """
        logits = self._as_logits(logits, check)
        probs = jax.nn.sigmoid(logits) if self.independent else jax.nn.softmax(logits)
        scores, values = (jnp.asarray(x, probs.dtype) for x in (self.scores, self.values))
        if self.independent and self.num_classes == 1:
            return jnp.interp(probs, scores[0], values[0])
        curves = jax.vmap(jnp.interp, in_axes=(-1, 0, 0), out_axes=-1)(probs, scores, values)
        return curves if self.independent else normalized(curves, logits)


def _curves(probs: np.ndarray, hits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return where each column's function bends and its values there `[2, columns, points]`."""
    from sklearn.isotonic import IsotonicRegression  # a second to import, for this alone

    counted = weights > 0
    curves = []
    for column, hit in zip(probs[counted].T, hits[counted].T, strict=True):
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(column, hit, weights[counted])
        curves.append((model.X_thresholds_, model.y_thresholds_))
    longest = max([2, *(len(x) for x, _ in curves)])
    padded = [[np.pad(c, (0, longest - len(c)), mode="edge") for c in xy] for xy in curves]
    return np.asarray(padded).transpose(1, 0, 2)
