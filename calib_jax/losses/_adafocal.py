"""AdaFocal: focal loss with a gamma per probability bin, steered by validation calibration."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_floats
from calib_jax.losses._focal import focal_by_probability, look_up
from calib_jax.metrics import bin_stats


class AdaFocalState(NamedTuple):
    """State of AdaFocal from one update to the next; belongs in the checkpoint.

    Attributes:
      edges: Inner edges of the probability bins, ascending, `[num_bins - 1]`.
      gamma: Focal gamma of each bin `[num_bins]`; negative means inverse focal.
    """

    edges: jax.Array
    gamma: jax.Array


def adafocal_init(num_bins: int = 15, gamma: float = 1.0) -> AdaFocalState:
    """Return bins of equal width, all with the same gamma (algorithm 1, lines 2 and 3).

    Args:
      num_bins: Number of bins.
      gamma: Gamma of all bins.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.

    >>> losses.adafocal_init(num_bins=4).edges.tolist()
    [0.25, 0.5, 0.75]
    """
    if num_bins < 1:
        raise ValueError(f"num_bins={num_bins}: expected at least 1")
    edges = jnp.arange(1, num_bins, dtype=jnp.float32) / num_bins
    return AdaFocalState(edges=edges, gamma=jnp.full(num_bins, gamma, jnp.float32))


def adafocal(logits: ArrayLike, labels: ArrayLike, state: AdaFocalState) -> jax.Array:
    """Compute the AdaFocal loss (eq. 5): focal with the gamma of the true class's probability bin.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]` (then `sum_k y_k L(p_k)`).
      state: State from `adafocal_init` or `adafocal_update`, a constant for the gradient.

    Returns:
      `[batch]`

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.

    >>> round(float(losses.adafocal([[2.0, 0.0]], [0], losses.adafocal_init())[0]), 4)
    0.0151
    """
    return focal_by_probability(logits, labels, lambda p: look_up(state.edges, state.gamma, p))


def adafocal_update(
    state: AdaFocalState,
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    switch: ArrayLike = 0.2,
    gamma_max: ArrayLike = 20.0,
    gamma_min: ArrayLike = -2.0,
    weights: ArrayLike | None = None,
) -> AdaFocalState:
    """Update gamma from the validation set (algorithm 1, lines 14 to 23).

    Bins are recomputed with equal validation mass; gamma is carried by bin index. With a bin's mean
    confidence C, accuracy A and `E = C - A`,

        gamma >= 0:  gamma <- min(gamma_max, gamma exp( lam E)),  and -switch if |gamma| < switch
        gamma <  0:  gamma <- max(gamma_min, gamma exp(-lam E)),  and +switch if |gamma| < switch

    so over-confidence raises gamma, under-confidence lowers it, and a gamma that gets small changes
    sides between focal and inverse focal. A bin with no example keeps its gamma (E is 0), unless it
    was smaller than `switch` from the start.

    Paper: bins of validation confidences looked up with training probabilities, sides of the
    intervals left open; here: the edge lies half-way between the neighboring bins' examples, so
    that statistics and look-up agree on every value.

    All bins are updated in one vectorized pass. `adafocal_trajectory` scans several updates.

    Args:
      state: State before the update; the new one has its dtypes.
      confidence: Top-label confidence of the validation examples `[n]`.
      correct: Correctness, 1 where the prediction is right `[n]`.
      lam: Speed of gamma.
      switch: Size S_th of gamma at which focal and inverse focal change places.
      gamma_max: Upper bound of focal gammas; infinity (appendix N) means 1e30, with which the loss
        and its gradient stay numbers.
      gamma_min: Lower bound of inverse-focal gammas (negative and finite).
      weights: Weights `[n]`, 0 for padding.

    Returns:
      The new state.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.

    >>> state = losses.adafocal_init(num_bins=1)
    >>> round(float(losses.adafocal_update(state, [0.9, 0.9], [1, 0]).gamma[0]), 3)  # exp(0.4)
    1.492
    """
    bins = bin_stats(
        confidence, correct, num_bins=state.gamma.shape[0], scheme="mass", weights=weights
    )
    edges, old = bins.edges[1:-1].astype(state.edges.dtype), state.gamma
    lam, switch, largest, smallest = (
        jnp.asarray(x, old.dtype)
        for x in (lam, switch, jnp.minimum(jnp.asarray(gamma_max, old.dtype), 1e30), gamma_min)
    )
    growth = jnp.clip(lam * bins.gap.astype(old.dtype), -80, 80)  # exp is finite: gamma may be 0
    focal = jnp.minimum(largest, old * jnp.exp(growth))
    inverse = jnp.maximum(smallest, old * jnp.exp(-growth))
    gamma = jnp.where(
        old >= 0,
        jnp.where(jnp.abs(focal) < switch, -switch, focal),
        jnp.where(jnp.abs(inverse) < switch, switch, inverse),
    )
    return AdaFocalState(edges=edges, gamma=gamma)


def adafocal_trajectory(
    state: AdaFocalState,
    confidences: ArrayLike,
    corrects: ArrayLike,
    *,
    lam: ArrayLike = 1.0,
    switch: ArrayLike = 0.2,
    gamma_max: ArrayLike = 20.0,
    gamma_min: ArrayLike = -2.0,
    weights: ArrayLike | None = None,
) -> AdaFocalState:
    """Scan `adafocal_update` over a stack of validation snapshots, for replays and plots.

    The snapshots are fixed: they are what a network predicted that was trained with its gammas.
    Another `lam` or `switch` would have trained another network, so this shows how the update rule
    responds to given predictions and does not replace retraining. A study of a setting is a `vmap`:

        jax.vmap(lambda lam: adafocal_trajectory(state, confidences, corrects, lam=lam))(lams)

    Args:
      state: State before the first update.
      confidences: Top-label confidence of the validation examples at each snapshot `[T, n]`.
      corrects: Correctness, 1 where the prediction is right `[T, n]`.
      lam: Speed of gamma; see `adafocal_update`.
      switch: Size S_th of gamma at which focal and inverse focal change places.
      gamma_max: Upper bound of focal gammas.
      gamma_min: Lower bound of inverse-focal gammas.
      weights: Weights `[n]` for all snapshots or `[T, n]`, 0 for padding.

    Returns:
      The states after each update: edges `[T, num_bins - 1]`, gamma `[T, num_bins]`.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838, algorithm 1.

    >>> confidences, corrects = jnp.full((3, 2), 0.75), jnp.zeros((3, 2))
    >>> states = adafocal_trajectory(adafocal_init(num_bins=1), confidences, corrects)
    >>> [round(float(gamma), 3) for gamma in states.gamma[:, 0]]
    [2.117, 4.482, 9.488]
    """
    confidences, corrects = as_floats(confidences), jnp.asarray(corrects)
    if confidences.ndim != 2 or confidences.shape != corrects.shape:
        raise ValueError(
            f"confidences and corrects: expected [T, n] both, "
            f"got {confidences.shape} and {corrects.shape}"
        )
    if weights is not None:
        weights = as_floats(weights)
        if weights.shape not in (confidences.shape, confidences.shape[1:]):
            raise ValueError(
                f"weights: expected {confidences.shape[1:]} or {confidences.shape}, "
                f"got {weights.shape}"
            )
        weights = jnp.broadcast_to(weights, confidences.shape)

    def update(
        state: AdaFocalState, snapshot: tuple[jax.Array, jax.Array, jax.Array | None]
    ) -> tuple[AdaFocalState, AdaFocalState]:
        confidence, correct, weight = snapshot
        state = adafocal_update(
            state,
            confidence,
            correct,
            lam=lam,
            switch=switch,
            gamma_max=gamma_max,
            gamma_min=gamma_min,
            weights=weight,
        )
        return state, state

    return jax.lax.scan(update, state, (confidences, corrects, weights))[1]
