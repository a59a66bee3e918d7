"""Linear maps of logits: vector scaling, Dirichlet calibration, focal temperature scaling."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import as_logits, matmul
from calib_jax.posthoc._common import fitting_data, minimise


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class VectorScaling:
    """`softmax(scale * z + bias)` with a scale and a bias for each class.

    Attributes:
      scale: `[num_classes]`.
      bias: `[num_classes]`.
    """

    scale: jax.Array
    bias: jax.Array

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike) -> "VectorScaling":
        """Minimises the NLL, a convex problem, from the best temperature on.

        Args:
          logits: `[n, num_classes]`.
          labels: integers `[n]`.
        """
        return cls(*_fit_vector(*fitting_data(logits, labels)))

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`."""
        return jax.nn.softmax(self.scale * as_logits(logits) + self.bias)


@jax.jit
def _fit_vector(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    scaled, unit, start = _standardised(logits, labels)
    k = logits.shape[-1]
    scale, bias = minimise(
        lambda p: metrics.nll(p[0] * scaled + p[1], labels), (jnp.full(k, start), jnp.zeros(k))
    )
    return unit * scale, bias


def _standardised(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scores of unit spread, so that a solver meets the same problem whatever their scale.

    Also what they were multiplied with, and the best temperature's factor in the new units, kept
    within reason where no temperature is best.
    """
    unit = jax.lax.rsqrt(jnp.mean(jnp.var(scores, axis=-1)) + 1e-30)
    scaled = unit * scores
    return scaled, unit, jnp.clip(metrics.inverse_temperature(scaled, labels), 1e-2, 1e2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Dirichlet:
    """`softmax(matrix log p + bias)`: Dirichlet calibration.

    Attributes:
      matrix: `[num_classes, num_classes]`.
      bias: `[num_classes]`.
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
    ) -> "Dirichlet":
        """Minimises NLL + `odir` mean off-diagonal² + `bias` mean bias² (ODIR regularisation).

        Args:
          logits: `[n, num_classes]`.
          labels: integers `[n]`.
          odir: weight of the off-diagonal entries. Paper: by cross-validation; `None`: 0.1 per entry,
            that is `0.1 K (K - 1)`, since the number of entries to keep in check grows like that.
          bias: weight of the bias.
        """
        logits, labels = fitting_data(logits, labels)
        k = logits.shape[1]
        return cls(
            *_fit_dirichlet(logits, labels, 0.1 * k * (k - 1) if odir is None else odir, bias)
        )

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`."""
        log_p = jax.nn.log_softmax(as_logits(logits))
        return jax.nn.softmax(matmul(log_p, self.matrix.T) + self.bias)


@jax.jit
def _fit_dirichlet(
    logits: jax.Array, labels: jax.Array, odir: float, bias_weight: float
) -> tuple[jax.Array, jax.Array]:
    log_p, unit, start = _standardised(jax.nn.log_softmax(logits), labels)
    k = logits.shape[-1]
    off_diagonal = 1 - jnp.eye(k)

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        matrix, bias = params
        # The penalty is on the matrix as it will be used.
        penalty = odir * jnp.sum((off_diagonal * unit * matrix) ** 2) / (k * (k - 1))
        penalty += bias_weight * jnp.mean(bias**2)
        return metrics.nll(matmul(log_p, matrix.T) + bias, labels) + penalty

    matrix, bias = minimise(loss, (start * jnp.eye(k), jnp.zeros(k)))
    return unit * matrix, bias


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FocalTemperature:
    """The map that undoes focal training, after a temperature.

    A network that minimises the focal loss with gamma does not predict the class probabilities p but
    a q with `p_k ∝ 1 / ((1-q_k)^gamma / q_k - gamma (1-q_k)^(gamma-1) log q_k)`. This calibrator takes
    `q = softmax(z / T)` and returns p. Changes no prediction; gamma = 0 is temperature scaling.

    Attributes:
      temperature: T > 0.
      gamma: >= 0.
    """

    temperature: jax.Array
    gamma: jax.Array

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike) -> "FocalTemperature":
        """Minimises the NLL over T and gamma, from several gammas on (it is not convex).

        Args:
          logits: `[n, num_classes]`.
          labels: integers `[n]`.
        """
        return cls(*_fit_focal(*fitting_data(logits, labels)))

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`."""
        return jax.nn.softmax(_unfocused(as_logits(logits) / self.temperature, self.gamma))


def _unfocused(logits: jax.Array, gamma: jax.Array) -> jax.Array:
    """Logits of p where `softmax(logits)` is q. With r = log(1 - q) the map is, in log space,

    `log q - gamma r - log(1 + gamma q (-log q) / (1 - q))`.
    """
    log_q = jax.nn.log_softmax(logits)
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
    """`-log(1 - x) / x` for `x = exp(log_rest)`; 1 as x goes to 0."""
    x = jnp.exp(log_rest)
    small = x < 1e-4
    safe = jnp.where(small, 0.5, jnp.minimum(x, 1 - 1e-7))
    return jnp.where(small, 1 + x / 2, -jnp.log1p(-safe) / safe)


@jax.jit
def _fit_focal(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    beta = metrics.inverse_temperature(logits, labels)

    def loss(params: tuple[jax.Array, jax.Array]) -> jax.Array:
        log_scale, root_gamma = params
        return metrics.nll(_unfocused(jnp.exp(log_scale) * beta * logits, root_gamma**2), labels)

    # Not convex: several gammas to start from, each with about the temperature that goes with it.
    gammas = jnp.array([0.1, 1.0, 6.0, 16.0])
    starts = (-jnp.log1p(0.3 * gammas), jnp.sqrt(gammas))
    ends = jax.lax.map(lambda start: minimise(loss, start), starts)
    best = jnp.argmin(jax.lax.map(loss, ends))
    log_scale, root_gamma = (x[best] for x in ends)
    return jnp.exp(-log_scale) / beta, root_gamma**2
