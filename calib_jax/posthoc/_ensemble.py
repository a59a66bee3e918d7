"""Ensemble temperature scaling (ETS)."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax._arrays import as_logits, matmul
from calib_jax.posthoc._common import fitting_data, minimise


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnsembleTemperature:
    """`w_0 softmax(z / T) + w_1 softmax(z) + w_2 / K` with weights on the simplex.

    Changes no prediction.

    Attributes:
      temperature: T > 0.
      weights: `[3]`.
    """

    temperature: jax.Array
    weights: jax.Array

    @classmethod
    def fit(cls, logits: ArrayLike, labels: ArrayLike) -> "EnsembleTemperature":
        """Minimises the squared error, first over T, then over the weights (exactly).

        Args:
          logits: `[n, num_classes]`.
          labels: integers `[n]`.
        """
        return cls(*_fit(*fitting_data(logits, labels)))

    def __call__(self, logits: ArrayLike) -> jax.Array:
        """Probabilities `[n, num_classes]`."""
        w = self.weights
        scaled, plain, uniform = _members(as_logits(logits), self.temperature)
        return w[0] * scaled + w[1] * plain + w[2] * uniform


def _members(logits: jax.Array, temperature: jax.Array) -> jax.Array:
    """The three predictions `[3, n, num_classes]`."""
    p = jax.nn.softmax(logits)
    uniform = jnp.full_like(p, 1 / p.shape[-1])
    return jnp.stack([jax.nn.softmax(logits / temperature), p, uniform])


@jax.jit
def _fit(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    beta = metrics.inverse_temperature(logits, labels)

    def squared_error(log_scale: jax.Array) -> jax.Array:
        return metrics.brier_score(jnp.exp(log_scale) * beta * logits, labels)

    temperature = jnp.exp(-minimise(squared_error, jnp.float32(0.0))) / beta
    return temperature, _simplex_weights(_members(logits, temperature), labels)


def _simplex_weights(members: jax.Array, labels: jax.Array) -> jax.Array:
    """The exact least-squares weights on the simplex.

    A convex quadratic in three variables: its minimum lies inside the triangle, on an edge or at a
    corner, so all seven are solved and the best of those that are feasible is taken.
    """
    target = jax.nn.one_hot(labels, members.shape[-1])
    # Around the plain prediction the matrix is that of differences, which keeps its digits.
    shifted = (members - members[1]).reshape(3, -1)
    gram = matmul(shifted, shifted.T) / labels.shape[0]
    pull = matmul(shifted, (target - members[1]).ravel()) / labels.shape[0]

    def solve(face: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        index = jnp.array(face)
        m = len(face)
        # Two members may be the same prediction (T = 1): the ridge then shares between them.
        system = jnp.zeros((m + 1, m + 1)).at[m, :m].set(1.0).at[:m, m].set(1.0)
        system = system.at[:m, :m].set(gram[jnp.ix_(index, index)] + 1e-7 * jnp.eye(m))
        solution = jnp.linalg.solve(system, jnp.append(pull[index], 1.0))[:m]
        w = jnp.zeros(3).at[index].set(solution)
        loss = matmul(matmul(w, gram) - 2 * pull, w)
        return w, jnp.where(jnp.all(w >= 0), loss, jnp.inf)

    faces = [f for m in (1, 2, 3) for f in itertools.combinations(range(3), m)]
    weights, losses = (jnp.stack(x) for x in zip(*map(solve, faces), strict=True))
    return weights[jnp.argmin(losses)]
