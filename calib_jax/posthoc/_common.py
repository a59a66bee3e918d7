"""What all calibrators share: input checks and the solver."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Self, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    FLOOR,
    as_floats,
    as_hard_labels,
    as_logits,
    as_weights,
    at_most,
    centered,
    check_labels,
    check_not_probs,
    is_readable,
    is_valid,
    numeric_rows,
    take_label,
    weighted_mean,
)

if TYPE_CHECKING:
    import optax

Params = TypeVar("Params")

# How far a calibrator's temperature may be from the one with the lowest NLL, either way.
LARGEST_FACTOR = 1e3


@dataclasses.dataclass(frozen=True)
class Calibrator:
    """What all calibrators share: the number of classes they were fitted to.

    A calibrator is a pytree of its parameters, made by `fit`, and is called with logits to give
    probabilities.

    Attributes:
      num_classes: number of classes of the fitted logits, the only one it then takes; `None`, for
        parameters that were not fitted, takes any.

    >>> calibrator = posthoc.VectorScaling.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> isinstance(calibrator, posthoc.Calibrator), calibrator.num_classes
    (True, 2)
    """

    num_classes: int | None = dataclasses.field(
        default=None, kw_only=True, metadata={"static": True}
    )

    @classmethod
    def fit(
        cls,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> Self:
        """Fit the parameters to logits and labels that the network was not trained on.

        Args:
          logits: `[n, num_classes]`; -inf for a masked class.
          labels: integers `[n]`.
          weights: `[n]`, 0 for padding.
          check: whether probabilities are refused.
        """
        data = fitting_data(logits, labels, weights, check)
        return cls(*cls._fit(data), num_classes=data.num_classes)

    @classmethod
    def _fit(cls, data: "FittingData") -> tuple[jax.Array, ...]:
        """Return the parameters, in the order of the fields."""
        raise NotImplementedError

    def __call__(self, logits: ArrayLike, *, check: bool = True) -> jax.Array:
        """Return calibrated probabilities `[n, num_classes]`."""
        raise NotImplementedError

    def input_shape(self, n: int) -> tuple[int, ...]:
        """Return the shape of the logits of n examples (of two classes, if it takes any number)."""
        return n, self.num_classes or 2

    def _as_logits(self, logits: ArrayLike, check: bool) -> jax.Array:
        """Return `logits` in float32 or float64, if they have as many classes as the fitted ones.

        `check` refuses probabilities, outside jit.
        """
        logits = as_logits(logits)
        if self.num_classes not in (None, logits.shape[-1]):
            raise ValueError(
                f"logits: {logits.shape[-1]} classes; this {type(self).__name__} was fitted to "
                f"{self.num_classes}"
            )
        if check:
            check_not_probs(logits)
        return logits


class FittingData(NamedTuple):
    """What a calibrator is fitted to; a row of weight 0 holds zeros.

    Attributes:
      logits: float32 or float64 `[n, num_classes]`; -inf for a masked class.
      labels: integers `[n]`.
      weights: `[n]`, or `None` for equal ones.
      valid: scalar, whether there is something to fit and every label is a class that is not masked;
        where it is not, the parameters are NaN.
    """

    logits: jax.Array
    labels: jax.Array
    weights: jax.Array | None
    valid: jax.Array

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]


def fitting_data(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None, check: bool = True
) -> FittingData:
    """Check `[n, num_classes]` logits, integer labels `[n]` and weights `[n]`.

    Values can only be looked at outside jit; shapes always are. `check` refuses probabilities.
    """
    logits = as_logits(logits)
    if logits.ndim != 2 or logits.shape[0] == 0:
        raise ValueError(f"logits: expected [n, num_classes], n at least 1, got {logits.shape}")
    labels = as_hard_labels(labels, logits)
    weights = as_weights(weights, labels.shape, logits.dtype)
    check_weights(weights)
    check_labels(labels, logits, weights)

    counted = jnp.ones(labels.shape, bool) if weights is None else weights != 0
    clean, numeric = numeric_rows(logits)
    possible = is_valid(labels, logits.shape[1]) & (take_label(clean, labels) > -jnp.inf)
    if all(map(is_readable, (logits, labels, weights))):
        if bool(jnp.any(counted & ~numeric)):
            raise ValueError(
                "logits: expected finite values (or -inf for a masked class), found NaN, infinity or "
                "a row that is all masked"
            )
        if bool(jnp.any(counted & ~possible)):
            row = int(jnp.argmax(counted & ~possible))
            raise ValueError(
                f"labels: class {int(labels[row])} of row {row} is masked (its logit is -inf)"
            )
    if check:
        check_not_probs(logits, weights)
    return FittingData(
        logits=jnp.where(counted[:, None], clean, 0.0),
        labels=jnp.where(counted, jnp.clip(labels, 0, logits.shape[1] - 1), 0),
        weights=weights,
        valid=jnp.all(~counted | (numeric & possible)) & has_weight(weights, counted),
    )


def check_weights(weights: jax.Array | None) -> None:
    """Raise a ValueError for a weight that is negative or NaN, outside jit."""
    if weights is not None and is_readable(weights) and not bool(jnp.all(weights >= 0)):
        raise ValueError("weights: expected numbers of at least 0, found a negative one or NaN")


def has_weight(weights: jax.Array | None, counted: jax.Array) -> jax.Array:
    """Return whether some rows count, and none less than nothing."""
    some = jnp.any(counted, axis=0)
    return some if weights is None else some & jnp.all(weights >= 0, axis=0)


def nan_unless(valid: jax.Array, params: Params) -> Params:
    """Return `params` if the data they were fitted to are valid, NaN otherwise."""
    return jax.tree.map(lambda x: jnp.where(valid, x, jnp.nan), params)


def logits_from_probs(probs: ArrayLike) -> jax.Array:
    """Return logits whose softmax is `probs` `[n, num_classes]`: their logarithm, 0 taken as 1e-30.

    >>> [round(float(x), 3) for x in posthoc.logits_from_probs([[0.5, 0.5]])[0]]
    [-0.693, -0.693]
    """
    return jnp.log(jnp.maximum(as_floats(probs), 1e-30))


def below_top(logits: jax.Array) -> jax.Array:
    """Return `logits` less the largest of their row; finite for a masked class, for its slope."""
    return jnp.maximum(centered(logits), FLOOR)


def all_right(data: FittingData) -> jax.Array:
    """Return whether the label of every row has the largest logit."""
    return weighted_mean(take_label(centered(data.logits), data.labels), data.weights) == 0


def keep_prediction(probs: jax.Array, logits: jax.Array) -> jax.Array:
    """Return `probs` with those of the other classes just below that of the prediction, at most.

    A probability that rounds to the same number as the prediction's (at a high temperature, many do)
    would move the argmax to whichever class comes first. The slope is that of `probs`.
    """
    is_top = logits == jnp.max(logits, axis=-1, keepdims=True)
    top = jnp.max(jnp.where(is_top, probs, 0.0), axis=-1, keepdims=True)
    below = top * (1 - jnp.finfo(probs.dtype).eps)
    return at_most(probs, jnp.where(is_top, jnp.inf, below))


class _Search(NamedTuple, Generic[Params]):
    """Where a solver is.

    Attributes:
      params: what the loss is minimized over.
      state: of the solver.
      best: the lowest loss so far.
      idle: number of steps without progress.
      steps: number of steps.
    """

    params: Params
    state: "optax.OptState"
    best: jax.Array
    idle: jax.Array
    steps: jax.Array


def minimize(
    loss: Callable[[Params], jax.Array], params: Params, *, max_steps: int = 500
) -> Params:
    """Minimize by L-BFGS with exact gradients, until nothing has improved for a while in float32."""
    import optax  # a third of a second, which temperature, ETS and splines do without

    solver = optax.lbfgs(memory_size=20)
    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(search: _Search[Params]) -> _Search[Params]:
        params, state, best, idle, steps = search
        value, grad = value_and_grad(params, state=state)
        updates, state = solver.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        moved = optax.apply_updates(params, updates)
        # One step without progress may be a short line search; several are the end, and so is a
        # search that did not move at all: it would only be repeated.
        idle = jnp.where(best - value > 1e-7 * jnp.abs(value), 0, idle + 1)
        stuck = jax.tree.map(lambda a, b: jnp.all(a == b), moved, params)
        idle = jnp.where(jax.tree.reduce(jnp.logical_and, stuck), 5, idle)
        return _Search(moved, state, jnp.minimum(best, value), idle, steps + 1)

    def unfinished(search: _Search[Params]) -> jax.Array:
        return (search.idle < 5) & (search.steps < max_steps)

    # The solver mixes types and ranks in its own arithmetic, to no harm.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        zero = jnp.zeros((), jnp.int32)
        best = jnp.full((), jnp.inf, jax.tree.leaves(params)[0].dtype)
        start = _Search(params, solver.init(params), best, zero, zero)
        return jax.lax.while_loop(unfinished, step, start).params
