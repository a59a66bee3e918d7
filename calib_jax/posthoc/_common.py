"""What all calibrators share: input checks and the solver."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from calib_jax._arrays import as_hard_labels, as_logits

Params = TypeVar("Params")


def fitting_data(logits: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Checked `[n, num_classes]` float32 logits and integer labels `[n]`.

    Values can only be looked at outside jit; shapes always are.
    """
    logits = as_logits(logits)
    if logits.ndim != 2 or logits.shape[0] == 0:
        raise ValueError(f"logits: expected [n >= 1, num_classes], got shape {logits.shape}")
    labels = as_hard_labels(labels, logits)
    if isinstance(logits, jax.core.Tracer) or isinstance(labels, jax.core.Tracer):
        return logits, labels
    if not bool(jnp.all(jnp.isfinite(logits))):
        raise ValueError("logits: expected finite values, found NaN or infinity")
    low, high = int(jnp.min(labels)), int(jnp.max(labels))
    if low < 0 or high >= logits.shape[1]:
        bad = low if low < 0 else high
        raise ValueError(f"labels: expected 0 to {logits.shape[1] - 1}, found {bad}")
    if looks_like_probabilities(logits):
        raise ValueError(
            "logits: every row is non-negative and sums to 1, so these are probabilities; "
            "pass posthoc.logits_from_probs(probs)"
        )
    return logits, labels


def looks_like_probabilities(scores: ArrayLike) -> bool:
    """Whether every row of `scores` `[n, num_classes]` is non-negative and sums to one."""
    scores = jnp.asarray(scores, jnp.float32)
    sums = jnp.sum(scores, axis=-1)
    return bool(jnp.all(scores >= 0) & jnp.all(jnp.abs(sums - 1) < 1e-3))


def logits_from_probs(probs: ArrayLike) -> jax.Array:
    """Logits whose softmax is `probs` `[n, num_classes]`: their logarithm, with zeros at 1e-30."""
    return jnp.log(jnp.maximum(jnp.asarray(probs, jnp.float32), 1e-30))


def minimise(
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

    start = (params, solver.init(params), jnp.float32(jnp.inf), 0, 0)
    return jax.lax.while_loop(unfinished, step, start)[0]
