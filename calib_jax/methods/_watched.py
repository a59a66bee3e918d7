"""Watching how the confidence of training examples follows that of validation examples."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import metrics
from calib_jax._arrays import matmul
from calib_jax.methods._base import Aux, Batch, Evaluate, Info, Method, State


class Watched(NamedTuple):
    """A method's state and, per validation bin, the training probabilities seen since the last pass.

    Attributes:
      method: the state of the method that is watched.
      edges: inner edges of the latest validation bins `[num_bins - 1]`.
      confidence: sum of the true class's probability `[num_bins]`.
      number: of training examples `[num_bins]`.
      before: mean confidence of the training examples in each bin before the latest pass `[num_bins]`.
    """

    method: State
    edges: jax.Array
    confidence: jax.Array
    number: jax.Array
    before: jax.Array


def watched(method: Method, num_bins: int = 15) -> Method:
    """The same method; its log also has C_train, C_val and A_val of each equal-mass validation bin.

    C_train is the mean probability of the true class over the training examples whose probability lies
    in the bin, as they were met during training.
    """

    def init(info: Info) -> Watched:
        nothing = jnp.zeros(num_bins)
        edges = jnp.arange(1, num_bins, dtype=jnp.float32) / num_bins
        return Watched(method.init(info), edges, nothing, nothing, nothing)

    def loss(apply: Any, params: Any, state: Watched, *rest: Any) -> tuple[jax.Array, Aux]:
        return method.loss(apply, params, state.method, *rest)

    def after_step(state: Watched, batch: Batch, aux: Aux) -> Watched:
        probs = jax.nn.softmax(aux.logits.astype(jnp.float32))
        p = jnp.take_along_axis(probs, batch.labels[:, None], axis=-1)[:, 0]
        bins = jnp.searchsorted(state.edges, p, side="right")
        here = batch.weights * (bins == jnp.arange(num_bins)[:, None])
        return state._replace(
            method=method.after_step(state.method, batch, aux),
            confidence=state.confidence + matmul(here, p),
            number=state.number + jnp.sum(here, axis=-1),
        )

    def after_epoch(state: Watched, evaluate: Evaluate, key: jax.Array) -> Watched:
        return Watched(
            method=method.after_epoch(state.method, evaluate, key),
            edges=_bins(*evaluate()).edges[1:-1],
            confidence=jnp.zeros(num_bins),
            number=jnp.zeros(num_bins),
            before=state.confidence / jnp.maximum(state.number, 1),
        )

    @jax.jit
    def _bins(logits: jax.Array, labels: jax.Array) -> metrics.BinStats:
        confidence, correct = metrics.top_label(logits, labels)
        return metrics.bin_stats(confidence, correct, num_bins=num_bins, scheme="mass")

    def report(state: Watched, logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
        bins = _bins(logits, labels)
        return {
            "edges": bins.edges[1:-1],
            "gap": bins.gap,
            "train_confidence": state.before,
            "val_confidence": bins.accuracy + bins.gap,
            "val_accuracy": bins.accuracy,
            **method.report(state.method, logits, labels),
        }

    return method._replace(
        init=init, loss=loss, after_step=after_step, after_epoch=after_epoch, report=report
    )
