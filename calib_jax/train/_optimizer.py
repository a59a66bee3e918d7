"""Optimisers and learning rates as the papers need them, put together from optax."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "milestones", "linear", "cosine")


def make_schedule(
    name: str,
    learning_rate: float,
    *,
    total_steps: int,
    warmup_steps: int = 0,
    milestones: Sequence[int] = (),
    factor: float = 0.1,
) -> optax.Schedule:
    """Learning rate over steps.

    Args:
      name: `'constant'`; `'milestones'`: times `factor` at each; `'linear'` or `'cosine'`: to 0 at the
        last step.
      learning_rate: after warm-up.
      total_steps: of the run.
      warmup_steps: linear from 0.
      milestones: steps, for `'milestones'`.
      factor: for `'milestones'`.
    """
    _check("schedule", name, SCHEDULES)
    rest = max(total_steps - warmup_steps, 1)
    if name == "constant":
        schedule = optax.constant_schedule(learning_rate)
    elif name == "milestones":
        # A milestone counts from the start of the run, the joined schedule from the end of warm-up.
        drops = {step - warmup_steps: factor for step in milestones}
        schedule = optax.piecewise_constant_schedule(learning_rate, drops)
    elif name == "linear":
        schedule = optax.linear_schedule(learning_rate, 0.0, rest)
    else:
        schedule = optax.cosine_decay_schedule(learning_rate, rest)
    if not warmup_steps:
        return schedule
    warmup = optax.linear_schedule(0.0, learning_rate, warmup_steps)
    return optax.join_schedules([warmup, schedule], [warmup_steps])


def make_optimizer(
    name: str,
    schedule: optax.Schedule,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    decay_all: bool = True,
    clip_norm: float = 0.0,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    """SGD with L2 decay added to the gradient, or Adam, or AdamW with decoupled decay.

    Args:
      name: `'sgd'`, `'adam'` or `'adamw'`.
      schedule: learning rate over steps.
      momentum: of SGD; Adam's b1.
      nesterov: for SGD.
      weight_decay: of SGD and AdamW.
      decay_all: false keeps biases and normalisation's scales out of the decay.
      clip_norm: of the gradient of all parameters, before anything else; 0 for none.
      b2: of Adam.
      eps: of Adam.
    """
    _check("optimizer", name, OPTIMIZERS)
    if name == "adam" and weight_decay:
        raise ValueError("optimizer='adam' has no weight decay: use 'adamw' or weight_decay=0")
    mask = None if decay_all else _decays
    parts = [_clip_by_global_norm(clip_norm)] if clip_norm else []
    if name == "sgd":
        parts.append(optax.add_decayed_weights(weight_decay, mask))
        parts.append(optax.sgd(schedule, momentum or None, nesterov))
    elif name == "adam":
        parts.append(optax.adam(schedule, momentum, b2, eps))
    else:
        parts.append(optax.adamw(schedule, momentum, b2, eps, weight_decay=weight_decay, mask=mask))
    return optax.chain(*parts)


def _clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    # As optax's, but one factor for all entries: a choice for each would keep XLA from fusing it into
    # what follows, and makes Adam on the CPU take three times as long.
    def clip(grads: Any, params: Any) -> Any:
        del params
        factor = jnp.minimum(1.0, limit / optax.tree.norm(grads))
        return jax.tree.map(lambda g: factor * g, grads)

    return optax.stateless(clip)


def _decays(params: Any) -> Any:
    """By name: an attention's fused bias has three axes."""
    name = functools.partial(jax.tree_util.keystr, simple=True)
    return jax.tree_util.tree_map_with_path(
        lambda path, _: name(path[-1:]) not in ("bias", "scale"), params
    )


def _check(what: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ValueError(f"{what}={name!r}: expected one of {', '.join(names)}")
