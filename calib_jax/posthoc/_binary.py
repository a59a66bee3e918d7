"""Platt scaling and beta calibration: of two classes, or of labels that are true or not."""

import dataclasses
from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax.posthoc._common import minimize, nan_unless
from calib_jax.posthoc._labels import (
    LabelCalibrator,
    LabelData,
    is_independent,
    label_data,
    log_odds,
    two_class_data,
)


@dataclasses.dataclass(frozen=True)
class _Logistic(LabelCalibrator):
    """A calibrator whose log odds are linear in its parameters, given the log odds of the label."""

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> Self:
        """Minimize the NLL of Platt's targets, a convex problem.

        With P positive and N negative examples, the targets are `(P + 1) / (P + 2)` for the former and
        `1 / (N + 2)` for the latter in place of 1 and 0: the parameters are finite even where the scores
        separate the two perfectly. Rows in which one of two classes is masked are left out.

        Args:
          logits: `[n, 2]` of two classes, `[n]` of a label, or `[n, num_labels]` of independent labels,
            each fitted by itself.
          labels: integers; `[n]` for classes, the shape of the logits (0 or 1) for labels.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.
        """
        independent = is_independent(logits, labels)
        if independent:
            data = label_data(logits, labels, weights, check)
        else:
            data = two_class_data(cls.__name__, logits, labels, weights, check)
        params = cls._fit_labels(data)
        if not independent or np.ndim(logits) == 1:
            params = tuple(x[0] for x in params)
        num_classes = data.scores.shape[1] if independent else 2
        return cls(*params, num_classes=num_classes, independent=independent)

    @staticmethod
    def _fit_labels(data: LabelData) -> tuple[jax.Array, ...]:
        """Return the parameters, each `[num_labels]`."""
        raise NotImplementedError

    def _log_odds(self, scores: jax.Array) -> jax.Array:
        """Return the calibrated log odds of log odds `[...]`."""
        raise NotImplementedError

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities of the shape of the logits; a masked class keeps 0."""
        logits = self._as_logits(logits, check)
        scores = logits if self.independent else log_odds(logits)
        certain = jnp.isinf(scores)
        scores = jnp.where(certain, scores, self._log_odds(jnp.where(certain, 0.0, scores)))
        if self.independent:
            return jax.nn.sigmoid(scores)
        return jnp.stack([jax.nn.sigmoid(-scores), jax.nn.sigmoid(scores)], axis=-1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Platt(_Logistic):
    """`sigmoid(slope * z + bias)` of the log odds z of a label, or of the second of two classes.

    Attributes:
      slope: scalar, or `[num_labels]`.
      bias: like `slope`.

    References:
      Platt, 1999 (Advances in Large Margin Classifiers).

    >>> calibrator = posthoc.Platt.fit([-2.0, -1.0, 1.0, 2.0] * 9, [0, 1, 0, 1] * 9)
    >>> [round(float(p), 2) for p in calibrator([-1.0, 2.0])]
    [0.41, 0.68]
    """

    slope: jax.Array
    bias: jax.Array

    @staticmethod
    def _fit_labels(data: LabelData) -> tuple[jax.Array, ...]:
        return _fit_platt(data)

    def _log_odds(self, scores: jax.Array) -> jax.Array:
        slope, bias = (jnp.asarray(x, scores.dtype) for x in (self.slope, self.bias))
        return _broadcast(slope, scores) * scores + _broadcast(bias, scores)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Beta(_Logistic):
    """`sigmoid(a log p - b log(1 - p) + c)` of a label's probability p: beta calibration.

    It can be of another slope near 0 than near 1; `a = b` is Platt scaling. Never falling: a, b >= 0.

    Paper: the labels as targets; here: Platt's, which keep the parameters finite.

    Attributes:
      a: scalar, or `[num_labels]`, at least 0.
      b: like `a`, at least 0.
      c: like `a`.

    References:
      Kull et al., 2017 (AISTATS).

    >>> calibrator = posthoc.Beta.fit([-2.0, -1.0, 1.0, 2.0] * 9, [0, 1, 0, 1] * 9)
    >>> [round(float(p), 2) for p in calibrator([-1.0, 2.0])]
    [0.41, 0.68]
    """

    a: jax.Array
    b: jax.Array
    c: jax.Array

    @staticmethod
    def _fit_labels(data: LabelData) -> tuple[jax.Array, ...]:
        return _fit_beta(data)

    def _log_odds(self, scores: jax.Array) -> jax.Array:
        a, b, c = (
            _broadcast(jnp.asarray(x, scores.dtype), scores) for x in (self.a, self.b, self.c)
        )
        log_p, minus_log_rest = _beta_features(scores)
        return a * log_p + b * minus_log_rest + c


def _broadcast(x: jax.Array, scores: jax.Array) -> jax.Array:
    return jnp.broadcast_to(x, scores.shape)


def _beta_features(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return `log p` and `-log(1 - p)` of the log odds of p."""
    return jax.nn.log_sigmoid(scores), jax.nn.softplus(scores)


