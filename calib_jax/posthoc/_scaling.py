"""Linear maps of logits: vector scaling, Dirichlet calibration, focal temperature scaling."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import FLOOR, as_logits, matmul, weighted_mean
from calib_jax.posthoc._common import (
    LARGEST_FACTOR,
    Calibrator,
    FittingData,
    all_right,
    below_top,
    fitting_data,
    keep_prediction,
    minimize,
    nan_unless,
)

_MOST_CLASSES = 2000  # of a matrix between classes: at 50,000 it would take 10 GB
_MASKED_LOG_P = -69.0  # what a masked class adds to others: the logarithm of about 1e-30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class VectorScaling(Calibrator):
    """`softmax(scale * z + bias)` with a scale and a bias for each class.

    `fit` minimizes the NLL, a convex problem, from the best temperature on.

    Attributes:
      scale: `[num_classes]`.
      bias: `[num_classes]`.

    References:
      Guo et al., 2017, arXiv:1706.04599.

    >>> calibrator = posthoc.VectorScaling.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(float(calibrator([[2.0, 0.0]])[0, 0]), 2)
    0.75
    """

    scale: jax.Array
    bias: jax.Array

    @classmethod
    def _fit(cls, data: FittingData) -> tuple[jax.Array, ...]:
        return _fit_vector(data)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`; a masked class keeps 0."""
        return jax.nn.softmax(affine(self._as_logits(logits, check), self.scale, self.bias))


def affine(logits: jax.Array, scale: ArrayLike, bias: ArrayLike) -> jax.Array:
    """Return `scale * logits + bias` by class; a masked class stays masked, with no slope."""
    scale, bias = (jnp.broadcast_to(like(x, logits), logits.shape) for x in (scale, bias))
    masked = jnp.isneginf(logits)
    return jnp.where(masked, -jnp.inf, scale * jnp.where(masked, 0.0, logits) + bias)


def like(x: ArrayLike, logits: jax.Array) -> jax.Array:
    return jnp.asarray(x, logits.dtype)


def check_matrix_classes(name: str, logits: ArrayLike) -> int:
    """Return the number of classes, if a matrix between that many is not too large.

    Args:
      name: Class that fits a matrix.
      logits: `[n, num_classes]`.
    """
    k = as_logits(logits).shape[-1]
    if k > _MOST_CLASSES:
        raise ValueError(
            f"logits: {k} classes; {name} fits a matrix between classes, expected at most "
            f"{_MOST_CLASSES} (VectorScaling takes more)"
        )
    return k


@jax.jit
def _fit_vector(data: FittingData) -> tuple[jax.Array, jax.Array]:
    logits, labels, weights, valid = data
    unit, start = _standardized(logits, labels, weights)
    scaled, k = unit * logits, logits.shape[-1]

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        return metrics.nll(affine(scaled, *params), labels, weights=weights)

    scale, bias = minimize(loss, (jnp.full(k, start), jnp.zeros(k, logits.dtype)))
    return nan_unless(valid, (unit * scale, bias))


