"""Spline recalibration of the top-label confidence."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import FLOOR, indicator, matmul
from calib_jax.metrics._sorting import argsort_floats, tie_means
from calib_jax.posthoc._common import Calibrator, FittingData, fitting_data, nan_unless


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Spline(Calibrator):
    """Maps the top-label confidence through the slope of a spline; changes no prediction.

    Attributes:
      scores: sorted confidences of the fitting data `[n]`.
      values: what each is recalibrated to `[n]`, before it is clipped to [0, 1].

    >>> calibrator = posthoc.Spline.fit([[2.0, 0.0], [1.0, 0.0], [0.5, 0.0]] * 4, [0, 0, 1] * 4)
    >>> calibrator([[2.0, 0.0]]).shape
    (1, 2)
    """

    scores: jax.Array
    values: jax.Array

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        num_knots: int = 6,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "Spline":
        """Fit a natural cubic spline to the cumulative calibration gap.

        Sorted by confidence, the running sum of `correct - confidence` over n is a curve whose slope
        at a percentile is the gap there. The spline smooths the curve; its slope is added to the
        confidence.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          num_knots: equally spaced over the percentiles.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.

        References:
          Gupta et al., 2021, arXiv:2006.12800.
        """
        if num_knots < 3:
            raise ValueError(f"num_knots={num_knots}: expected at least 3")
        data = fitting_data(logits, labels, weights, check)
        return cls(*_fit(data, num_knots=num_knots), num_classes=data.num_classes)

    def confidence(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return the new top-label confidence `[n]`: straight lines between the fitted points."""
        top = jnp.max(jax.nn.softmax(self._as_logits(logits, check)), axis=-1)
        scores, values = (jnp.asarray(x, top.dtype) for x in (self.scores, self.values))
        return jnp.clip(jnp.interp(top, scores, values), 0.0, 1.0)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`: the new confidence, the other classes in proportion.

        Paper: recalibrates the top score alone; here: a whole vector that sums to one, in which the
        confidence stays just above the runner-up so that the prediction is kept.
        """
        logits = self._as_logits(logits, check)
        top = indicator(jnp.argmax(logits, axis=-1), logits.shape[-1])
        without_top = jnp.maximum(jnp.where(top, -jnp.inf, logits), FLOOR)
        others = jax.nn.softmax(without_top)
        runner_up = jnp.max(others, axis=-1)
        least = runner_up / (1 + runner_up) * (1 + 1e-5)
        # A class that is the only one not masked has all of the probability.
        least = jnp.where(jnp.max(without_top, axis=-1) > FLOOR, least, 1.0)
        confidence = jnp.maximum(self.confidence(logits, check=False), least)[..., None]
        return jnp.where(top, confidence, (1 - confidence) * others)


@partial(jax.jit, static_argnames="num_knots")
def _fit(data: FittingData, *, num_knots: int) -> tuple[jax.Array, jax.Array]:
    confidence, correct = metrics.top_label(data.logits, data.labels)
    weight = jnp.ones_like(confidence) if data.weights is None else data.weights
    n = jnp.sum((weight > 0).astype(weight.dtype))
    weight = weight * n / jnp.sum(weight)
    # Padding joins the most confident example, with no say in its tie.
    confidence = jnp.where(weight > 0, confidence, jnp.max(jnp.where(weight > 0, confidence, 0.0)))
    order = argsort_floats(confidence)
    scores, weight = confidence[order], weight[order]
    # Tied examples have no order: each takes its tie's mean, and so do their new values below.
    gap = tie_means(scores, correct[order], weight) - scores
    # From 0 to 1 in steps of 1 / (n - 1); an example of weight w stands in the middle of w steps.
    rank = jnp.cumsum(weight) - weight + (weight - 1) / 2
    percentile = jnp.clip(rank / jnp.maximum(n - 1, 1.0), 0.0, 1.0)
    basis, slope = _natural_basis(percentile, num_knots)
    root = jnp.sqrt(weight)
    coefficients = jnp.linalg.lstsq(basis * root[:, None], root * jnp.cumsum(weight * gap) / n)[0]
    values = tie_means(scores, scores + matmul(slope, coefficients), weight)
    return nan_unless(data.valid, (scores, values))


def _natural_basis(x: jax.Array, num_knots: int) -> tuple[jax.Array, jax.Array]:
    """Return a natural cubic spline on equal knots in [0, 1] by its values at the knots.

    Returns the basis `[n, num_knots]` and its derivative: rows to be multiplied with the values.
    """
    h = 1 / (num_knots - 1)
    # Second derivatives at the knots are linear in the values: zero at both ends, and inside
    # h/6 (m_{i-1} + 4 m_i + m_{i+1}) = (v_{i-1} - 2 v_i + v_{i+1}) / h.
    inside = np.arange(1, num_knots - 1)
    left, right = np.eye(num_knots), np.zeros((num_knots, num_knots))
    left[inside, inside - 1] = left[inside, inside + 1] = h / 6
    left[inside, inside] = 4 * h / 6
    right[inside, inside - 1] = right[inside, inside + 1] = 1 / h
    right[inside, inside] = -2 / h
    second = jnp.asarray(np.linalg.solve(left, right), x.dtype)

    piece = jnp.clip(jnp.floor(x / h), 0, num_knots - 2)
    b = x / h - piece
    a = 1 - b
    lower = jax.nn.one_hot(piece.astype(jnp.int32), num_knots, dtype=x.dtype)
    upper = jax.nn.one_hot(piece.astype(jnp.int32) + 1, num_knots, dtype=x.dtype)

    def combine(at_lower: jax.Array, at_upper: jax.Array) -> jax.Array:
        return at_lower[:, None] * lower + at_upper[:, None] * upper

    ones = jnp.ones_like(b)
    bend = combine(a**3 - a, b**3 - b) * h**2 / 6
    bend_slope = combine(1 - 3 * a**2, 3 * b**2 - 1) * h / 6
    basis = combine(a, b) + matmul(bend, second)
    slope = combine(-ones, ones) / h + matmul(bend_slope, second)
    return basis, slope
