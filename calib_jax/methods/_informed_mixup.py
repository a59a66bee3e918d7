"""Mixup informed by training dynamics and saliency: AUM-guided mixup, Sim-MixUp and EA-MixUp."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import augment, dynamics, losses, targets
from calib_jax.methods._base import Apply, Aux, Batch, Evaluator, Info, Method, State
from calib_jax.methods._dynamics_recorder import latest
from calib_jax.methods._objectives import Objective, as_objective
from calib_jax.methods._recipe import Groups, Phase, Recipe, dynamics_phase
from calib_jax.methods._supervised import batch_loss, supervised

_CHOICES = {
    "categorise": ("aum", "data_map", "random"),
    "partners": ("batch", "bank", "random"),
    "saliency": ("logits", "features", "embeddings"),
    "anchors": ("current", "stored"),
    "lam": ("step", "example"),
    "batch_split": ("halves", "each"),
}


class Bank(NamedTuple):
    """Partners from the whole of the other category, as they were when last met.

    Attributes:
      logits: of every training example `[n, num_classes]`.
      labels: of every training example `[n]`.
      easy, hard: positions of the two categories.
    """

    logits: jax.Array
    labels: jax.Array
    easy: jax.Array
    hard: jax.Array


class Informed(NamedTuple):
    """State of informed mixup.

    Attributes:
      objective: its objective's state.
      stored: logits that the recording phase left `[n, num_classes]`; () where not needed.
      bank: () where partners come from the batch.
    """

    objective: State
    stored: Any = ()
    bank: Any = ()


def informed_mixup(
    categorise: str = "aum",
    share: float = 0.5,
    alpha: float = 0.4,
    similar: float = 0.1,
    dissimilar: float = 0.1,
    smoothing: float = 0.0,
    partners: str = "batch",
    saliency: str = "logits",
    anchors: str = "current",
    lam: str = "step",
    clamp: float = 0.0,
    batch_split: str = "halves",
    objective: Objective | str = "cross_entropy",
) -> Recipe:
    """Trains on examples and on their mixtures with the most and the least similar of the other category.

    A step has easy and hard examples, half of a batch each. Both go through the network once; the
    saliency of each example is compared with that of all in the other half; and the loss is

        (1 - similar - dissimilar) L(z, y) + similar L(z', y') + dissimilar L(z'', y'')

    with `z' = lam z + (1 - lam) z_near`, `lam ~ Beta(alpha, alpha)`, and labels mixed alike. Features
    are mixed as logits: the last layer is an affine map, for which both are the same (with dropout right
    before it, mixing features each with its own units dropped).

    Among candidates that are equally similar, each example takes one at random, for the nearest and for
    the farthest independently. With two classes the saliency of logits has one direction only, so that
    all candidates are: choose `saliency='features'` there.

    Paper: AUM above the median or not; here: equal halves, ties by position. Paper: stored saliency
    (its published code), or current (its text); here: `anchors`. Paper: one batch size for all methods
    (its text), or a whole batch of each half in a step, and half as many updates in an epoch (its
    published code); here: `batch_split`. Paper: cosine (its text), or clamped (its published code), by
    which the lengths of saliencies count where examples are confident; here: `clamp`.

    Args:
      categorise: what tells easy from hard: `'aum'`, the area under the margin; `'data_map'`, the mean
        confidence in the gold label; `'random'`, nothing.
      share: of all examples in each category. Below one half, hard are those with the lowest AUM, or
        of a data map those with the largest variability, and the rest is left out.
      alpha: of the Beta distribution.
      similar: weight of mixtures with the nearest.
      dissimilar: weight of mixtures with the farthest.
      smoothing: of the labels that are mixed; those of the examples themselves are not smoothed.
      partners: `'batch'`, from the step's other half; `'bank'`, from the whole other category, with
        the logits of the last time each was seen, which take no part in the gradient; `'random'`, two
        of the step's other half at random.
      saliency: what the cross entropy is differentiated by: `'logits'` (in closed form), `'features'`
        or `'embeddings'` (of text, summed over the tokens: a second pass through the network).
      anchors: whether an example looks for partners with its `'current'` saliency, or with the one
        `'stored'` by the recording phase.
      lam: one per `'step'`, or one per `'example'`.
      clamp: least product of two saliencies' lengths that their similarity is divided by, the slopes
        being those of the mean over a half of the step; 0 for the cosine, 1e-6 as in the published code.
      batch_split: `'halves'`: a step has one batch, half of it easy (with an odd batch size one more of
        these than of the hard), and an epoch of halves as many updates as ordinary training; `'each'`:
        a step has a batch of each.
      objective: the loss L; must take soft labels.
    """
    given = {"categorise": categorise, "partners": partners, "saliency": saliency}
    given |= {"anchors": anchors, "lam": lam, "batch_split": batch_split}
    for key, value in given.items():
        if value not in _CHOICES[key]:
            raise ValueError(f"{key}={value!r}: expected one of {', '.join(_CHOICES[key])}")
    if min(similar, dissimilar) < 0 or similar + dissimilar > 1:
        raise ValueError(f"similar={similar}, dissimilar={dissimilar}: expected shares of 1")
    if clamp < 0:
        raise ValueError(f"clamp={clamp}: expected 0 for none, or more")
    if not 0 < share <= 0.5:
        raise ValueError(f"share={share}: expected more than 0 and at most 0.5")
    if saliency != "logits" and (partners == "bank" or anchors == "stored"):
        raise ValueError(
            f"saliency={saliency!r}: expected 'logits' with partners='bank' or anchors='stored', "
            "which remember nothing else"
        )
    inner = as_objective(objective)
    plain = supervised(inner)
    needs_logits = partners == "bank" or anchors == "stored"

    def groups(info: Info) -> Sequence[np.ndarray]:
        return _categories(info, categorise, share)

    def init(info: Info) -> Informed:
        state = Informed(inner.init(info))
        if anchors == "stored":
            state = state._replace(stored=jnp.asarray(info.artifact("logits")))
        if partners == "bank":
            known = (jnp.asarray(info.artifact(key)) for key in ("logits", "labels"))
            state = state._replace(bank=Bank(*known, *map(jnp.asarray, groups(info))))
        return state

    def loss(
        apply: Apply, params: Any, state: Informed, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        embed_key, features_key, head_key, lam_key, pair_key = jax.random.split(key, 5)
        embeddings = apply.embed(params, batch.inputs, embed_key)
        features, model_state = apply.features(params, embeddings, batch.inputs, features_key)
        logits = apply.head(params, features, head_key)
        num_classes = logits.shape[-1]
        labels = targets.smooth(batch.labels, num_classes, smoothing, "others")

        if partners == "random":
            found = _random_pairs(pair_key, logits, labels)
        else:
            fixed = jax.lax.stop_gradient((params, logits, features, embeddings))
            own = _saliency(saliency, apply, *fixed, batch)
            seeking = own
            if anchors == "stored":
                seeking = augment.saliency(state.stored[batch.position], batch.labels)
            if partners == "bank":
                found = _from_bank(pair_key, state.bank, seeking, smoothing, clamp)
            else:
                found = _from_batch(pair_key, seeking, own, batch.weights, logits, labels, clamp)

        shape = () if lam == "step" else logits.shape[:1]
        ratio = jax.random.beta(lam_key, alpha, alpha, shape)
        value = (1 - similar - dissimilar) * batch_loss(
            inner, logits, batch.labels, state.objective, batch.weights
        )
        for weight, (z, y) in zip((similar, dissimilar), found, strict=True):
            if weight:
                value += weight * batch_loss(
                    inner,
                    targets.mix(logits, z, ratio),
                    targets.mix(labels, y, ratio),
                    state.objective,
                    batch.weights,
                )
        return value, Aux(logits, model_state)

    def after_step(state: Informed, batch: Batch, aux: Aux) -> Informed:
        if partners != "bank":
            return state
        bank = state.bank._replace(logits=latest(state.bank.logits, batch, aux.logits))
        return state._replace(bank=bank)

    def after_epoch(state: Informed, evaluator: Evaluator, key: jax.Array) -> Informed:
        return state._replace(objective=plain.after_epoch(state.objective, evaluator, key))

    method = Method(
        init,
        loss,
        after_step,
        after_epoch,
        report=lambda state, *rest: plain.report(state.objective, *rest),
    )
    drawn = Groups(groups, batch_split)
    if categorise == "random" and not needs_logits:
        return Recipe((Phase("train", method, groups=drawn),))
    return Recipe((dynamics_phase(), Phase("train", method, needs=("dynamics",), groups=drawn)))


def _categories(info: Info, categorise: str, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the easy and of the hard examples."""
    n = info.num_examples
    if categorise == "random":
        score = np.random.default_rng([info.seed, 0, 1]).random(n)  # not that of an epoch's order
    else:
        score = np.asarray(info.artifact("aum" if categorise == "aum" else "confidence"))
    if share == 0.5:
        easy = np.asarray(dynamics.median_split(score))
        return np.flatnonzero(easy), np.flatnonzero(~easy)
    doubt = info.artifact("variability") if categorise == "data_map" else -score
    number = max(1, round(share * n))
    # Stable, and never seen (NaN) last.
    easy, hard = (np.argsort(-x, kind="stable")[:number] for x in (score, np.asarray(doubt)))
    return np.sort(easy), np.sort(hard)


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The easy and the hard rows of a step; of an odd number one more is easy."""
    number = -(-x.shape[0] // 2)
    return x[:number], x[number:]


Pairs = list[tuple[jax.Array, jax.Array]]  # logits and labels of the nearest, then of the farthest


def _chosen(rows: Sequence[Sequence[jax.Array]], logits: jax.Array, labels: jax.Array) -> Pairs:
    """Logits and labels by rows: for each half the nearest and the farthest `[half]`."""
    both = (jnp.concatenate(places) for places in zip(*rows, strict=True))
    return [(logits[places], labels[places]) for places in both]


def _from_batch(
    key: jax.Array,
    seeking: jax.Array,
    own: jax.Array,
    weights: jax.Array,
    logits: jax.Array,
    labels: jax.Array,
    clamp: float,
) -> Pairs:
    """The nearest and the farthest of the step's other half; among equals, one at random."""
    anchors, (easy, hard), (easy_ok, hard_ok) = map(_halves, (seeking, own, weights > 0))
    number = easy.shape[0]
    others = ((hard, hard_ok, number), (easy, easy_ok, 0))
    rows = []
    for half, (candidates, valid, first), k in zip(
        anchors, others, jax.random.split(key), strict=True
    ):
        # The slope of a mean is smaller by the number of its rows: what a clamp is meant for.
        scaled = (x / number for x in (half, candidates)) if clamp else (half, candidates)
        found = augment.partners(*scaled, valid=valid, key=k, eps=clamp)
        rows.append([first + places for places in found])
    return _chosen(rows, logits, labels)


