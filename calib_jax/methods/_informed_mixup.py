"""Mixup informed by training dynamics and saliency: AUM-guided mixup, Sim-MixUp and EA-MixUp."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import dynamics, targets
from calib_jax._hints import check_choice
from calib_jax.methods._base import (
    Apply,
    Aux,
    Batch,
    Evaluator,
    Info,
    Method,
    Objective,
    Params,
    State,
)
from calib_jax.methods._dynamics_recorder import latest
from calib_jax.methods._objectives import as_objective
from calib_jax.methods._partner_search import Bank, Outputs, Partners, PartnerSearch
from calib_jax.methods._recipe import Groups, Phase, Recipe, dynamics_phase
from calib_jax.methods._supervised import batch_loss, supervised


class InformedMixupState(NamedTuple):
    """State of informed mixup.

    Attributes:
      objective: State of the objective.
      stored: Logits that the recording phase left `[n, num_classes]`, with `anchors='stored'`.
      bank: All training examples, with `partners='bank'`.
    """

    objective: State
    stored: jax.Array | None = None
    bank: Bank | None = None


def informed_mixup(
    categorize: str = "aum",
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
    """Return training on examples and on their mixtures with the other category's most and least similar.

    A step has easy and hard examples, half of a batch each. Both pass the network once, the saliency of
    each example is compared with that of all in the other half, and the loss is

        (1 - similar - dissimilar) L(z, y) + similar L(z', y') + dissimilar L(z'', y'')

    with `z' = lam z + (1 - lam) z_nearest`, `z'' = lam z + (1 - lam) z_farthest`,
    `lam ~ Beta(alpha, alpha)`, and labels mixed alike. Features are mixed as logits: the last layer is an
    affine map, for which both are the same (with dropout right before it, mixing features each with its
    own units dropped).

    Among candidates that are equally similar, each example takes one at random, for the nearest and for
    the farthest independently. With two classes the saliency of logits has one direction only, so that
    all candidates are: choose `saliency='features'` there.

    Paper: AUM above the median or not; here: equal halves, ties by position. Paper: stored saliency
    (its published code), or current (its text); here: `anchors`. Paper: one batch size for all methods
    (its text), or a whole batch of each half in a step, and half as many updates in an epoch (its
    published code); here: `batch_split`. Paper: cosine (its text), or clamped (its published code), by
    which the lengths of saliencies count where examples are confident; here: `clamp`.

    Args:
      categorize: Score that tells easy from hard examples: `'aum'`, the area under the margin;
        `'data_map'`, the mean confidence in the gold label; `'random'`, random numbers.
      share: Share of all examples in each category. Below one half, hard are those with the lowest AUM,
        or of a data map those with the largest variability, and the rest is left out.
      alpha: Parameter of the Beta distribution.
      similar: Weight of mixtures with the nearest.
      dissimilar: Weight of mixtures with the farthest.
      smoothing: Smoothing of the labels that are mixed; the examples' plain loss has hard labels.
      partners: `'batch'`, from the step's other half; `'bank'`, from the whole other category, with
        the logits of the last time each was seen, which receive no gradient; `'random'`, two
        of the step's other half at random.
      saliency: Variable that the cross entropy is differentiated by: `'logits'` (in closed form),
        `'features'` or `'embeddings'` (of text, summed over the tokens: a second pass through the
        network).
      anchors: Saliency with which an example looks for partners: its `'current'` one, or the one
        `'stored'` by the recording phase.
      lam: One mixing weight per `'step'`, or one per `'example'`.
      clamp: Least product of two saliencies' lengths that their similarity is divided by, the slopes
        being those of the mean over a half of the step; 0 for the cosine, 1e-6 as in the published code.
      batch_split: `'halves'`: a step has one batch, half of it easy (with an odd batch size one more of
        these than of the hard), and an epoch of halves as many updates as ordinary training; `'each'`:
        a step has a batch of each.
      objective: Loss L, which must take soft labels.

    References:
      Park and Caragea (2022), arXiv:2203.07559 (AUM and saliency).

    >>> [phase.name for phase in methods.informed_mixup().phases]
    ['records', 'train']
    """
    check_choice("categorize", categorize, ("aum", "data_map", "random"))
    check_choice("lam", lam, ("step", "example"))
    check_choice("batch_split", batch_split, ("halves", "each"))
    if min(similar, dissimilar) < 0 or similar + dissimilar > 1:
        raise ValueError(f"similar={similar}, dissimilar={dissimilar}: expected shares of 1")
    if not 0 < share <= 0.5:
        raise ValueError(f"share={share}: expected more than 0 and at most 0.5")
    search = PartnerSearch(partners, saliency, anchors, smoothing, clamp)
    inner = as_objective(objective)
    plain = supervised(inner)

    def categories(info: Info) -> tuple[np.ndarray, np.ndarray]:
        return split_categories(info, categorize, share)

    def init(info: Info) -> InformedMixupState:
        stored = bank = None
        if anchors == "stored":
            stored = jnp.asarray(info.artifact("logits"))
        if partners == "bank":
            easy, hard = categories(info)
            arrays = info.artifact("logits"), info.artifact("labels"), easy, hard
            bank = Bank(*map(jnp.asarray, arrays))
        return InformedMixupState(inner.init(info), stored, bank)

    def loss(
        apply: Apply, params: Params, state: InformedMixupState, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        embed_key, features_key, head_key, lam_key, search_key = jax.random.split(key, 5)
        embeddings = apply.embed(params, batch.inputs, embed_key)
        features, model_state = apply.features(params, embeddings, batch.inputs, features_key)
        logits = apply.head(params, features, head_key)
        labels = targets.smooth(batch.labels, logits.shape[-1], smoothing, "others")
        outputs = Outputs(embeddings, features, logits)
        nearest, farthest = search.find(
            search_key, apply, params, batch, outputs, labels, state.stored, state.bank
        )
        shape = () if lam == "step" else batch.labels.shape
        ratio = jax.random.beta(lam_key, alpha, alpha, shape)

        def mean_loss(z: jax.Array, y: jax.Array) -> jax.Array:
            return batch_loss(inner, z, y, state.objective, batch.weights)

        def mixed_loss(partner: Partners) -> jax.Array:
            mixed_logits = targets.mix(logits, partner.logits, ratio)
            return mean_loss(mixed_logits, targets.mix(labels, partner.labels, ratio))

        value = (1 - similar - dissimilar) * mean_loss(logits, batch.labels)
        if similar:
            value += similar * mixed_loss(nearest)
        if dissimilar:
            value += dissimilar * mixed_loss(farthest)
        return value, Aux(logits, model_state)

    def after_step(state: InformedMixupState, batch: Batch, aux: Aux) -> InformedMixupState:
        if state.bank is None:
            return state
        bank = state.bank._replace(logits=latest(state.bank.logits, batch, aux.logits))
        return state._replace(bank=bank)

    def after_epoch(
        state: InformedMixupState, evaluator: Evaluator, key: jax.Array
    ) -> InformedMixupState:
        return state._replace(objective=plain.after_epoch(state.objective, evaluator, key))

    def report(
        state: InformedMixupState, logits: jax.Array, labels: jax.Array
    ) -> dict[str, jax.Array]:
        return plain.report(state.objective, logits, labels)

    method = Method(init, loss, after_step, after_epoch, report)
    train = Phase("train", method, groups=Groups(categories, batch_split))
    if categorize == "random" and not search.needs_logits:
        return Recipe((train,))
    return Recipe((dynamics_phase(), train._replace(needs=("dynamics",))))


def split_categories(info: Info, categorize: str, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the easy and of the hard examples; see `informed_mixup`."""
    if categorize == "random":
        # Not the random numbers of an epoch's order.
        score = np.random.default_rng([info.seed, 0, 1]).random(info.num_examples)
    else:
        score = np.asarray(info.artifact("aum" if categorize == "aum" else "confidence"))
    if share == 0.5:
        with jax.ensure_compile_time_eval():  # also where a trainer traces `init`
            is_easy = np.asarray(dynamics.median_split(score))
        return np.flatnonzero(is_easy), np.flatnonzero(~is_easy)
    doubt = -score
    if categorize == "data_map":
        doubt = np.asarray(info.artifact("variability"))
    number = max(1, round(share * info.num_examples))
    # A stable order, in which those never seen (NaN) are last.
    easy = np.argsort(-score, kind="stable")[:number]
    hard = np.argsort(-doubt, kind="stable")[:number]
    return np.sort(easy), np.sort(hard)
