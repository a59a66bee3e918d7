"""AutoLabel: the confidence in the label of an augmented image is learned for each distance."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import metrics, targets
from calib_jax.methods._augmentations import Augmentation, forward
from calib_jax.methods._base import (
    Apply,
    Aux,
    Batch,
    Evaluator,
    Info,
    Method,
    Objective,
    Params,
    PyTree,
    State,
)
from calib_jax.methods._objectives import as_objective
from calib_jax.methods._supervised import batch_loss

_BINS = 15


@jax.tree_util.register_static
class Text(str):
    """A text among the arrays of a report: part of a pytree's structure, so that it passes jit."""


class AutoLabelState(NamedTuple):
    """The label table, and the measurements of its last update.

    Attributes:
      confidence: Confidence in the true label, of each bucket `[buckets]`; 1 is one-hot.
      ece: Calibration error of each bucket on the augmented validation set `[buckets]`.
      accuracy: Accuracy there `[buckets]`.
      mean_confidence: Mean confidence of the network there `[buckets]`.
      passes: Number of validation passes so far.
      objective: State of the objective.
    """

    confidence: jax.Array
    ece: jax.Array
    accuracy: jax.Array
    mean_confidence: jax.Array
    passes: jax.Array
    objective: State


def autolabel(
    augmentation: Augmentation,
    objective: Objective | str = "cross_entropy",
    *,
    alpha: float,
    validation_subset: int = 0,
    update_every: int = 1,
) -> Method:
    """Return training on augmented images only, with the label confidences of a learned table.

    After a validation pass every bucket is evaluated on the validation set augmented in the same way,
    with new random numbers, and its label confidence c moves by eq. 1: down where the network is
    over-confident. Buckets that change images in the same way are evaluated once.

    Paper: a step of alpha after every epoch. Here: with `update_every` = n > 1 one step stands for those
    of n validation passes and is n times as long,

        c ← clip(c - n alpha ece sign(mean confidence - accuracy), accuracy, 1)

    so that labels move as fast whatever n is: with a gap that stays the same they are the same after
    any number of passes that n divides, for what clips n steps to an end also clips their sum to it.

    Args:
      augmentation: Augmentation with its buckets.
      objective: Objective that takes soft labels; its own state follows the clean validation set.
      alpha: Step size of one validation pass, which is an epoch unless `evaluate_every` is set.
      validation_subset: Number of validation examples that the buckets are evaluated on; 0 for all.
      update_every: Number of validation passes from one update of the table to the next.

    References:
      Qin, Wang, Lakshminarayanan, Chi and Beutel (2023), arXiv:2302.11188.

    >>> table = methods.create("randaug_autolabel", ops="rotate", max_magnitude=3)
    >>> table.init(methods.Info(num_examples=10, num_classes=2)).confidence.tolist()
    [1.0, 1.0, 1.0]
    """
    inner = as_objective(objective)
    if update_every < 1:
        raise ValueError(f"update_every={update_every}: expected at least 1")
    num_buckets = math.prod(augmentation.shape)
    # The buckets to evaluate, and for each bucket the index of the one evaluated for it.
    evaluated, index_of_bucket = np.unique(
        augmentation.same_as or np.arange(num_buckets), return_inverse=True
    )

    def init(info: Info) -> AutoLabelState:
        ones, zeros = jnp.ones(num_buckets), jnp.zeros(num_buckets)
        passes = jnp.zeros((), jnp.int32)
        return AutoLabelState(ones, zeros, zeros, zeros, passes, inner.init(info))

    def loss(
        apply: Apply, params: Params, state: AutoLabelState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        logits, model_state, drawn = forward(augmentation, apply, params, batch, key)
        confidence = state.confidence[augmentation.bucket(drawn)]
        target = augmentation.target(batch.labels, drawn, confidence, logits.shape[-1])
        value = batch_loss(inner, logits, target, state.objective, batch.weights)
        return value, Aux(logits, model_state)

    def measure(
        apply: Apply, params: Params, batch: Batch, bucket_and_key: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the sums per confidence bin of one bucket on one batch."""
        bucket, key = bucket_and_key
        draw_key, change_key = jax.random.split(jax.random.fold_in(key, batch.position[0]))
        drawn = augmentation.draw_in(draw_key, batch.labels.shape[0], bucket)
        images = augmentation.change(apply, params, batch, drawn, change_key)
        logits, _ = apply(params, {**batch.inputs, "image": images})
        top = metrics.top_label(logits, batch.labels)
        bins = metrics.bin_stats(*top, num_bins=_BINS, weights=batch.weights)
        return bins.count, bins.confidence, bins.correct

    @jax.jit
    def step(state: AutoLabelState, sums: PyTree) -> AutoLabelState:
        count, confidence, correct = (x[index_of_bucket] for x in sums)
        bins = metrics.BinStats(count, confidence, correct, jnp.linspace(0, 1, _BINS + 1))
        total = jnp.sum(bins.count, axis=-1)
        ece, accuracy = bins.ece(), jnp.sum(bins.correct, axis=-1) / total
        mean = jnp.sum(bins.confidence, axis=-1) / total
        step_size = alpha * update_every
        new = targets.autolabel_update(state.confidence, ece, mean, accuracy, step_size)
        return state._replace(confidence=new, ece=ece, accuracy=accuracy, mean_confidence=mean)

    update = jax.jit(inner.update)

    def after_epoch(state: AutoLabelState, evaluator: Evaluator, key: jax.Array) -> AutoLabelState:
        state = state._replace(
            passes=state.passes + 1, objective=update(state.objective, *evaluator.validation())
        )
        if int(state.passes) % update_every:
            return state
        buckets = jnp.asarray(evaluated), jax.random.split(key, num_buckets)[evaluated]
        return step(state, evaluator.per_bucket(measure, buckets, validation_subset))

    @jax.jit
    def report(state: AutoLabelState, *validation: jax.Array) -> dict[str, PyTree]:
        shown = {
            "label_confidence": state.confidence,
            "bucket_ece": state.ece,
            "bucket_accuracy": state.accuracy,
            "bucket_confidence": state.mean_confidence,
        }
        table = {key: value.reshape(augmentation.shape) for key, value in shown.items()}
        texts = {
            "bucket_names": [Text(name) for name in augmentation.names],
            "bucket_meaning": Text(augmentation.meaning),
        }
        return table | texts | inner.report(state.objective, *validation)

    return Method(init, loss, after_epoch=after_epoch, report=report)
