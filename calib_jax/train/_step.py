"""The pure training step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from calib_jax._arrays import correct_prediction
from calib_jax.methods import Aux, Batch, Method, Params, PyTree
from calib_jax.train._network import Network
from calib_jax.train._state import TrainMetrics, TrainState

Augment = Callable[[jax.Array, dict[str, jax.Array]], dict[str, jax.Array]]

# Purposes that a step's key is folded with.
_NETWORK, _AUGMENT = 0, 1


def make_train_step(
    network: Network,
    method: Method,
    optimizer: optax.GradientTransformation,
    *,
    augment: Augment | None = None,
    accumulate: int = 1,
    sum_loss: bool = False,
) -> Callable[[TrainState, Batch, jax.Array], TrainState]:
    """Return the pure function `(state, batch, key) -> state`; `key` is the same for all steps.

    Args:
      network: Network to train.
      method: Method whose loss is minimized.
      optimizer: Optimizer of optax.
      augment: Function `(key, inputs) -> inputs` applied to the training inputs.
      accumulate: Number of microbatches whose gradients are averaged. Batch statistics and losses that
        couple examples are then computed per microbatch.
      sum_loss: Whether to minimize the sum over the batch instead of the mean: clipping and weight
        decay then meet gradients that are larger by the batch size.
    """

    def objective(
        params: Params, state: TrainState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, Aux]]:
        value, aux = method.loss(
            network.bind(state.model_state), params, state.method_state, batch, key
        )
        scale = jnp.sum(batch.weights) if sum_loss else 1.0
        return scale * value, (value, aux)

    gradient = jax.grad(objective, has_aux=True)

    def accumulated(
        params: Params, state: TrainState, batch: Batch, key: jax.Array
    ) -> tuple[Params, tuple[jax.Array, Aux]]:
        # Rows are assigned to microbatches round robin: of a batch that is sharded over devices, every
        # device has its share of every microbatch and nothing has to move.
        microbatches = jax.tree.map(
            lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), batch
        )
        total = jnp.sum(batch.weights)

        def one(carry: PyTree, xs: tuple[Batch, jax.Array]) -> tuple[PyTree, PyTree]:
            grads, value, model_state = carry
            microbatch, number = xs
            new, (new_value, aux) = gradient(
                params,
                state._replace(model_state=model_state),
                microbatch,
                jax.random.fold_in(key, number),
            )
            share = jnp.sum(microbatch.weights) / total
            # A microbatch's loss is a mean over its rows, or with sum_loss already a sum. One that
            # consists of padding has neither.
            grad_share = 1.0 if sum_loss else share
            grads = jax.tree.map(
                lambda a, b: a + jnp.where(share > 0, grad_share * b, 0.0), grads, new
            )
            value = value + jnp.where(share > 0, share * new_value, 0.0)
            return (grads, value, aux.model_state), (aux.logits, aux.extra)

        start = jax.tree.map(jnp.zeros_like, params), jnp.zeros(()), state.model_state
        (grads, value, model_state), stacked = jax.lax.scan(
            one, start, (microbatches, jnp.arange(accumulate))
        )
        logits, extra = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), stacked)
        return grads, (value, Aux(logits, model_state, extra))

    compute_gradient = gradient if accumulate == 1 else accumulated

    def train_step(state: TrainState, batch: Batch, key: jax.Array) -> TrainState:
        key = jax.random.fold_in(key, state.step)
        if augment is not None:
            inputs = augment(jax.random.fold_in(key, _AUGMENT), batch.inputs)
            batch = batch._replace(inputs=inputs)
        network_key = jax.random.fold_in(key, _NETWORK)
        grads, (value, aux) = compute_gradient(state.params, state, batch, network_key)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        return TrainState(
            step=state.step + 1,
            params=optax.apply_updates(state.params, updates),
            model_state=aux.model_state,
            opt_state=opt_state,
            method_state=method.after_step(state.method_state, batch, aux),
            metrics=_add_metrics(state, batch, value, aux.logits, optax.tree.norm(grads)),
        )

    return train_step


def _add_metrics(
    state: TrainState, batch: Batch, value: jax.Array, logits: jax.Array, norm: jax.Array
) -> TrainMetrics:
    metrics = state.metrics
    weight = jnp.sum(batch.weights)
    correct = correct_prediction(logits, batch.labels)
    finite = jnp.isfinite(value) & jnp.isfinite(norm)
    first = (metrics.failed < 0) & ~finite
    return TrainMetrics(
        loss=metrics.loss + weight * value,
        correct=metrics.correct + jnp.sum(batch.weights * correct),
        weight=metrics.weight + weight,
        failed=jnp.where(first, state.step, metrics.failed),
        loss_failed=jnp.where(first, ~jnp.isfinite(value), metrics.loss_failed),
    )