def _from_bank(
    key: jax.Array, bank: Bank, seeking: jax.Array, smoothing: float, clamp: float
) -> Pairs:
    """The nearest and the farthest of the whole other category; among equals, one at random."""
    rows = []
    anchors = _halves(seeking)
    number = anchors[0].shape[0]
    for half, members, k in zip(
        anchors, (bank.hard, bank.easy), jax.random.split(key), strict=True
    ):
        candidates = augment.saliency(bank.logits[members], bank.labels[members])
        scaled = (x / number for x in (half, candidates)) if clamp else (half, candidates)
        rows.append([members[i] for i in augment.partners(*scaled, key=k, eps=clamp)])
    return [
        (logits, targets.smooth(labels, logits.shape[-1], smoothing, "others"))
        for logits, labels in _chosen(rows, bank.logits, bank.labels)
    ]


def _random_pairs(key: jax.Array, logits: jax.Array, labels: jax.Array) -> Pairs:
    """Two of the step's other half, each in a random order."""
    easy, hard = _halves(jnp.arange(logits.shape[0]))
    rows = []
    for half, others, k in zip((easy, hard), (hard, easy), jax.random.split(key), strict=True):
        orders = [jax.random.permutation(draw, others) for draw in jax.random.split(k)]
        # An odd one begins again.
        rows.append([order[jnp.arange(len(half)) % len(others)] for order in orders])
    return _chosen(rows, logits, labels)


def _saliency(
    kind: str,
    apply: Apply,
    params: Any,
    logits: jax.Array,
    features: jax.Array,
    embeddings: jax.Array,
    batch: Batch,
) -> jax.Array:
    """Size of the slope of each example's cross entropy `[batch, width]`."""
    if kind == "logits":
        return augment.saliency(logits, batch.labels)

    def of_features(x: jax.Array, label: jax.Array) -> jax.Array:
        return losses.cross_entropy(apply.head(params, x[None]), label[None])[0]

    def of_embeddings(x: jax.Array, rest: tuple[jax.Array, Any]) -> jax.Array:
        label, inputs = jax.tree.map(lambda leaf: leaf[None], rest)
        return of_features(apply.features(params, x[None], inputs)[0][0], label[0])

    if kind == "features":
        slope = augment.gradient_saliency(of_features, features, batch.labels)
    else:
        rest = batch.labels, batch.inputs
        slope = augment.gradient_saliency(of_embeddings, embeddings, rest)
        if "mask" in batch.inputs:  # positions of different texts mean nothing to each other
            slope = jnp.sum(jnp.abs(slope), axis=-2)
    return jnp.abs(slope).reshape(slope.shape[0], -1)
