"""Conformal prediction: sets of classes that hold the label with a chosen probability."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_hard_labels,
    as_logits,
    as_weights,
    check_labels,
    check_probs,
    indicator,
    is_valid,
    take_label,
)
from calib_jax._hints import check_choice
from calib_jax.metrics._sorting import argsort_floats
from calib_jax.posthoc._common import check_weights, has_weight, nan_unless

_SCORES = ("lac", "aps", "raps")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ConformalSets:
    """Sets of the classes whose nonconformity score is at most a threshold.

    If the examples it is called with are exchangeable with those it was fitted to, the label is in the
    set with probability at least `1 - alpha`, and at most `1 - alpha + 1 / (n + 1)` where no scores tie:
    over draws of both, not for each input. That holds for any probabilities, good or bad, **as long as
    nothing was fitted to the same rows**: neither the network nor the calibrator that the probabilities
    come from. Split the held-out rows: one part for the calibrator, the other for the sets.

    Attributes:
      threshold: scalar, or `[num_classes]` if class-conditional; infinite where there were too few
        examples to guarantee anything but the set of all classes.
      score: `'lac'`, `'aps'` or `'raps'`.
      lam, k_reg: of `'raps'`.
      num_classes: number of classes.

    >>> probs = jnp.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    >>> sets = posthoc.ConformalSets.fit(probs, [0, 0, 1, 1], alpha=0.4)
    >>> round(float(sets.threshold), 3), sets([[0.95, 0.05], [0.55, 0.45]]).tolist()
    (0.4, [[True, False], [False, False]])
    """

    threshold: jax.Array
    score: str = dataclasses.field(default="lac", metadata={"static": True})
    lam: float = dataclasses.field(default=0.01, metadata={"static": True})
    k_reg: int = dataclasses.field(default=5, metadata={"static": True})
    num_classes: int | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def fit(
        cls,
        probs: ArrayLike,
        labels: ArrayLike,
        *,
        alpha: float,
        score: str = "lac",
        class_conditional: bool = False,
        lam: float = 0.01,
        k_reg: int = 5,
        key: jax.Array | None = None,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> "ConformalSets":
        """Take the `ceil((n + 1) (1 - alpha))`-th smallest score of the labels as the threshold.

        The score of a class, the higher the stranger:

        - `'lac'`: 1 minus its probability. The smallest sets on average; they may be empty.
        - `'aps'`: the probability of all likelier classes and a share u of its own. Larger sets for
          harder inputs.
        - `'raps'`: the same plus `lam` for each class that is likelier, from the `k_reg`-th on. Without
          the long tail of unlikely classes.

        Args:
          probs: `[n, num_classes]`, of rows that nothing was fitted to.
          labels: integers `[n]`.
          alpha: how often the label may be missing, in (0, 1).
          score: `'lac'`, `'aps'` or `'raps'`.
          class_conditional: whether each class has a threshold of the examples it labels: the label is
            then in the set with probability `1 - alpha` in every class.
          lam: penalty of a class in `'raps'`.
          k_reg: number of classes without a penalty in `'raps'`.
          key: random key to draw the share u in [0, 1] of each row, as in the papers; `None` takes u =
            1/2, so that the same input always has the same set. Coverage is the same either way, if the
            result is called in the same way.
          weights: `[n]`, 0 for padding; a whole weight counts as that many examples.
          check: whether logits in place of probabilities are refused; inside jit they never are.

        References:
          Sadinle et al., 2019, arXiv:1609.00451 (LAC); Romano et al., 2020, arXiv:2006.02544 (APS);
          Angelopoulos et al., 2021, arXiv:2009.14193 (RAPS); Ding et al., 2023, arXiv:2306.09335
          (class-conditional).
        """
        check_choice("score", score, _SCORES)
        if not 0 < alpha < 1:
            raise ValueError(f"alpha={alpha}: expected a value between 0 and 1")
        if lam < 0 or k_reg < 0:
            raise ValueError(f"lam={lam}, k_reg={k_reg}: expected neither to be negative")
        probs = as_logits(probs)
        if probs.ndim != 2:
            raise ValueError(f"probs: expected [n, num_classes], got shape {probs.shape}")
        labels = as_hard_labels(labels, probs)
        weights = as_weights(weights, labels.shape, probs.dtype)
        check_weights(weights)
        check_labels(labels, probs, weights)
        if check:
            check_probs(probs, weights)
        weights = jnp.ones(labels.shape, probs.dtype) if weights is None else weights
        counted = (weights != 0)[:, None]
        scores = _scores(jnp.where(counted, probs, 0.0), key, score, lam, k_reg)
        threshold = _threshold(scores, labels, weights, alpha, class_conditional)
        return cls(threshold, score, lam, k_reg, probs.shape[1])

    def __call__(
        self, probs: ArrayLike, *, key: jax.Array | None = None, check: bool = True
    ) -> jax.Array:
        """Return which classes are in the set of each row, bool `[n, num_classes]`.

        Args:
          probs: `[n, num_classes]`.
          key: random key, another one than in `fit`, if there was one.
          check: whether logits in place of probabilities are refused; inside jit they never are.
        """
        probs = as_logits(probs)
        if self.num_classes not in (None, probs.shape[-1]):
            raise ValueError(
                f"probs: {probs.shape[-1]} classes; these ConformalSets were fitted to "
                f"{self.num_classes}"
            )
        if check:
            check_probs(probs)
        scores = _scores(probs, key, self.score, self.lam, self.k_reg)
        threshold = jnp.asarray(self.threshold, scores.dtype)
        return scores <= jnp.broadcast_to(threshold, scores.shape)


@partial(jax.jit, static_argnames=("score", "k_reg"))
def _scores(
    probs: jax.Array, key: jax.Array | None, score: str, lam: ArrayLike, k_reg: int
) -> jax.Array:
    """Return the nonconformity score of every class `[n, num_classes]`."""
    if score == "lac":
        return 1 - probs
    # Of classes that are equally likely, the first counts as likelier.
    order = jnp.argsort(-probs, axis=-1)
    rank = jnp.argsort(order, axis=-1)
    descending = jnp.take_along_axis(probs, order, axis=-1)
    likelier = jnp.take_along_axis(jnp.cumsum(descending, axis=-1) - descending, rank, axis=-1)
    if key is None:
        share = jnp.full((*probs.shape[:-1], 1), 0.5, probs.dtype)
    else:
        share = jax.random.uniform(key, (*probs.shape[:-1], 1), probs.dtype)
    scores = likelier + share * probs
    if score == "aps":
        return scores
    beyond = jnp.maximum(rank + 1 - k_reg, 0).astype(probs.dtype)
    return scores + jnp.asarray(lam, probs.dtype) * beyond


@partial(jax.jit, static_argnames="class_conditional")
def _threshold(
    scores: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
    alpha: ArrayLike,
    class_conditional: bool,
) -> jax.Array:
    """Return the finite-sample quantile of the labels' scores: of all, or of each class."""
    label_scores = take_label(scores, labels)
    counted = weights != 0
    usable = is_valid(labels, scores.shape[-1]) & ~jnp.isnan(label_scores)
    order = argsort_floats(label_scores)
    member = (
        indicator(labels, scores.shape[-1]) if class_conditional else jnp.ones_like(labels)[:, None]
    )
    weight = jnp.where(member.astype(bool), weights[:, None], 0.0)[order]
    # The rank to reach is ceil((n + 1) (1 - alpha)); a product such as 0.9 * 10 may be 9 and a bit.
    count = jnp.cumsum(weight, axis=0)
    needed = (count[-1] + 1) * (1 - jnp.asarray(alpha, weight.dtype)) * (1 - 1e-6)
    reached = (count >= needed[None]) & (weight > 0)
    ascending = jnp.broadcast_to(label_scores[order][:, None], reached.shape)
    threshold = jnp.min(jnp.where(reached, ascending, jnp.inf), axis=0)
    valid = jnp.all(~counted | usable) & has_weight(weights, counted)
    return nan_unless(valid, threshold if class_conditional else threshold[0])
