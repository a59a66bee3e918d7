"""AdaFocal: focal loss whose gamma per probability bin follows the validation set's calibration."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax.losses._focal import focal_by_probability, look_up
from calib_jax.metrics import bin_stats


class AdaFocalState(NamedTuple):
    """What AdaFocal carries from one update to the next; belongs in the checkpoint.

    Attributes:
      edges: inner edges of the probability bins, ascending, `[num_bins - 1]`.
      gamma: focal gamma of each bin `[num_bins]`; negative means inverse focal.
    """

    edges: jax.Array
    gamma: jax.Array


def adafocal_init(num_bins: int = 15, gamma: float = 1.0) -> AdaFocalState:
    """Bins of equal width, all with the same gamma (algorithm 1, lines 2 and 3)."""
    if num_bins < 1:
        raise ValueError(f"num_bins={num_bins}: expected at least 1")
    edges = jnp.arange(1, num_bins, dtype=jnp.float32) / num_bins
    return AdaFocalState(edges=edges, gamma=jnp.full(num_bins, gamma, jnp.float32))


def adafocal(logits: ArrayLike, labels: ArrayLike, state: AdaFocalState) -> jax.Array:
    """AdaFocal loss (eq. 5): focal with the gamma of the bin in which the true class's p falls.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]` (then `sum_k y_k L(p_k)`).
      state: from `adafocal_init` or `adafocal_update`; a constant for the gradient.

    Returns:
      `[batch]`
    """
    return focal_by_probability(logits, labels, lambda p: look_up(state.edges, state.gamma, p))


def adafocal_update(
    state: AdaFocalState,
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    lam: float = 1.0,
    switch: float = 0.2,
    gamma_max: float = 20.0,
    gamma_min: float = -2.0,
    weights: ArrayLike | None = None,
) -> AdaFocalState:
    """One gamma update from the validation set (algorithm 1, lines 14 to 23).

    Bins are re-made with equal validation mass; gamma is carried by bin index. With a bin's mean
    confidence C, accuracy A and `E = C - A`,

        gamma >= 0:  gamma <- min(gamma_max, gamma exp( lam E)),  and -switch if |gamma| < switch
        gamma <  0:  gamma <- max(gamma_min, gamma exp(-lam E)),  and +switch if |gamma| < switch

    so over-confidence raises gamma, under-confidence lowers it, and a gamma that gets small changes
    sides between focal and inverse focal. A bin with no example keeps its gamma (E is 0), unless it
    was smaller than `switch` from the start.

    Paper: bins of validation confidences looked up with training probabilities, sides of the
    intervals left open; here: the edge lies half-way between the neighbouring bins' examples, so
    that statistics and look-up agree about every value.

    All bins are updated in one vectorised pass, and a trajectory of updates is a `lax.scan`:

        jax.lax.scan(lambda s, v: (adafocal_update(s, *v), s.gamma), state, (confidences, corrects))

    Args:
      state: the present state.
      confidence: top-label confidence of the validation examples `[n]`.
      correct: 1 where the prediction is right `[n]`.
      lam: how fast gamma moves.
      switch: S_th, the size of gamma at which focal and inverse focal change places.
      gamma_max: upper bound of focal gammas.
      gamma_min: lower bound of inverse-focal gammas (negative).
      weights: `[n]`, 0 for padding.

    Returns:
      The new state.
    """
    bins = bin_stats(
        confidence, correct, num_bins=state.gamma.shape[0], scheme="mass", weights=weights
    )
    growth = jnp.clip(lam * bins.gap, -80.0, 80.0)  # exp stays finite, also for gamma = 0
    gamma = jnp.where(
        state.gamma >= 0,
        _switched(jnp.minimum(gamma_max, state.gamma * jnp.exp(growth)), switch, -switch),
        _switched(jnp.maximum(gamma_min, state.gamma * jnp.exp(-growth)), switch, switch),
    )
    return AdaFocalState(edges=bins.edges[1:-1], gamma=gamma)


def _switched(gamma: jax.Array, switch: float, other_side: float) -> jax.Array:
    return jnp.where(jnp.abs(gamma) < switch, other_side, gamma)
