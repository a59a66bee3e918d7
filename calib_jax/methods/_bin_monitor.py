"""The bin monitor: confidence of training and validation examples, bin by bin."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import metrics
from calib_jax._arrays import matmul
from calib_jax.methods._adafocal import equal_mass_bins
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Info, Method, Params, State
from calib_jax.methods._dynamics_recorder import latest


class TrainingBins(NamedTuple):
    """Mean confidence of the training examples of one epoch, bin by bin.

    Attributes:
      true: C_train,true: mean probability of the true class of the examples where it lies in the
        validation bin `[num_bins]`; 0 in an empty bin.
      top: C_train,top: the same of the predicted class `[num_bins]`.
      own: Mean probability of the true class in bins of equal training mass `[num_bins]`.
      own_edges: Inner edges of those bins `[num_bins - 1]`.
    """

    true: jax.Array
    top: jax.Array
    own: jax.Array
    own_edges: jax.Array


class BinMonitorState(NamedTuple):
    """A method's state and the probabilities of training examples since the last validation pass.

    Attributes:
      method: State of the monitored method.
      edges: Inner edges of the latest validation bins `[num_bins - 1]`.
      confidence: Sums per validation bin, of the true and of the predicted class's probability
        `[2, num_bins]`.
      number: Number of training examples in them `[2, num_bins]`.
      probability: Probability of the true class of each training example `[num_examples]`; below 0
        for one not seen since the last pass.
      before: Mean confidences of the epoch before the latest pass.
    """

    method: State
    edges: jax.Array
    confidence: jax.Array
    number: jax.Array
    probability: jax.Array
    before: TrainingBins


def bin_monitor(method: Method, num_bins: int = 15) -> Method:
    """Return the same method, which also logs the confidence of training and validation, bin by bin.

    Bins have equal validation mass. Their number and their names in the log are the monitor's: the method
    may have another number of bins. Training examples count with their probabilities during training, in
    the bins of the pass before, as in AdaFocal. Logged are

        val_edges, val_gap, val_confidence, val_accuracy    C_val and A_val of each bin
        train_confidence, train_top_confidence              C_train,true and C_train,top in those bins
        train_own_confidence, train_own_edges               C_train,true in bins of equal training mass

    Args:
      method: Method to monitor.
      num_bins: Number of bins.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838, section 4 and appendix C.

    >>> monitored = methods.bin_monitor(methods.create("adafocal"), num_bins=4)
    >>> monitored.init(methods.Info(num_examples=10, num_classes=2)).edges.tolist()
    [0.25, 0.5, 0.75]
    """

    def init(info: Info) -> BinMonitorState:
        zeros, edges = jnp.zeros(num_bins), jnp.arange(1, num_bins, dtype=jnp.float32) / num_bins
        return BinMonitorState(
            method=method.init(info),
            edges=edges,
            confidence=jnp.zeros((2, num_bins)),
            number=jnp.zeros((2, num_bins)),
            probability=jnp.full(info.num_examples, -1.0),
            before=TrainingBins(zeros, zeros, zeros, edges),
        )

    def loss(
        apply: Apply, params: Params, state: BinMonitorState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        return method.loss(apply, params, state.method, batch, key)

    def after_step(state: BinMonitorState, batch: Batch, aux: Aux) -> BinMonitorState:
        probs = jax.nn.softmax(aux.logits.astype(jnp.float32))
        true = jnp.take_along_axis(probs, batch.labels[:, None], axis=-1)[:, 0]
        confidence, number = [], []
        for p in (true, jnp.max(probs, axis=-1)):
            bins = jnp.searchsorted(state.edges, p, side="right")
            is_in_bin = bins == jnp.arange(num_bins)[:, None]
            weights = jnp.where(is_in_bin, batch.weights, 0.0)
            confidence.append(matmul(weights, p))
            number.append(jnp.sum(weights, axis=-1))
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
            edges=validation_bins(*evaluator.validation()).edges[1:-1],
            confidence=jnp.zeros((2, num_bins)),
            number=jnp.zeros((2, num_bins)),
            probability=jnp.full_like(state.probability, -1.0),
            before=training_bins(state.confidence, state.number, state.probability),
        )

    @jax.jit
    def validation_bins(logits: jax.Array, labels: jax.Array) -> metrics.BinStats:
        return equal_mass_bins(logits, labels, num_bins)

    @jax.jit
    def training_bins(
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
        bins = validation_bins(logits, labels)
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
