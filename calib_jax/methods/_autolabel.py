"""AutoLabel: the confidence in the label of an augmented image is learnt for each distance."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import metrics, targets
from calib_jax.methods import _augmentations
from calib_jax.methods._augmentations import Augmentation
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Info, Method, State
from calib_jax.methods._objectives import Objective, as_objective
from calib_jax.methods._supervised import batch_loss

_BINS = 15


@jax.tree_util.register_static
class Text(str):
    """A text among the arrays of a report: part of a pytree's structure, so that it passes jit."""


class AutoLabelState(NamedTuple):
    """The label table, and what moved it last.

    Attributes:
      confidence: in the true label, of each bucket `[buckets]`; 1 is one-hot.
      ece: of each bucket on the augmented validation set `[buckets]`.
      accuracy: likewise.
      mean_confidence: of the network, likewise.
      passes: number of validation passes so far.
      objective: the state of the loss that the labels are given to.
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
    """Trains on augmented images only, with labels as sure as the table says.

    After a validation pass every bucket is evaluated on the validation set augmented in the same way,
    with new random numbers, and its label confidence c moves by eq. 1: down where the network is
    over-confident. Buckets that change images in the same way are evaluated once.

    Paper: a step of alpha after every epoch. Here: with `update_every` = n > 1 one step stands for those
    of n validation passes and is n times as long,

        c ← clip(c - n alpha ece sign(mean confidence - accuracy), accuracy, 1)

    so that labels move as fast whatever n is: with a gap that stays the same they are the same after
    any number of passes that n divides, for what clips n steps to an end also clips their sum to it.

    Args:
      augmentation: with its buckets.
      objective: must take soft labels; its own state follows the clean validation set.
      alpha: step size of one validation pass, which is an epoch unless `evaluate_every` says otherwise.
      validation_subset: number of validation examples that the buckets are evaluated on; 0 for all.
      update_every: validation passes between two updates of the table.

    References:
      Qin, Wang, Lakshminarayanan, Chi and Beutel (2023), arXiv:2302.11188.
    """
    inner = as_objective(objective)
    if update_every < 1:
        raise ValueError(f"update_every={update_every}: expected at least 1")
    number = math.prod(augmentation.shape)
    # Which buckets to evaluate, and which of these tells of each bucket.
    evaluated, of_bucket = np.unique(augmentation.same_as or np.arange(number), return_inverse=True)

    def init(info: Info) -> AutoLabelState:
        nothing = jnp.zeros(number)
        passes = jnp.zeros((), jnp.int32)
        return AutoLabelState(jnp.ones(number), nothing, nothing, nothing, passes, inner.init(info))

    def loss(
        apply: Apply, params: Any, state: AutoLabelState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        logits, model_state, drawn = forward(augmentation, apply, params, batch, key)
        confidence = state.confidence[augmentation.bucket(drawn)]
        target = augmentation.target(batch.labels, drawn, confidence, logits.shape[-1])
        value = batch_loss(inner, logits, target, state.objective, batch.weights)
        return value, Aux(logits, model_state)

    def measure(apply: Apply, params: Any, batch: Batch, argument: Any) -> Any:
        """Sums per confidence bin of one bucket on one batch."""
        bucket, key = argument
        draw_key, change_key = jax.random.split(jax.random.fold_in(key, batch.position[0]))
        drawn = augmentation.draw_in(draw_key, batch.labels.shape[0], bucket)
        images = augmentation.change(apply, params, batch, drawn, change_key)
        logits, _ = apply(params, {**batch.inputs, "image": images})
        top = metrics.top_label(logits, batch.labels)
        bins = metrics.bin_stats(*top, num_bins=_BINS, weights=batch.weights)
        return bins.count, bins.confidence, bins.correct

    @jax.jit
    def step(state: AutoLabelState, sums: Any) -> AutoLabelState:
        count, confidence, correct = (x[of_bucket] for x in sums)
        bins = metrics.BinStats(count, confidence, correct, jnp.linspace(0, 1, _BINS + 1))
        total = jnp.sum(bins.count, axis=-1)
        ece, accuracy = bins.ece(), jnp.sum(bins.correct, axis=-1) / total
        mean = jnp.sum(bins.confidence, axis=-1) / total
        since = alpha * update_every  # the last update
        new = targets.autolabel_update(state.confidence, ece, mean, accuracy, since)
        return state._replace(confidence=new, ece=ece, accuracy=accuracy, mean_confidence=mean)

    update = jax.jit(inner.update)

    def after_epoch(state: AutoLabelState, evaluator: Evaluator, key: jax.Array) -> AutoLabelState:
        state = state._replace(
            passes=state.passes + 1, objective=update(state.objective, *evaluator.validation())
        )
        if int(state.passes) % update_every:
            return state
        buckets = jnp.asarray(evaluated), jax.random.split(key, number)[evaluated]
        return step(state, evaluator.per_bucket(measure, buckets, validation_subset))

    @jax.jit
    def report(state: AutoLabelState, *validation: jax.Array) -> dict[str, Any]:
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


def forward(
    augmentation: Augmentation, apply: Apply, params: Any, batch: Batch, key: jax.Array
) -> tuple[jax.Array, Any, Any]:
    """Logits of augmented images, the network's collections, and what was drawn."""
    draw_key, change_key, network_key = jax.random.split(key, 3)
    drawn = augmentation.draw(draw_key, batch.labels.shape[0])
    images = augmentation.change(apply, params, batch, drawn, change_key)
    logits, model_state = apply(params, {**batch.inputs, "image": images}, network_key)
    return logits, model_state, drawn


def randaug_autolabel(
    max_magnitude: int = 10,
    ops: str = "all",
    alpha: float = 0.01,
    validation_subset: int = 0,
    update_every: int = 1,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """AutoLabel for RandAug: a label confidence for every operation and magnitude."""
    augmentation = _augmentations.randaug(max_magnitude, ops)
    return autolabel(
        augmentation,
        objective,
        alpha=alpha,
        validation_subset=validation_subset,
        update_every=update_every,
    )


def augmix_autolabel(
    magnitude: float = 3.0,
    num_buckets: int = 5,
    alpha: float = 0.02,
    validation_subset: int = 0,
    update_every: int = 1,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """AutoLabel for AugMix: one for every depth and range of weights."""
    return autolabel(
        _augmentations.augmix(magnitude, num_buckets),
        objective,
        alpha=alpha,
        validation_subset=validation_subset,
        update_every=update_every,
    )


def adversarial_autolabel(
    eps: float = 0.01,
    steps: int = 10,
    num_buckets: int = 10,
    alpha: float = 0.5,
    validation_subset: int = 0,
    update_every: int = 1,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """AutoLabel for adversarial training: one for every range of radii."""
    return autolabel(
        _augmentations.adversarial(eps, steps, num_buckets),
        objective,
        alpha=alpha,
        validation_subset=validation_subset,
        update_every=update_every,
    )


def mixup_autolabel(
    beta: float = 1.0,
    num_buckets: int = 5,
    alpha: float = 0.005,
    validation_subset: int = 0,
    update_every: int = 1,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """AutoLabel for mixup of images: one for every range of the lighter image's share."""
    return autolabel(
        _augmentations.mixup(beta, num_buckets),
        objective,
        alpha=alpha,
        validation_subset=validation_subset,
        update_every=update_every,
    )