def _standardized(
    scores: jax.Array, labels: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Return what to multiply scores with for a solver to meet the same problem at any scale.

    Also the best temperature's factor in the new units, kept within reason.
    """
    variance = weighted_mean(jnp.var(scores, axis=-1, where=~jnp.isneginf(scores)), weights)
    unit = jnp.where(variance > 0, jax.lax.rsqrt(jnp.maximum(variance, 1e-30)), 1.0)
    beta = metrics.inverse_temperature(unit * scores, labels, weights=weights)
    return unit, jnp.clip(beta, 1e-2, 1e2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dirichlet(Calibrator):
    """`softmax(matrix log p + bias)`: Dirichlet calibration.

    Attributes:
      matrix: `[num_classes, num_classes]`.
      bias: `[num_classes]`.

    >>> calibrator = posthoc.Dirichlet.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(float(calibrator([[2.0, 0.0]])[0, 0]), 1)
    0.8
    """

    matrix: jax.Array
    bias: jax.Array

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        odir: float | None = None,
        bias: float = 1e-3,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "Dirichlet":
        """Minimize NLL + `odir` mean off-diagonal² + `bias` mean bias² (ODIR regularization).

        Args:
          logits: `[n, num_classes]`, 2,000 classes at most; -inf for a masked class, whose log p is
            taken as that of 1e-30.
          labels: integers `[n]`.
          odir: weight of the off-diagonal entries. Paper: by cross-validation; `None`: 0.1 per entry,
            that is `0.1 K (K - 1)`, since the number of entries to keep in check grows like that.
          bias: weight of the bias.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.

        References:
          Kull et al., 2019, arXiv:1910.12656.
        """
        k = check_matrix_classes(cls.__name__, logits)
        data = fitting_data(logits, labels, weights, check)
        params = _fit_dirichlet(data, 0.1 * k * (k - 1) if odir is None else odir, bias)
        return cls(*params, num_classes=k)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`; a masked class keeps 0."""
        logits = self._as_logits(logits, check)
        return jax.nn.softmax(mixed(logits, _log_p(logits), self.matrix, self.bias))


def _log_p(logits: jax.Array) -> jax.Array:
    return jnp.where(jnp.isneginf(logits), _MASKED_LOG_P, jax.nn.log_softmax(logits))


def mixed(logits: jax.Array, log_p: jax.Array, matrix: ArrayLike, bias: ArrayLike) -> jax.Array:
    """Return `matrix log_p + bias`; the classes that are masked in `logits` stay masked."""
    mixed = matmul(log_p, like(matrix, logits).T)
    mixed += jnp.broadcast_to(like(bias, logits), logits.shape)
    return jnp.where(jnp.isneginf(logits), -jnp.inf, mixed)


@jax.jit
def _fit_dirichlet(
    data: FittingData, odir: float, bias_weight: float
) -> tuple[jax.Array, jax.Array]:
    logits, labels, weights, valid = data
    unit, start = _standardized(_log_p(logits), labels, weights)
    log_p = unit * _log_p(logits)
    k = logits.shape[-1]
    diagonal = jnp.eye(k, dtype=logits.dtype)

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        matrix, bias = params
        # The penalty is on the matrix as it will be used.
        penalty = odir * jnp.sum(((1 - diagonal) * unit * matrix) ** 2) / (k * (k - 1))
        penalty += bias_weight * jnp.mean(bias**2)
        return metrics.nll(mixed(logits, log_p, matrix, bias), labels, weights=weights) + penalty

    matrix, bias = minimize(loss, (start * diagonal, jnp.zeros(k, logits.dtype)))
    return nan_unless(valid, (unit * matrix, bias))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FocalTemperature(Calibrator):
    """The map that undoes focal training, after a temperature.

    A network that minimizes the focal loss with gamma does not predict the class probabilities p but
    a q with `p_k ∝ 1 / ((1-q_k)^gamma / q_k - gamma (1-q_k)^(gamma-1) log q_k)`. This calibrator takes
    `q = softmax(z / T)` and returns p. Changes no prediction; gamma = 0 is temperature scaling.

    `fit` minimizes the NLL over T and gamma, from several gammas on (it is not convex). T is within a
    factor of 1,000 of the temperature with the lowest NLL, which is bounded itself (see
    `metrics.inverse_temperature`); where all predictions are right it is that one, with gamma = 0.

    Attributes:
      temperature: T > 0.
      gamma: >= 0.

    References:
      Charoenphakdee et al., 2021, arXiv:2011.09172 (the map of gamma); Komisarenko & Kull, 2024,
      arXiv:2408.11598 (with a temperature).

    >>> calibrator = posthoc.FocalTemperature.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(float(calibrator([[2.0, 0.0]])[0, 0]), 2)
    0.75
    """

    temperature: jax.Array
    gamma: jax.Array

    @classmethod
    def _fit(cls, data: FittingData) -> tuple[jax.Array, ...]:
        return _fit_focal(data)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]` with the argmax of the logits."""
        return _apply_focal(self._as_logits(logits, check), self.temperature, self.gamma)


@partial(jax.jit, inline=True)
def _apply_focal(logits: jax.Array, temperature: ArrayLike, gamma: ArrayLike) -> jax.Array:
    temperature, gamma = like(temperature, logits), like(gamma, logits)
    probs = jax.nn.softmax(_unfocused(below_top(logits) / temperature, gamma))
    return keep_prediction(probs, logits)


def _unfocused(logits: jax.Array, gamma: jax.Array) -> jax.Array:
    """Return logits of p where `softmax(logits)` is q.

    With r = log(1 - q) the map is, in log space,

    `log q - gamma r - log(1 + gamma q (-log q) / (1 - q))`.
    """
    log_q = jnp.maximum(jax.nn.log_softmax(logits), FLOOR)
    q = jnp.exp(log_q)
    # Above 1/2 (one class at most) 1 - q has to be summed from the others to keep its digits.
    large = q > 0.5
    rest = jax.nn.logsumexp(jnp.where(large, -jnp.inf, log_q), axis=-1, keepdims=True)
    # A masked class (logit -inf) has q = 0, and 0 * inf is no number.
    small_q, small_log_q = jnp.where(large, 0.25, q), jnp.where(large | (q == 0), -1.0, log_q)
    log_rest = jnp.where(large, rest, jnp.log1p(-small_q))
    surprise = q * jnp.where(large, _log_ratio(rest), -small_log_q / (1 - small_q))
    return log_q - gamma * log_rest - jnp.log1p(gamma * surprise)


def _log_ratio(log_rest: jax.Array) -> jax.Array:
    """Return `-log(1 - x) / x` for `x = exp(log_rest)`; 1 as x goes to 0."""
    x = jnp.exp(log_rest)
    small = x < 1e-4
    safe = jnp.where(small, 0.5, jnp.minimum(x, 1 - 1e-7))
    return jnp.where(small, 1 + x / 2, -jnp.log1p(-safe) / safe)


@jax.jit
def _fit_focal(data: FittingData) -> tuple[jax.Array, jax.Array]:
    logits, labels, weights, valid = data
    beta = metrics.inverse_temperature(logits, labels, weights=weights)
    scaled = beta * below_top(logits)

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        log_scale, root_gamma = params
        focused = _unfocused(jnp.exp(log_scale) * scaled, root_gamma**2)
        return metrics.nll(focused, labels, weights=weights)

    # Not convex: several gammas to start from, each with about the temperature that goes with it.
    gammas = jnp.array([0.1, 1.0, 6.0, 16.0], logits.dtype)
    starts = (-jnp.log1p(0.3 * gammas), jnp.sqrt(gammas))
    ends = jax.lax.map(lambda start: minimize(loss, start), starts)
    best = jnp.argmin(jax.lax.map(loss, ends))
    log_scale, root_gamma = (x[best] for x in ends)
    scale = jnp.clip(jnp.exp(log_scale), 1 / LARGEST_FACTOR, LARGEST_FACTOR)
    right = all_right(data)
    scale, gamma = jnp.where(right, 1.0, scale), jnp.where(right, 0.0, root_gamma**2)
    return nan_unless(valid, (1 / (scale * beta), gamma))
