"""The train state and the one pure step that moves it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax._arrays import correct_prediction
from calib_jax.methods import Aux, Batch, Info, Method
from calib_jax.train._network import Network

Augment = Callable[[jax.Array, dict[str, jax.Array]], dict[str, jax.Array]]

# What a step's key is used for.
_NETWORK, _AUGMENT = 0, 1


class Sums(NamedTuple):
    """Sums since the last line of the log. In the state, so that a resumed run logs the same line.

    Attributes:
      loss: times weight.
      correct: times weight.
      weight: of the examples seen.
      failed: the first step whose loss or gradient was not finite, -1 if none.
      loss_failed: whether that step's loss was not finite.
    """

    loss: Any
    correct: Any
    weight: Any
    failed: Any
    loss_failed: Any


class TrainState(NamedTuple):
    """All that training changes, and all that is needed to go on."""

    step: jax.Array
    params: Any
    network: Any
    optimizer: optax.OptState
    method: Any
    sums: Sums


def no_sums() -> Sums:
    zero = np.float32(0)
    return Sums(zero, zero, zero, failed=np.int32(-1), loss_failed=np.bool_(False))


def init_state(
    method: Method,
    optimizer: optax.GradientTransformation,
    info: Info,
    params: Any,
    collections: Any,
) -> TrainState:
    """The state before the first step."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        network=collections,
        optimizer=optimizer.init(params),
        method=method.init(info),
        sums=jax.tree.map(jnp.asarray, no_sums()),
    )


def make_train_step(
    network: Network,
    method: Method,
    optimizer: optax.GradientTransformation,
    *,
    augment: Augment | None = None,
    accumulate: int = 1,
    sum_loss: bool = False,
) -> Callable[[TrainState, Batch, jax.Array], TrainState]:
    """`(state, batch, key) -> state`, pure; `key` is the run's and the same for all steps.

    Args:
      network: to be trained.
      method: whose loss is minimised.
      optimizer: of optax.
      augment: `(key, inputs) -> inputs`, applied to the training inputs.
      accumulate: the batch is worked through in so many parts, whose gradients are averaged. Batch
        statistics and losses that couple examples are then of the parts.
      sum_loss: minimise the sum over the batch, not the mean: clipping and weight decay then meet
        gradients that are larger by the batch size.
    """

    def objective(params: Any, state: TrainState, batch: Batch, key: jax.Array) -> Any:
        value, aux = method.loss(network.bind(state.network), params, state.method, batch, key)
        scale = jnp.sum(batch.weights) if sum_loss else 1.0
        return scale * value, (value, aux)

    def gradient(state: TrainState, batch: Batch, key: jax.Array) -> tuple[Any, jax.Array, Aux]:
        grads, (value, aux) = jax.grad(objective, has_aux=True)(state.params, state, batch, key)
        return grads, value, aux

    def in_parts(state: TrainState, batch: Batch, key: jax.Array) -> tuple[Any, jax.Array, Aux]:
        # Dealt out like cards: with a batch that is split over devices, every device has its share
        # of every part and nothing has to move.
        parts = jax.tree.map(
            lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch
        )
        total = jnp.sum(batch.weights)

        def one(carry: Any, part_and_number: Any) -> Any:
            grads, value, collections = carry
            part, number = part_and_number
            new, part_value, aux = gradient(
                state._replace(network=collections), part, jax.random.fold_in(key, number)
            )
            share = jnp.sum(part.weights) / total
            # A part's loss is a mean over its rows, or with sum_loss already a sum. A part of
            # nothing but filling has neither.
            grad_share = 1.0 if sum_loss else share
            grads = jax.tree.map(
                lambda a, b: a + jnp.where(share > 0, grad_share * b, 0.0), grads, new
            )
            value = value + jnp.where(share > 0, share * part_value, 0.0)
            return (grads, value, aux.network), (aux.logits, aux.extra)

        start = jax.tree.map(jnp.zeros_like, state.params), jnp.zeros(()), state.network
        (grads, value, collections), stacked = jax.lax.scan(
            one, start, (parts, jnp.arange(accumulate))
        )
        logits, extra = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), stacked)
        return grads, value, Aux(logits, collections, extra)

    def train_step(state: TrainState, batch: Batch, key: jax.Array) -> TrainState:
        key = jax.random.fold_in(key, state.step)
        if augment is not None:
            inputs = augment(jax.random.fold_in(key, _AUGMENT), batch.inputs)
            batch = batch._replace(inputs=inputs)
        find = gradient if accumulate == 1 else in_parts
        grads, value, aux = find(state, batch, jax.random.fold_in(key, _NETWORK))
        updates, opt_state = optimizer.update(grads, state.optimizer, state.params)
        return TrainState(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            network=aux.network,
            optimizer=opt_state,
            method=method.after_step(state.method, batch, aux),
            sums=_add(state, batch, value, aux.logits, optax.tree.norm(grads)),
        )

    return train_step


def _add(
    state: TrainState, batch: Batch, value: jax.Array, logits: jax.Array, norm: jax.Array
) -> Sums:
    sums = state.sums
    weight = jnp.sum(batch.weights)
    correct = correct_prediction(logits, batch.labels)
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    first = (sums.failed < 0) & ~finite
    return Sums(
        loss=sums.loss + weight * value,
        correct=sums.correct + jnp.sum(batch.weights * correct),
        weight=sums.weight + weight,
        failed=jnp.where(first, state.step, sums.failed),
        loss_failed=jnp.where(first, ~jnp.isfinite(value), sums.loss_failed),
    )
