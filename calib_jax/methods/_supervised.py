"""Ordinary training: one forward pass, one objective."""

from typing import Any

import jax
import jax.numpy as jnp

from calib_jax._arrays import weighted_mean
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Method, State
from calib_jax.methods._objectives import Objective


def supervised(objective: Objective) -> Method:
    """Minimises `objective`; its state, if it has one, follows the validation set."""

    def loss(
        apply: Apply, params: Any, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        logits, model_state = apply(params, batch.inputs, key)
        value = batch_loss(objective, logits, batch.labels, state, batch.weights)
        return value, Aux(logits, model_state)

    update = jax.jit(objective.update)

    def after_epoch(state: State, evaluator: Evaluator, key: jax.Array) -> State:
        return update(state, *evaluator.validation())

    return Method(objective.init, loss, after_epoch=after_epoch, report=jax.jit(objective.report))


def batch_loss(
    objective: Objective, logits: jax.Array, labels: jax.Array, state: State, weights: jax.Array
) -> jax.Array:
    """Mean loss over the rows that count, with the objective's penalty if it has one."""
    value = weighted_mean(objective.loss(logits, labels, state), weights)
    if objective.penalty is not None:
        value = value + objective.penalty(logits, labels, weights)
    return jnp.asarray(value)
