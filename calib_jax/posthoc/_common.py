"""What all calibrators share: input checks and the solver."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
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
    is_readable,
    is_valid,
    numeric_rows,
    take_label,
    weighted_mean,
)

Params = TypeVar("Params")

# How far a calibrator's temperature may be from the one with the lowest NLL, either way.
LARGEST_FACTOR = 1e3


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


def fitting_data(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> FittingData:
    """Check `[n, num_classes]` logits, integer labels `[n]` and weights `[n]`.

    Values can only be looked at outside jit; shapes always are.
    """
    logits = as_logits(logits)
    if logits.ndim != 2 or logits.shape[0] == 0:
        raise ValueError(f"logits: expected [n, num_classes], n at least 1, got {logits.shape}")
    labels = as_hard_labels(labels, logits)
    weights = as_weights(weights, labels.shape, logits.dtype)
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
        if looks_like_probabilities(logits):
            raise ValueError(
                "logits: every row is non-negative and sums to 1, so these are probabilities; "
                "pass posthoc.logits_from_probs(probs)"
            )
    return FittingData(
        logits=jnp.where(counted[:, None], clean, 0.0),
        labels=jnp.where(counted, jnp.clip(labels, 0, logits.shape[1] - 1), 0),
        weights=weights,
        valid=jnp.all(~counted | (numeric & possible)) & jnp.any(counted),
    )


def nan_unless(valid: jax.Array, params: Params) -> Params:
    """`params` if the data they were fitted to are valid, NaN otherwise."""
    return jax.tree.map(lambda x: jnp.where(valid, x, jnp.nan), params)


def looks_like_probabilities(scores: ArrayLike) -> bool:
    """Whether every row of `scores` `[n, num_classes]` is non-negative and sums to one.

    >>> posthoc.looks_like_probabilities([[0.5, 0.5]]), posthoc.looks_like_probabilities([[2.0, 0.0]])
    (True, False)
    """
    scores = as_floats(scores)
    sums = jnp.sum(scores, axis=-1)
    return bool(jnp.all(scores >= 0) & jnp.all(jnp.abs(sums - 1) < 1e-3))


def logits_from_probs(probs: ArrayLike) -> jax.Array:
    """Logits whose softmax is `probs` `[n, num_classes]`: their logarithm, with zeros at 1e-30.

    >>> [round(float(x), 3) for x in posthoc.logits_from_probs([[0.5, 0.5]])[0]]
    [-0.693, -0.693]
    """
    return jnp.log(jnp.maximum(as_floats(probs), 1e-30))


def below_top(logits: jax.Array) -> jax.Array:
    """`logits` less the largest of their row; finite for a masked class, so that slopes are."""
    return jnp.maximum(centered(logits), FLOOR)


def all_right(data: FittingData) -> jax.Array:
    """Whether the label of every row has the largest logit."""
    return weighted_mean(take_label(centered(data.logits), data.labels), data.weights) == 0


def keep_prediction(probs: jax.Array, logits: jax.Array) -> jax.Array:
    """`probs`, with those of all classes but the predicted ones just below that of the prediction.

    A probability that rounds to the same number as the prediction's (at a high temperature, many do)
    would move the argmax to whichever class comes first. The slope is that of `probs`.
    """
    is_top = logits == jnp.max(logits, axis=-1, keepdims=True)
    top = jnp.max(jnp.where(is_top, probs, 0.0), axis=-1, keepdims=True)
    below = top * (1 - jnp.finfo(probs.dtype).eps)
    return at_most(probs, jnp.where(is_top, jnp.inf, below))


def minimize(
    loss: Callable[[Params], jax.Array], params: Params, *, max_steps: int = 500
) -> Params:
    """L-BFGS with exact gradients, until nothing has improved for a while in float32."""
    solver = optax.lbfgs(memory_size=20)
    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(carry: Any) -> Any:
        params, state, best, idle, count = carry
        value, grad = value_and_grad(params, state=state)
        updates, state = solver.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        moved = optax.apply_updates(params, updates)
        # One step without progress may be a short line search; several are the end, and so is a
        # search that did not move at all: it would only be repeated.
        idle = jnp.where(best - value > 1e-7 * jnp.abs(value), 0, idle + 1)
        stuck = jax.tree.map(lambda a, b: jnp.all(a == b), moved, params)
        idle = jnp.where(jax.tree.reduce(jnp.logical_and, stuck), 5, idle)
        return moved, state, jnp.minimum(best, value), idle, count + 1

    def unfinished(carry: Any) -> jax.Array:
        *_, idle, count = carry
        return (idle < 5) & (count < max_steps)

    # The solver mixes types and ranks in its own arithmetic, to no harm.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        zero = jnp.zeros((), jnp.int32)
        best = jnp.full((), jnp.inf, jax.tree.leaves(params)[0].dtype)
        start = (params, solver.init(params), best, zero, zero)
        return jax.lax.while_loop(unfinished, step, start)[0]
