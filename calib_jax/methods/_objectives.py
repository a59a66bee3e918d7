"""What is minimised, given logits and labels: every loss of the AdaFocal paper's comparison, and more.

An objective is the exchangeable part of a method: label smoothing, mixup and plain training all take one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calib_jax import losses, metrics, targets
from calib_jax._hints import expected_one_of
from calib_jax.methods._base import Info, State


class Objective(NamedTuple):
    """A loss with the state that steers it.

    Attributes:
      loss: `(logits, labels, state) -> [batch]`; labels are integers or soft.
      penalty: `(logits, labels, weights) -> scalar`, which couples the examples of a batch.
      init: `(info) -> state`
      update: `(state, logits, labels) -> state` from the validation set.
      report: `(state, logits, labels) -> {name: array}` for the log.
    """

    loss: Callable[[jax.Array, jax.Array, State], jax.Array]
    penalty: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None
    init: Callable[[Info], State] = lambda info: ()
    update: Callable[[State, jax.Array, jax.Array], State] = lambda state, *_: state
    report: Callable[[State, jax.Array, jax.Array], dict[str, jax.Array]] = lambda *_: {}


def cross_entropy() -> Objective:
    return Objective(lambda logits, labels, _: losses.cross_entropy(logits, labels))


def label_smoothing(
    smoothing: float = 0.05, kind: str = "others", objective: "Objective | str" = "cross_entropy"
) -> Objective:
    """Any other objective, on smoothed labels."""
    inner = as_objective(objective)

    def loss(logits: jax.Array, labels: jax.Array, state: State) -> jax.Array:
        return inner.loss(logits, targets.smooth(labels, logits.shape[-1], smoothing, kind), state)

    return inner._replace(loss=loss)


def brier() -> Objective:
    return Objective(lambda logits, labels, _: losses.brier(logits, labels))


def mmce(weight: float = 2.0, width: float = 0.4, double_normalized: bool = False) -> Objective:
    """Cross entropy + `weight` x weighted MMCE of the batch."""

    def penalty(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        return weight * losses.mmce_weighted(
            logits, labels, width=width, double_normalized=double_normalized, weights=weights
        )

    return cross_entropy()._replace(penalty=penalty)


def focal(gamma: float = 3.0) -> Objective:
    return Objective(lambda logits, labels, _: losses.focal(logits, labels, gamma))


def flsd53() -> Objective:
    return Objective(lambda logits, labels, _: losses.flsd53(logits, labels))


def calfocal(lam: float = 10.0, per_sample: bool = False, num_bins: int = 15) -> Objective:
    """CalFocal of eq. 2 (`per_sample`) or eq. 3, with bins of the latest validation pass."""

    def init(info: Info) -> metrics.BinStats:
        nothing = jnp.zeros(num_bins)
        return metrics.BinStats(nothing, nothing, nothing, jnp.linspace(0.0, 1.0, num_bins + 1))

    def update(_: State, logits: jax.Array, labels: jax.Array) -> metrics.BinStats:
        return _mass_bins(logits, labels, num_bins)

    return Objective(
        lambda logits, labels, bins: losses.calfocal(
            logits, labels, bins, lam=lam, per_sample=per_sample
        ),
        init=init,
        update=update,
        report=lambda bins, *_: {"gap": bins.gap, "edges": bins.edges[1:-1]},
    )


def adafocal(
    num_bins: int = 15,
    gamma: float = 1.0,
    lam: float = 1.0,
    switch: float = 0.2,
    gamma_max: float = 20.0,
    gamma_min: float = -2.0,
) -> Objective:
    """AdaFocal: after each validation pass every bin's gamma moves with the bin's calibration gap."""

    def update(state: State, logits: jax.Array, labels: jax.Array) -> losses.AdaFocalState:
        confidence, correct = metrics.top_label(logits, labels)
        return losses.adafocal_update(
            state,
            confidence,
            correct,
            lam=lam,
            switch=switch,
            gamma_max=gamma_max,
            gamma_min=gamma_min,
        )

    def report(state: State, logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
        gap = _mass_bins(logits, labels, num_bins).gap
        return {"gamma": state.gamma, "edges": state.edges, "gap": gap}

    return Objective(
        losses.adafocal,
        init=lambda info: losses.adafocal_init(num_bins, gamma),
        update=update,
        report=report,
    )


def dual_focal(gamma: float = 5.0) -> Objective:
    return Objective(lambda logits, labels, _: losses.dual_focal(logits, labels, gamma))


def mdca(weight: float = 1.0) -> Objective:
    """Cross entropy + `weight` x MDCA of the batch."""

    def penalty(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        return weight * losses.mdca(logits, labels, weights=weights)

    return cross_entropy()._replace(penalty=penalty)


def mbls(weight: float = 0.1, margin: float = 10.0) -> Objective:
    """Cross entropy + `weight` x what logit distances exceed `margin` by."""

    def penalty(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        return weight * losses.mbls(logits, labels, margin=margin, weights=weights)

    return cross_entropy()._replace(penalty=penalty)


def bsce_gra(norm: float = 2.0) -> Objective:
    return Objective(lambda logits, labels, _: losses.bsce_gra(logits, labels, norm=norm))


def logit_norm(tau: float = 0.04) -> Objective:
    return Objective(lambda logits, labels, _: losses.logit_norm(logits, labels, tau=tau))


_PAPER = (cross_entropy, label_smoothing, brier, mmce, focal, flsd53, calfocal, adafocal)
_BEYOND = (dual_focal, mdca, mbls, bsce_gra, logit_norm)
OBJECTIVES: dict[str, Callable[..., Objective]] = {f.__name__: f for f in (*_PAPER, *_BEYOND)}


def as_objective(objective: Objective | str) -> Objective:
    """An objective, or one by name with its defaults."""
    if not isinstance(objective, str):
        return objective
    if objective not in OBJECTIVES:
        raise ValueError(f"objective={objective!r}: {expected_one_of(objective, OBJECTIVES)}")
    return OBJECTIVES[objective]()


def _mass_bins(logits: jax.Array, labels: jax.Array, num_bins: int) -> Any:
    confidence, correct = metrics.top_label(logits, labels)
    return metrics.bin_stats(confidence, correct, num_bins=num_bins, scheme="mass")
