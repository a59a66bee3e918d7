"""The search of informed mixup: which two examples of the other category to mix an example with.

The rows of a step are easy examples first, then hard ones; the partners of one half are in the other.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import augment, losses, targets
from calib_jax._hints import check_choice
from calib_jax.methods._base import Apply, Batch, Inputs, Params


class Bank(NamedTuple):
    """All training examples, as they were when last seen.

    Attributes:
      logits: Logits of every training example `[n, num_classes]`.
      labels: Labels of every training example `[n]`.
      easy: Positions of the easy examples.
      hard: Positions of the hard examples.
    """

    logits: jax.Array
    labels: jax.Array
    easy: jax.Array
    hard: jax.Array


class Outputs(NamedTuple):
    """The outputs of the network's three parts for a step."""

    embeddings: jax.Array
    features: jax.Array
    logits: jax.Array


class Partners(NamedTuple):
    """One partner for each example of a step.

    Attributes:
      logits: Logits of the partners `[batch, num_classes]`.
      labels: Their (smoothed) labels `[batch, num_classes]`.
    """

    logits: jax.Array
    labels: jax.Array


@dataclasses.dataclass(frozen=True)
class PartnerSearch:
    """Options of the search; `informed_mixup` describes them."""

    partners: str
    saliency: str
    anchors: str
    smoothing: float
    clamp: float

    def __post_init__(self) -> None:
        check_choice("partners", self.partners, ("batch", "bank", "random"))
        check_choice("saliency", self.saliency, ("logits", "features", "embeddings"))
        check_choice("anchors", self.anchors, ("current", "stored"))
        if self.clamp < 0:
            raise ValueError(f"clamp={self.clamp}: expected 0 for none, or more")
        if self.saliency != "logits" and self.needs_logits:
            raise ValueError(
                f"saliency={self.saliency!r}: expected 'logits' with partners='bank' or "
                "anchors='stored', which remember nothing else"
            )

    @property
    def needs_logits(self) -> bool:
        """Whether the search reads the logits that the recording phase left."""
        return self.partners == "bank" or self.anchors == "stored"

    def find(
        self,
        key: jax.Array,
        apply: Apply,
        params: Params,
        batch: Batch,
        outputs: Outputs,
        labels: jax.Array,
        stored: jax.Array | None,
        bank: Bank | None,
    ) -> tuple[Partners, Partners]:
        """Return the nearest and the farthest partner of each example.

        Args:
          key: Random key.
          apply: Network.
          params: Its parameters.
          batch: Examples of the step, easy ones first.
          outputs: Outputs of the network for them.
          labels: Their smoothed labels `[batch, num_classes]`.
          stored: Logits of the recording phase `[n, num_classes]`, with `anchors='stored'`.
          bank: Bank of partners, with `partners='bank'`.
        """
        if self.partners == "random":
            return random_partners(key, outputs.logits, labels)
        fixed_params, fixed_outputs = jax.lax.stop_gradient((params, outputs))
        current = saliency_of(self.saliency, apply, fixed_params, fixed_outputs, batch)
        anchors = current
        if stored is not None:
            anchors = augment.saliency(stored[batch.position], batch.labels)
        if bank is not None:
            return from_bank(key, bank, anchors, self.smoothing, self.clamp)
        return from_batch(key, anchors, current, batch.weights, outputs.logits, labels, self.clamp)


def from_batch(
    key: jax.Array,
    anchors: jax.Array,
    saliency: jax.Array,
    weights: jax.Array,
    logits: jax.Array,
    labels: jax.Array,
    clamp: float,
) -> tuple[Partners, Partners]:
    """Return the nearest and the farthest of the step's other half; among equals, a random one.

    Args:
      key: Random key.
      anchors: Saliency by which examples look for partners `[batch, width]`.
      saliency: Saliency by which they are found `[batch, width]`.
      weights: Weights `[batch]`; rows of weight 0 are not found.
      logits: Logits `[batch, num_classes]`.
      labels: Smoothed labels `[batch, num_classes]`.
      clamp: Least divisor of a similarity; see `informed_mixup`.
    """
    easy_anchors, hard_anchors = _halves(anchors)
    easy, hard = _halves(saliency)
    easy_valid, hard_valid = _halves(weights > 0)
    easy_key, hard_key = jax.random.split(key)
    scale = _saliency_scale(easy.shape[0], clamp)
    rows_of_easy: Sequence[jax.Array] = augment.partners(
        easy_anchors / scale, hard / scale, valid=hard_valid, key=easy_key, eps=clamp
    )
    rows_of_hard = augment.partners(
        hard_anchors / scale, easy / scale, valid=easy_valid, key=hard_key, eps=clamp
    )
    rows_of_easy = [easy.shape[0] + rows for rows in rows_of_easy]  # hard ones come second
    nearest, farthest = _join_halves(rows_of_easy, rows_of_hard)
    return Partners(logits[nearest], labels[nearest]), Partners(logits[farthest], labels[farthest])


