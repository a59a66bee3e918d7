"""Watching how the confidence of training examples follows that of validation examples."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import metrics
from calib_jax._arrays import matmul
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Info, Method, State
from calib_jax.methods._dynamics_recorder import latest


class TrainingBins(NamedTuple):
    """Mean confidence of the training examples of one epoch, bin by bin.

    Attributes:
      true: C_train,true: of the true class, where its probability lies in the validation bin
        `[num_bins]`; 0 where none does.
      top: C_train,top: of the predicted class, where its probability lies in the validation bin
        `[num_bins]`.
      own: of the true class in bins that hold equally many training examples `[num_bins]`.
      own_edges: inner edges of those bins `[num_bins - 1]`.
    """

    true: jax.Array
    top: jax.Array
    own: jax.Array
    own_edges: jax.Array


class BinMonitorState(NamedTuple):
    """A method's state and the probabilities of training examples seen since the last pass.

    Attributes:
      method: the state of the method that is watched.
      edges: inner edges of the latest validation bins `[num_bins - 1]`.
      confidence: sums per validation bin, of the true and of the predicted class's probability
        `[2, num_bins]`.
      number: of training examples in them `[2, num_bins]`.
      probability: of the true class of each training example `[num_examples]`; below 0 if it was not
        seen since the last pass.
      before: what became of all that at the latest pass.
    """

    method: State
    edges: jax.Array
    confidence: jax.Array
    number: jax.Array
    probability: jax.Array
    before: TrainingBins


def bin_monitor(method: Method, num_bins: int = 15) -> Method:
    """The same method; its log also has the confidence of training and validation, bin by bin.

    Bins are of equal validation mass and the monitor's own, as are the names in the log: a method may
    have another number of them. Training examples are counted as they were met during training, by the
    bins of the pass before, as AdaFocal does. Logged are

        val_edges, val_gap, val_confidence, val_accuracy    C_val and A_val of each bin
        train_confidence, train_top_confidence              C_train,true and C_train,top in those bins
        train_own_confidence, train_own_edges               C_train,true in bins of equal training mass

    References: Ghosh et al., 2022 (arXiv:2211.11838), section 4 and appendix C.
    """

    def init(info: Info) -> BinMonitorState:
        nothing, edges = jnp.zeros(num_bins), jnp.arange(1, num_bins, dtype=jnp.float32) / num_bins
        return BinMonitorState(
            method=method.init(info),
            edges=edges,
            confidence=jnp.zeros((2, num_bins)),
            number=jnp.zeros((2, num_bins)),
            probability=jnp.full(info.num_examples, -1.0),
            before=TrainingBins(nothing, nothing, nothing, edges),
        )

    def loss(
        apply: Apply, params: Any, state: BinMonitorState, *rest: Any
    ) -> tuple[jax.Array, Aux]:
        return method.loss(apply, params, state.method, *rest)

    def after_step(state: BinMonitorState, batch: Batch, aux: Aux) -> BinMonitorState:
        probs = jax.nn.softmax(aux.logits.astype(jnp.float32))
        true = jnp.take_along_axis(probs, batch.labels[:, None], axis=-1)[:, 0]
        confidence, number = [], []
        for p in (true, jnp.max(probs, axis=-1)):
            bins = jnp.searchsorted(state.edges, p, side="right")
            here = batch.weights * (bins == jnp.arange(num_bins)[:, None])
            confidence.append(matmul(here, p))
            number.append(jnp.sum(here, axis=-1))
        return state._replace(
            method=method.after_step(state.method, batch, aux),
            confidence=state.confidence + jnp.stack(confidence),
            number=state.number + jnp.stack(number),
            probability=latest(state.probability, batch, true),
        )

    def after_epoch(
        state: BinMonitorState, evaluator: Evaluator, key: jax.Array
    ) -> BinMonitorState:
        return BinMonitorState(
            method=method.after_epoch(state.method, evaluator, key),
            edges=_validation_bins(*evaluator.validation()).edges[1:-1],
            confidence=jnp.zeros((2, num_bins)),
            number=jnp.zeros((2, num_bins)),
            probability=jnp.full_like(state.probability, -1.0),
            before=_training_bins(state.confidence, state.number, state.probability),
        )

    @jax.jit
    def _validation_bins(logits: jax.Array, labels: jax.Array) -> metrics.BinStats:
        confidence, correct = metrics.top_label(logits, labels)
        return metrics.bin_stats(confidence, correct, num_bins=num_bins, scheme="mass")

    @jax.jit
    def _training_bins(
        confidence: jax.Array, number: jax.Array, probability: jax.Array
    ) -> TrainingBins:
        seen = (probability >= 0).astype(jnp.float32)
        p = jnp.maximum(probability, 0.0)
        own = metrics.bin_stats(p, seen, num_bins=num_bins, scheme="mass", weights=seen)
        true, top = confidence / jnp.maximum(number, 1)
        return TrainingBins(true, top, own.confidence / jnp.maximum(own.count, 1), own.edges[1:-1])

    def report(
        state: BinMonitorState, logits: jax.Array, labels: jax.Array
    ) -> dict[str, jax.Array]:
        bins = _validation_bins(logits, labels)
        return {
            "val_edges": bins.edges[1:-1],
            "val_gap": bins.gap,
            "val_confidence": bins.accuracy + bins.gap,
            "val_accuracy": bins.accuracy,
            "train_confidence": state.before.true,
            "train_top_confidence": state.before.top,
            "train_own_confidence": state.before.own,
            "train_own_edges": state.before.own_edges,
            **method.report(state.method, logits, labels),
        }

    return method._replace(
        init=init, loss=loss, after_step=after_step, after_epoch=after_epoch, report=report
    )
