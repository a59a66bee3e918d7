"""Optimizers and learning rate schedules of the papers, built from optax."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax

from calib_jax._hints import check_choice
from calib_jax.methods import Params, PyTree

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
    """Return the learning rate as a function of the step.

    Args:
      name: `'constant'`; `'milestones'`: times `factor` at each; `'linear'` or `'cosine'`: to 0 at the
        last step.
      learning_rate: Learning rate after warm-up.
      total_steps: Number of steps of the run.
      warmup_steps: Number of steps of the linear warm-up from 0.
      milestones: Steps at which `'milestones'` multiplies the rate.
      factor: Factor of each milestone.

    >>> schedule = make_schedule("linear", 0.1, total_steps=10)
    >>> round(float(schedule(5)), 3)
    0.05
    """
    check_choice("schedule", name, SCHEDULES)
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
    """Return SGD with L2 decay added to the gradient, Adam, or AdamW with decoupled decay.

    Args:
      name: `'sgd'`, `'adam'` or `'adamw'`.
      schedule: Learning rate as a function of the step.
      momentum: Momentum of SGD; b1 of Adam.
      nesterov: Whether SGD has Nesterov momentum.
      weight_decay: Weight decay of SGD and AdamW.
      decay_all: Whether biases and the scales of normalization decay, too.
      clip_norm: Largest norm of the gradient of all parameters, before anything else; 0 for any.
      b2: Decay rate of Adam's second moment.
      eps: Term that Adam adds to its denominator.

    >>> optimizer = make_optimizer("sgd", make_schedule("constant", 0.1, total_steps=1))
    >>> params = {"w": jnp.ones(1)}
    >>> updates, _ = optimizer.update(params, optimizer.init(params), params)
    >>> round(float(updates["w"][0]), 3)
    -0.1
    """
    check_choice("optimizer", name, OPTIMIZERS)
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
    def clip(grads: Params, params: Params | None) -> Params:
        del params
        factor = jnp.minimum(1.0, limit / optax.tree.norm(grads))
        return jax.tree.map(lambda g: factor * g, grads)

    return optax.stateless(clip)


def _decays(params: Params) -> PyTree:
    """Return which parameters decay, by name: an attention's fused bias has three axes."""
    name = functools.partial(jax.tree_util.keystr, simple=True)
    return jax.tree_util.tree_map_with_path(
        lambda path, _: name(path[-1:]) not in ("bias", "scale"), params
    )
