"""AdaFocal and CalFocal: focal losses whose gamma follows the calibration of the validation set."""

import jax
import jax.numpy as jnp

from calib_jax import losses, metrics
from calib_jax.methods._base import Info, Objective


def adafocal(
    num_bins: int = 15,
    gamma: float = 1.0,
    lam: float = 1.0,
    switch: float = 0.2,
    gamma_max: float = 20.0,
    gamma_min: float = -2.0,
) -> Objective:
    """Return AdaFocal: each validation pass moves the gamma of every probability bin.

    Args:
      num_bins: Number of probability bins.
      gamma: Gamma of all bins before the first validation pass.
      lam: Speed of gamma, as the other options in `losses.adafocal_update`.
      switch: Size of gamma at which focal and inverse focal loss change places.
      gamma_max: Upper bound of focal gammas.
      gamma_min: Lower bound of inverse-focal gammas.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838, algorithm 1.
    """

    def update(
        state: losses.AdaFocalState, logits: jax.Array, labels: jax.Array
    ) -> losses.AdaFocalState:
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

    def report(
        state: losses.AdaFocalState, logits: jax.Array, labels: jax.Array
    ) -> dict[str, jax.Array]:
        gap = equal_mass_bins(logits, labels, num_bins).gap
        return {"gamma": state.gamma, "edges": state.edges, "gap": gap}

    return Objective(
        losses.adafocal,
        init=lambda info: losses.adafocal_init(num_bins, gamma),
        update=update,
        report=report,
    )


def calfocal(lam: float = 10.0, per_sample: bool = False, num_bins: int = 15) -> Objective:
    """Return CalFocal, with the bins of the latest validation pass.

    Args:
      lam: Speed at which gamma follows the calibration gap.
      per_sample: Whether to use eq. 2 of the paper instead of eq. 3; see `losses.calfocal`.
      num_bins: Number of probability bins.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.
    """

    def loss(logits: jax.Array, labels: jax.Array, bins: metrics.BinStats) -> jax.Array:
        return losses.calfocal(logits, labels, bins, lam=lam, per_sample=per_sample)

    def init(info: Info) -> metrics.BinStats:
        zeros = jnp.zeros(num_bins)
        return metrics.BinStats(zeros, zeros, zeros, jnp.linspace(0.0, 1.0, num_bins + 1))

    def update(_: metrics.BinStats, logits: jax.Array, labels: jax.Array) -> metrics.BinStats:
        return equal_mass_bins(logits, labels, num_bins)

    def report(bins: metrics.BinStats, *_: jax.Array) -> dict[str, jax.Array]:
        return {"gap": bins.gap, "edges": bins.edges[1:-1]}

    return Objective(loss, init=init, update=update, report=report)


def equal_mass_bins(logits: jax.Array, labels: jax.Array, num_bins: int) -> metrics.BinStats:
    """Return the bins of the top-label confidence, with equally many examples each."""
    confidence, correct = metrics.top_label(logits, labels)
    return metrics.bin_stats(confidence, correct, num_bins=num_bins, scheme="mass")
