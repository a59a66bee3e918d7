"""Ordinary training: one forward pass, one objective."""

import jax

from calib_jax._arrays import weighted_mean
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Method, Objective, Params, State


def supervised(objective: Objective) -> Method:
    """Return the method that minimizes an objective, whose state follows the validation set.

    Args:
      objective: Objective, such as `methods.OBJECTIVES["adafocal"]()`.

    >>> method = methods.supervised(methods.OBJECTIVES["adafocal"](num_bins=3))
    >>> method.init(methods.Info(num_examples=10, num_classes=2)).gamma.tolist()
    [1.0, 1.0, 1.0]
    """

    def loss(
        apply: Apply, params: Params, state: State, batch: Batch, key: jax.Array
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
    """Return the weighted mean loss of a batch, plus the objective's penalty if it has one."""
    value = weighted_mean(objective.loss(logits, labels, state), weights)
    if objective.penalty is None:
        return value
    return value + objective.penalty(logits, labels, weights)
