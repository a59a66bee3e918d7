"""The dynamics recorder: statistics of every training example while another method trains."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import dynamics
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Info, Method, Params, State


class DynamicsRecord(NamedTuple):
    """A method's state and the statistics of every training example.

    Attributes:
      method: State of the recorded method.
      aum: Margins so far.
      data_map: Probabilities of the gold label so far.
      logits: Logits of the latest time each example was seen `[n, num_classes]`.
    """

    method: State
    aum: dynamics.AumState
    data_map: dynamics.DataMapState
    logits: jax.Array


def dynamics_recorder(method: Method) -> Method:
    """Return the same method, whose state also has each example's AUM, data map and latest logits.

    All use the logits that training itself computes, with dropout, once an epoch.

    Args:
      method: Method to record.

    >>> recorder = methods.dynamics_recorder(methods.create("cross_entropy"))
    >>> recorder.init(methods.Info(num_examples=10, num_classes=2)).logits.shape
    (10, 2)
    """

    def init(info: Info) -> DynamicsRecord:
        n = info.num_examples
        return DynamicsRecord(
            method.init(info),
            dynamics.aum_init(n),
            dynamics.datamap_init(n),
            jnp.zeros((n, info.num_classes)),
        )

    def loss(
        apply: Apply, params: Params, state: DynamicsRecord, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        return method.loss(apply, params, state.method, batch, key)

    def after_step(state: DynamicsRecord, batch: Batch, aux: Aux) -> DynamicsRecord:
        seen = (batch.position, aux.logits, batch.labels, batch.weights)
        return DynamicsRecord(
            method.after_step(state.method, batch, aux),
            dynamics.aum_update(state.aum, *seen),
            dynamics.datamap_update(state.data_map, *seen),
            latest(state.logits, batch, aux.logits),
        )

    def after_epoch(state: DynamicsRecord, evaluator: Evaluator, key: jax.Array) -> DynamicsRecord:
        return state._replace(method=method.after_epoch(state.method, evaluator, key))

    def report(state: DynamicsRecord, logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
        return method.report(state.method, logits, labels)

    return Method(init, loss, after_step, after_epoch, report)


def latest(logits: jax.Array, batch: Batch, new: jax.Array) -> jax.Array:
    """Return the logits of all examples `[n, num_classes]` with those of a batch replaced."""
    rows = jnp.where(batch.weights > 0, batch.position, logits.shape[0])
    return logits.at[rows].set(new.astype(logits.dtype), mode="drop")


def recorded_dynamics(state: DynamicsRecord) -> dict[str, np.ndarray]:
    """Return the recorded statistics, a row per training example, as `Info.artifacts` has them.

    Args:
      state: State of a `dynamics_recorder`.

    >>> recorder = methods.dynamics_recorder(methods.create("cross_entropy"))
    >>> sorted(methods.recorded_dynamics(recorder.init(methods.Info(10, 2))))
    ['aum', 'confidence', 'correctness', 'logits', 'variability']
    """
    values = {
        "aum": dynamics.aum_values(state.aum),
        **dynamics.datamap_values(state.data_map)._asdict(),
        "logits": state.logits,
    }
    return {name: np.asarray(value) for name, value in values.items()}
