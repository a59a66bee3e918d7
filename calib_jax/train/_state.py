"""The train state: all that a step changes, and all that is needed to continue."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax.methods import Info, Method, Params, PyTree

Scalar = PyTree  # an array without axes, of JAX on a device or of NumPy on the host


class TrainMetrics(NamedTuple):
    """Sums since the last line of the log; in the state, so that a resumed run logs the same line.

    Attributes:
      loss: Sum of weighted losses.
      correct: Sum of weights of correctly predicted examples.
      weight: Sum of weights.
      failed: First step whose loss or gradient was not finite, -1 if none.
      loss_failed: Whether that step's loss was not finite.
    """

    loss: Scalar
    correct: Scalar
    weight: Scalar
    failed: Scalar
    loss_failed: Scalar


class TrainState(NamedTuple):
    """All that training changes.

    Attributes:
      step: Number of steps done.
      params: Parameters of the network, or a tuple with those of each network.
      model_state: Variables that are not parameters, such as batch statistics.
      opt_state: State of the optimizer.
      method_state: State of the method, a pytree.
      metrics: Sums since the last line of the log.
    """

    step: jax.Array
    params: Params
    model_state: PyTree
    opt_state: optax.OptState
    method_state: PyTree
    metrics: TrainMetrics


def zero_metrics() -> TrainMetrics:
    """Return the sums of no examples."""
    zero = np.float32(0)
    return TrainMetrics(zero, zero, zero, failed=np.int32(-1), loss_failed=np.bool_(False))


def init_state(
    method: Method,
    optimizer: optax.GradientTransformation,
    info: Info,
    params: Params,
    model_state: PyTree,
) -> TrainState:
    """Return the state before the first step."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state=model_state,
        opt_state=optimizer.init(params),
        method_state=method.init(info),
        metrics=jax.tree.map(jnp.asarray, zero_metrics()),
    )
