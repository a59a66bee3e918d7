"""Structured vector and matrix scaling: what differs from a temperature is kept small."""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import is_readable
from calib_jax.posthoc._common import Calibrator, FittingData, fitting_data, minimize, nan_unless
from calib_jax.posthoc._scaling import affine, check_matrix_classes, like, mixed
from calib_jax.posthoc._temperature import log_scaled_softmax


@dataclasses.dataclass(frozen=True)
class _Structured(Calibrator):
    """A linear map of log q, q being the smoothed prediction at the best temperature.

    q is `softmax(z / T)` with a share of the uniform distribution mixed in, so that a class that was
    given no probability can be given some. A class that is masked (logit -inf) keeps 0.
    """

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        strength: float = 1.0,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> Self:
        """Fit the temperature, then minimize the NLL with a penalty on what differs from it.

        The penalty fades with the number of examples n and grows with that of classes K: few examples
        give little more than temperature scaling, many give a map without a penalty. The problem is
        convex.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class, which then has no effect on the others of
            its row.
          labels: integers `[n]`.
          strength: factor of the penalty, >= 0.
          weights: `[n]`, 0 for padding; their sum is taken as n.
          check: whether probabilities are refused.

        References:
          Berta et al., 2025, arXiv:2511.03685.
        """
        if is_readable(strength) and strength < 0:
            raise ValueError(f"strength={strength}: expected at least 0")
        data = fitting_data(logits, labels, weights, check)
        return cls(*cls._fit_penalized(data, strength), num_classes=data.num_classes)

    @classmethod
    def _fit_penalized(cls, data: FittingData, strength: ArrayLike) -> tuple[jax.Array, ...]:
        """Return the parameters."""
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StructuredVectorScaling(_Structured):
    """`softmax(scale * log q + bias)` with q the smoothed prediction at the best temperature.

    The penalty of `fit` is `strength K / n (|scale - 1|² + |bias|²)`.

    Attributes:
      temperature: T > 0.
      uniform: share of the uniform distribution in q, `1 / (n + 1)`.
      scale: `[num_classes]`.
      bias: `[num_classes]`.

    >>> calibrator = posthoc.StructuredVectorScaling.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(float(calibrator([[2.0, 0.0]])[0, 0]), 2)
    0.72
    """

    temperature: jax.Array
    uniform: jax.Array
    scale: jax.Array
    bias: jax.Array

    @classmethod
    def _fit_penalized(cls, data: FittingData, strength: ArrayLike) -> tuple[jax.Array, ...]:
        return _fit_vector(data, strength)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`; a masked class keeps 0."""
        log_q = _log_q(self._as_logits(logits, check), self.temperature, self.uniform)
        return jax.nn.softmax(affine(log_q, self.scale, self.bias))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class StructuredMatrixScaling(_Structured):
    """`softmax(matrix log q + bias)` with q as in `StructuredVectorScaling`; 2,000 classes at most.

    The penalty of `fit` is `strength / n (K |diagonal|² + K (K - 1) |off-diagonal|² + K |bias|²)` of
    `matrix - identity` and the bias: what there are more of is kept smaller.

    Attributes:
      temperature: T > 0.
      uniform: share of the uniform distribution in q, `1 / (n + 1)`.
      matrix: `[num_classes, num_classes]`.
      bias: `[num_classes]`.

    >>> calibrator = posthoc.StructuredMatrixScaling.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(float(calibrator([[2.0, 0.0]])[0, 0]), 2)
    0.73
    """

    temperature: jax.Array
    uniform: jax.Array
    matrix: jax.Array
    bias: jax.Array

    @classmethod
    def _fit_penalized(cls, data: FittingData, strength: ArrayLike) -> tuple[jax.Array, ...]:
        check_matrix_classes(cls.__name__, data.logits)
        return _fit_matrix(data, strength)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]`; a masked class keeps 0."""
        log_q = _log_q(self._as_logits(logits, check), self.temperature, self.uniform)
        return jax.nn.softmax(_mixed(log_q, self.matrix, self.bias))


def _log_q(logits: jax.Array, temperature: ArrayLike, uniform: ArrayLike) -> jax.Array:
    """Return the log of `(1 - uniform) softmax(logits / temperature) + uniform / K`.

    K is the number of classes that are not masked in a row.
    """
    temperature, uniform = like(temperature, logits), like(uniform, logits)
    masked = jnp.isneginf(logits)
    log_p = log_scaled_softmax(logits, temperature)
    classes = jnp.sum(~masked, axis=-1, keepdims=True).astype(logits.dtype)
    log_share = jnp.log(uniform / classes)
    log_q = jnp.logaddexp(jnp.log1p(-uniform) + log_p, log_share)
    return jnp.where(masked, -jnp.inf, log_q)


def _mixed(log_q: jax.Array, matrix: ArrayLike, bias: ArrayLike) -> jax.Array:
    return mixed(log_q, jnp.where(jnp.isneginf(log_q), 0.0, log_q), matrix, bias)


def _prepare(data: FittingData) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the temperature, the share of the uniform distribution, log q and n."""
    beta = metrics.inverse_temperature(data.logits, data.labels, weights=data.weights)
    n = like(data.labels.shape[0], data.logits) if data.weights is None else jnp.sum(data.weights)
    uniform = 1 / (n + 1)
    return 1 / beta, uniform, _log_q(data.logits, 1 / beta, uniform), n


@jax.jit
def _fit_vector(data: FittingData, strength: ArrayLike) -> tuple[jax.Array, ...]:
    temperature, uniform, log_q, n = _prepare(data)
    k = data.num_classes
    penalty = like(strength, log_q) * k / n

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        change, bias = params
        nll = metrics.nll(affine(log_q, 1 + change, bias), data.labels, weights=data.weights)
        return nll + penalty * (jnp.sum(change**2) + jnp.sum(bias**2))

    zeros = jnp.zeros(k, log_q.dtype)
    change, bias = minimize(loss, (zeros, zeros))
    return nan_unless(data.valid, (temperature, uniform, 1 + change, bias))


@jax.jit
def _fit_matrix(data: FittingData, strength: ArrayLike) -> tuple[jax.Array, ...]:
    temperature, uniform, log_q, n = _prepare(data)
    k = data.num_classes
    penalty = like(strength, log_q) * k / n
    identity = jnp.eye(k, dtype=log_q.dtype)
    # There are K - 1 times as many entries off the diagonal as on it.
    entry = jnp.where(identity == 1, 1.0, k - 1.0)

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        change, bias = params
        scores = _mixed(log_q, identity + change, bias)
        nll = metrics.nll(scores, data.labels, weights=data.weights)
        return nll + penalty * (jnp.sum(entry * change**2) + jnp.sum(bias**2))

    change, bias = minimize(loss, (jnp.zeros_like(identity), jnp.zeros(k, log_q.dtype)))
    return nan_unless(data.valid, (temperature, uniform, identity + change, bias))
