"""Recording how every training example fares while another method trains."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import dynamics
from calib_jax.methods._base import Apply, Aux, Batch, Info, Method, State


class DynamicsRecord(NamedTuple):
    """A method's state and what is known of every training example.

    Attributes:
      method: the state of the method that is recorded.
      aum: margins so far.
      data_map: probabilities of the gold label so far.
      logits: of the latest time each example was seen `[n, num_classes]`.
    """

    method: State
    aum: dynamics.AumState
    data_map: dynamics.DataMapState
    logits: jax.Array


def dynamics_recorder(method: Method) -> Method:
    """The same method; its state also keeps each example's AUM, data map and latest logits.

    All are of the logits that training itself computes, dropout and all, once an epoch.
    """

    def init(info: Info) -> DynamicsRecord:
        n = info.num_examples
        return DynamicsRecord(
            method.init(info),
            dynamics.aum_init(n),
            dynamics.datamap_init(n),
            jnp.zeros((n, info.num_classes)),
        )

    def loss(apply: Apply, params: Any, state: DynamicsRecord, *rest: Any) -> tuple[jax.Array, Aux]:
        return method.loss(apply, params, state.method, *rest)

    def after_step(state: DynamicsRecord, batch: Batch, aux: Aux) -> DynamicsRecord:
        seen = (batch.position, aux.logits, batch.labels, batch.weights)
        return DynamicsRecord(
            method.after_step(state.method, batch, aux),
            dynamics.aum_update(state.aum, *seen),
            dynamics.datamap_update(state.data_map, *seen),
            latest(state.logits, batch, aux.logits),
        )

    return method._replace(
        init=init,
        loss=loss,
        after_step=after_step,
        after_epoch=lambda state, *rest: state._replace(
            method=method.after_epoch(state.method, *rest)
        ),
        report=lambda state, *rest: method.report(state.method, *rest),
    )


def latest(logits: jax.Array, batch: Batch, new: jax.Array) -> jax.Array:
    """`logits` of all examples `[n, num_classes]` with those of a batch in their places."""
    rows = jnp.where(batch.weights > 0, batch.position, logits.shape[0])
    return logits.at[rows].set(new.astype(logits.dtype), mode="drop")


def recorded_dynamics(state: DynamicsRecord) -> dict[str, np.ndarray]:
    """What was recorded, a row per training example, as later phases find it in `Info.artifacts`."""
    values = {
        "aum": dynamics.aum_values(state.aum),
        **dynamics.datamap_values(state.data_map)._asdict(),
        "logits": state.logits,
    }
    return {name: np.asarray(value) for name, value in values.items()}
