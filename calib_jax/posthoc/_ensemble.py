"""Ensemble temperature scaling (ETS)."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax import _cpu, metrics
from calib_jax._arrays import FLOOR, indicator, matmul, take_label, weighted_mean
from calib_jax.posthoc._common import (
    LARGEST_FACTOR,
    Calibrator,
    FittingData,
    all_right,
    below_top,
    fitting_data,
    keep_prediction,
    nan_unless,
)
from calib_jax.posthoc._temperature import scaled_softmax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EnsembleTemperature(Calibrator):
    """`w_0 softmax(z / T) + w_1 softmax(z) + w_2 / K` with weights on the simplex.

    Changes no prediction. K is the number of classes that are not masked.

    Attributes:
      temperature: T > 0.
      weights: `[3]`.

    >>> calibrator = posthoc.EnsembleTemperature.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> round(float(calibrator([[2.0, 0.0]])[0, 0]), 2)
    0.75
    """

    temperature: jax.Array
    weights: jax.Array

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "EnsembleTemperature":
        """Minimize the squared error, first over T, then over the weights (exactly).

        T is within a factor of 1,000 of the temperature with the lowest NLL, which is bounded itself
        (see `metrics.inverse_temperature`), and equal to it where all predictions are right.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          weights: `[n]`, 0 for padding; of the examples, not of the three members.
          check: whether probabilities are refused.

        References:
          Zhang et al., 2020, arXiv:2003.07329.
        """
        data = fitting_data(logits, labels, weights, check)
        return cls(*_fit(data), num_classes=data.num_classes)

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return probabilities `[n, num_classes]` with the argmax of the logits."""
        return _apply(self._as_logits(logits, check), self.temperature, self.weights)


@partial(jax.jit, inline=True)
def _apply(logits: jax.Array, temperature: ArrayLike, weights: ArrayLike) -> jax.Array:
    w = jnp.asarray(weights, logits.dtype)
    scaled, plain, uniform = _members(logits, temperature)
    return keep_prediction(w[0] * scaled + w[1] * plain + w[2] * uniform, logits)


def _members(logits: jax.Array, temperature: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the three predictions, each `[n, num_classes]`; a masked class has 0 in all of them."""
    plain = jax.nn.softmax(below_top(logits))
    possible = (logits > -jnp.inf).astype(plain.dtype)
    uniform = possible / jnp.sum(possible, axis=-1, keepdims=True)
    return scaled_softmax(logits, temperature), plain, uniform


@jax.jit
def _fit(data: FittingData) -> tuple[jax.Array, jax.Array]:
    logits, labels, weights, valid = data
    beta = metrics.inverse_temperature(logits, labels, weights=weights)
    distance = beta * below_top(logits)
    own = take_label(distance, labels)

    def slope(log_scale: jax.Array) -> jax.Array:
        """Return the derivative of the mean of `sum_k p_k^2 - 2 p_y + 1` by the log of the scale."""
        scale = jnp.exp(log_scale)
        u, own_u = (jnp.maximum(scale * d, FLOOR) for d in (distance, own))
        e = jnp.exp(u)
        # With dp_k = p_k (u_k - mean u). A masked class has e = 0 and a finite u.
        total, first, squares, last = _cpu.row_sums(e, e * u, e * e, e * e * u)
        mean, own_p = first / total, jnp.exp(own_u) / total
        each = (last - mean * squares) / total**2 - own_p * (own_u - mean)
        return weighted_mean(2 * each, weights)

    scale = jnp.exp(_minimize_scalar(slope, jnp.zeros((), logits.dtype)))
    scale = jnp.clip(scale, 1 / LARGEST_FACTOR, LARGEST_FACTOR)
    temperature = 1 / (jnp.where(all_right(data), 1.0, scale) * beta)
    member_weights = _simplex_weights(_members(logits, temperature), labels, weights)
    return nan_unless(valid, (temperature, member_weights))


class _Search(NamedTuple):
    """Where the search is and its slope there, its last and its longest step, and their number."""

    at: jax.Array
    slope: jax.Array
    last: jax.Array
    longest: jax.Array
    steps: jax.Array


def _minimize_scalar(slope: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """Find a minimum of a function of one number by its derivative, downhill by the secant method.

    Steps are at most 1 long, and half as long after each change of direction, so that they end. A step
    is a pass over the examples; the second derivative, or a line search, would take several.
    """
    close = 1e-4 if start.dtype == jnp.float32 else 1e-7  # a step further, the error is below 1e-6

    def step(search: _Search) -> _Search:
        here = slope(search.at)
        curvature = (here - search.slope) / search.last
        move = -here / jnp.maximum(jnp.abs(curvature), 1e-30)
        longest = jnp.where(move * search.last < 0, search.longest / 2, search.longest)
        move = jnp.clip(move, -longest, longest)
        return _Search(search.at + move, here, move, longest, search.steps + 1)

    def unfinished(search: _Search) -> jax.Array:
        return (jnp.abs(search.last) > close) & (search.steps < 50)

    here, one = slope(start), jnp.ones_like(start)
    probe = jnp.where(here > 0, -0.1, 0.1).astype(start.dtype)
    search = _Search(start + probe, here, probe, one, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, step, search).at


def _simplex_weights(
    members: tuple[jax.Array, jax.Array, jax.Array], labels: jax.Array, weights: jax.Array | None
) -> jax.Array:
    """Return the exact least-squares weights on the simplex.

    A convex quadratic in three variables: its minimum lies inside the triangle, on an edge or at a
    corner, so all seven are solved and the best of those that are feasible is taken.
    """
    scaled, plain, uniform = members
    dtype = plain.dtype
    target = indicator(labels, plain.shape[-1]).astype(dtype)
    # Around the plain prediction the matrix is that of differences, which keeps its digits.
    shifted = (scaled - plain, jnp.zeros_like(plain), uniform - plain)

    def mean_product(a: jax.Array, b: jax.Array) -> jax.Array:
        # A sum for each row first: one float32 sum over all n K terms would lose its last digits.
        return weighted_mean(jnp.sum(a * b, axis=-1), weights)

    gram = jnp.stack([jnp.stack([mean_product(a, b) for b in shifted]) for a in shifted])
    pull = jnp.stack([mean_product(a, target - plain) for a in shifted])

    def solve(face: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        index = jnp.array(face)
        m = len(face)
        # Two members may be the same prediction (T = 1): the ridge then shares between them.
        ridge = 1e-7 * jnp.eye(m, dtype=dtype)
        system = jnp.pad(gram[jnp.ix_(index, index)] + ridge, (0, 1), constant_values=1.0)
        system = system.at[m, m].set(0.0)
        solution = jnp.linalg.solve(system, jnp.pad(pull[index], (0, 1), constant_values=1.0))[:m]
        w = jnp.zeros(3, dtype).at[index].set(solution)
        loss = matmul(matmul(w, gram) - 2 * pull, w)
        return w, jnp.where(jnp.all(w >= 0), loss, jnp.inf)

    faces = [f for m in (1, 2, 3) for f in itertools.combinations(range(3), m)]
    solutions, losses = (jnp.stack(x) for x in zip(*map(solve, faces), strict=True))
    return solutions[jnp.argmin(losses)]