def from_bank(
    key: jax.Array, bank: Bank, anchors: jax.Array, smoothing: float, clamp: float
) -> tuple[Partners, Partners]:
    """Return the nearest and the farthest of the whole other category; among equals, a random one.

    Args:
      key: Random key.
      bank: Bank of partners.
      anchors: Saliency of the examples of the step `[batch, num_classes]`.
      smoothing: Smoothing of the partners' labels.
      clamp: Least divisor of a similarity; see `informed_mixup`.
    """
    easy_anchors, hard_anchors = _halves(anchors)
    scale = _saliency_scale(easy_anchors.shape[0], clamp)

    def search(key: jax.Array, half: jax.Array, category: jax.Array) -> Sequence[jax.Array]:
        candidates = augment.saliency(bank.logits[category], bank.labels[category])
        indices = augment.partners(half / scale, candidates / scale, key=key, eps=clamp)
        return [category[i] for i in indices]

    easy_key, hard_key = jax.random.split(key)
    nearest, farthest = _join_halves(
        search(easy_key, easy_anchors, bank.hard), search(hard_key, hard_anchors, bank.easy)
    )

    def members(rows: jax.Array) -> Partners:
        num_classes = bank.logits.shape[-1]
        labels = targets.smooth(bank.labels[rows], num_classes, smoothing, "others")
        return Partners(bank.logits[rows], labels)

    return members(nearest), members(farthest)


def random_partners(
    key: jax.Array, logits: jax.Array, labels: jax.Array
) -> tuple[Partners, Partners]:
    """Return two random partners of the step's other half, each half in two random orders."""
    easy, hard = _halves(jnp.arange(logits.shape[0]))

    def draw(key: jax.Array, number: int, others: jax.Array) -> Sequence[jax.Array]:
        orders = [jax.random.permutation(k, others) for k in jax.random.split(key)]
        return [jnp.resize(order, (number,)) for order in orders]  # of an odd batch, one twice

    easy_key, hard_key = jax.random.split(key)
    first, second = _join_halves(
        draw(easy_key, easy.shape[0], hard), draw(hard_key, hard.shape[0], easy)
    )
    return Partners(logits[first], labels[first]), Partners(logits[second], labels[second])


def saliency_of(
    kind: str, apply: Apply, params: Params, outputs: Outputs, batch: Batch
) -> jax.Array:
    """Return the absolute slope of each example's cross entropy `[batch, width]`.

    Args:
      kind: `'logits'`, `'features'` or `'embeddings'`: what to differentiate with respect to.
      apply: Network.
      params: Its parameters.
      outputs: Outputs of the network for the batch.
      batch: Examples.
    """
    if kind == "logits":
        return augment.saliency(outputs.logits, batch.labels)

    def loss_of_features(features: jax.Array, label: jax.Array) -> jax.Array:
        return losses.cross_entropy(apply.head(params, features[None]), label[None])[0]

    def loss_of_embeddings(embeddings: jax.Array, rest: tuple[jax.Array, Inputs]) -> jax.Array:
        label, inputs = rest
        inputs = {name: array[None] for name, array in inputs.items()}
        features, _ = apply.features(params, embeddings[None], inputs)
        return loss_of_features(features[0], label)

    if kind == "features":
        slope = augment.gradient_saliency(loss_of_features, outputs.features, batch.labels)
    else:
        rest = batch.labels, batch.inputs
        slope = augment.gradient_saliency(loss_of_embeddings, outputs.embeddings, rest)
        if "mask" in batch.inputs:  # positions of different texts mean nothing to each other
            slope = jnp.sum(jnp.abs(slope), axis=-2)
    return jnp.abs(slope).reshape(slope.shape[0], -1)


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the easy and the hard rows of a step; of an odd number one more is easy."""
    number = (x.shape[0] + 1) // 2
    return x[:number], x[number:]


def _saliency_scale(num_rows: int, clamp: float) -> int:
    """Return what saliencies are divided by: a clamp is meant for slopes of the mean over a half."""
    return num_rows if clamp else 1


def _join_halves(
    rows_of_easy: Sequence[jax.Array], rows_of_hard: Sequence[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Return the rows of the nearest and of the farthest `[batch]`, given those of each half."""
    nearest, farthest = (
        jnp.concatenate(rows) for rows in zip(rows_of_easy, rows_of_hard, strict=True)
    )
    return nearest, farthest
