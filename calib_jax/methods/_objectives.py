"""Objectives by name: every loss of the AdaFocal paper's comparison, and newer ones.

Label smoothing, mixup and plain training all take one of them.
"""

from collections.abc import Callable

import jax

from calib_jax import losses, targets
from calib_jax._hints import check_choice
from calib_jax.methods._adafocal import adafocal, calfocal
from calib_jax.methods._base import Objective, State


def cross_entropy() -> Objective:
    """Return `losses.cross_entropy` as an objective."""
    return Objective(lambda logits, labels, _: losses.cross_entropy(logits, labels))


def label_smoothing(
    smoothing: float = 0.05, kind: str = "others", objective: Objective | str = "cross_entropy"
) -> Objective:
    """Return another objective on smoothed labels.

    Args:
      smoothing: Amount of smoothing, 0 to 1.
      kind: `'others'` or `'all'`, the classes that share it; see `targets.smooth`.
      objective: Objective that takes soft labels.
    """
    inner = as_objective(objective)

    def loss(logits: jax.Array, labels: jax.Array, state: State) -> jax.Array:
        return inner.loss(logits, targets.smooth(labels, logits.shape[-1], smoothing, kind), state)

    return inner._replace(loss=loss)


def brier() -> Objective:
    """Return `losses.brier` as an objective."""
    return Objective(lambda logits, labels, _: losses.brier(logits, labels))


def mmce(weight: float = 2.0, width: float = 0.4, double_normalized: bool = False) -> Objective:
    """Return cross entropy + `weight` x `losses.mmce_weighted` of the batch.

    Args:
      weight: Weight of MMCE.
      width: Width of its kernel.
      double_normalized: Whether to divide twice as the published codes do.
    """

    def penalty(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        return weight * losses.mmce_weighted(
            logits, labels, width=width, double_normalized=double_normalized, weights=weights
        )

    return cross_entropy()._replace(penalty=penalty)


def focal(gamma: float = 3.0) -> Objective:
    """Return `losses.focal` as an objective.

    Args:
      gamma: Exponent of `1 - p`.
    """
    return Objective(lambda logits, labels, _: losses.focal(logits, labels, gamma))


def flsd53() -> Objective:
    """Return `losses.flsd53` as an objective."""
    return Objective(lambda logits, labels, _: losses.flsd53(logits, labels))


def dual_focal(gamma: float = 5.0) -> Objective:
    """Return `losses.dual_focal` as an objective.

    Args:
      gamma: Exponent of `1 - p_y + p_j`.
    """
    return Objective(lambda logits, labels, _: losses.dual_focal(logits, labels, gamma))


def mdca(weight: float = 1.0) -> Objective:
    """Return cross entropy + `weight` x `losses.mdca` of the batch.

    Args:
      weight: Weight of MDCA.
    """

    def penalty(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        return weight * losses.mdca(logits, labels, weights=weights)

    return cross_entropy()._replace(penalty=penalty)


def mbls(weight: float = 0.1, margin: float = 10.0) -> Objective:
    """Return cross entropy + `weight` x `losses.mbls` of the batch.

    Args:
      weight: Weight of the penalty.
      margin: Largest logit distance without a penalty.
    """

    def penalty(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
        return weight * losses.mbls(logits, labels, margin=margin, weights=weights)

    return cross_entropy()._replace(penalty=penalty)


def bsce_gra(norm: float = 2.0) -> Objective:
    """Return `losses.bsce_gra` as an objective.

    Args:
      norm: Power of the differences, 2 for the Brier score.
    """
    return Objective(lambda logits, labels, _: losses.bsce_gra(logits, labels, norm=norm))


def logit_norm(tau: float = 0.04) -> Objective:
    """Return `losses.logit_norm` as an objective.

    Args:
      tau: Temperature of the normalized logits.
    """
    return Objective(lambda logits, labels, _: losses.logit_norm(logits, labels, tau=tau))


_PAPER = (cross_entropy, label_smoothing, brier, mmce, focal, flsd53, calfocal, adafocal)
_NEWER = (dual_focal, mdca, mbls, bsce_gra, logit_norm)
OBJECTIVES: dict[str, Callable[..., Objective]] = {f.__name__: f for f in (*_PAPER, *_NEWER)}


def as_objective(objective: Objective | str) -> Objective:
    """Return an objective as it is, or one by name with its default options."""
    if isinstance(objective, Objective):
        return objective
    check_choice("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective]()