def _targets(labels: jax.Array, weights: jax.Array) -> jax.Array:
    """Return Platt's targets of one label `[n]`."""
    positive = jnp.sum(weights * labels)
    negative = jnp.sum(weights * (1 - labels))
    return jnp.where(labels == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))


def _unit(scores: jax.Array, weights: jax.Array) -> jax.Array:
    """Return what to multiply the scores of a label with, for a solver to meet numbers near 1."""
    square = jnp.sum(weights * scores**2) / jnp.maximum(jnp.sum(weights), 1e-30)
    return jnp.where(square > 0, jax.lax.rsqrt(jnp.maximum(square, 1e-30)), 1.0)


def _nll(
    labels: jax.Array, weights: jax.Array
) -> tuple[Callable[[jax.Array], jax.Array], jax.Array]:
    """Return the mean NLL of one label's targets as a function of its log odds `[n]`, and a bias.

    The bias is the best one without any score, to start from.
    """
    targets = _targets(labels, weights)
    total = jnp.maximum(jnp.sum(weights), 1e-30)
    mean = jnp.sum(weights * targets) / total
    bias = jnp.where(jnp.sum(weights) > 0, jnp.log(mean) - jnp.log1p(-mean), 0.0)

    def nll(scores: jax.Array) -> jax.Array:
        return jnp.sum(weights * (jax.nn.softplus(scores) - targets * scores)) / total

    return nll, bias


@jax.jit
def _fit_platt(data: LabelData) -> tuple[jax.Array, ...]:
    def fit_label(
        scores: jax.Array, labels: jax.Array, weights: jax.Array, valid: jax.Array
    ) -> tuple[jax.Array, ...]:
        nll, start = _nll(labels, weights)
        unit = _unit(scores, weights)

        def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
            slope, bias = params
            return nll(slope * (unit * scores) + bias)

        slope, bias = minimize(loss, (jnp.zeros_like(start), start))
        # All rows have a class that is masked: nothing to learn from.
        slope = jnp.where(jnp.sum(weights) > 0, unit * slope, 1.0)
        return nan_unless(valid, (slope, bias))

    return jax.vmap(fit_label, in_axes=(1, 1, 1, 0))(*data)


@jax.jit
def _fit_beta(data: LabelData) -> tuple[jax.Array, ...]:
    def fit_label(
        scores: jax.Array, labels: jax.Array, weights: jax.Array, valid: jax.Array
    ) -> tuple[jax.Array, ...]:
        nll, start = _nll(labels, weights)
        unit = _unit(scores, weights)
        features = unit * jnp.stack(_beta_features(scores))

        def fit_face(free: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            """Minimize with some of the two slopes held at 0; return the loss, if they are >= 0."""

            def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
                slopes, bias = params
                return nll(jnp.sum((free * slopes)[:, None] * features, axis=0) + bias)

            slopes, bias = minimize(loss, (jnp.zeros(2, scores.dtype), start))
            value = jnp.where(jnp.all(free * slopes >= 0), loss((slopes, bias)), jnp.inf)
            return free * slopes, bias, value

        # Convex, with two bounds: the best of the four faces that is feasible is the minimum.
        faces = jnp.array([[1, 1], [1, 0], [0, 1], [0, 0]], scores.dtype)
        slopes, bias, values = jax.lax.map(fit_face, faces)
        best = jnp.argmin(values)
        slopes = jnp.where(jnp.sum(weights) > 0, unit * slopes[best], 1.0)
        return nan_unless(valid, (slopes[0], slopes[1], bias[best]))

    return jax.vmap(fit_label, in_axes=(1, 1, 1, 0))(*data)
