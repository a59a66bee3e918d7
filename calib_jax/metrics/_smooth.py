"""Smooth calibration error: no bins to choose."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.fft import dct, idct
from jax.typing import ArrayLike

from calib_jax.metrics._binning import bin_stats

_GRID = 4096
_SMALLEST_BANDWIDTH = 1e-3


class SmoothCurve(NamedTuple):
    """A smoothed reliability curve on an even grid over [0, 1].

    Attributes:
      confidence: grid `[points]`.
      accuracy: smoothed accuracy there `[points]`; without meaning where the density is about 0.
      density: smoothed share of the examples there `[points]`, mean 1.
      bandwidth: of the kernel.
      error: smooth ECE at that bandwidth.
    """

    confidence: jax.Array
    accuracy: jax.Array
    density: jax.Array
    bandwidth: jax.Array
    error: jax.Array


def smooth_ece(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    bandwidth: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the smooth ECE: the integral of the |smoothed residual|.

    The residuals `confidence - correct` are smoothed with a Gaussian kernel reflected at 0 and 1.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`.
      bandwidth: the kernel's sigma. `None` takes the sigma that equals its own smooth ECE, which
        exists once, because the error falls as sigma grows; it is 0.001 at least.
      weights: as in `bin_stats`.

    Returns:
      scalar in [0, 1]

    References:
      Błasiok & Nakkiran, 2023, arXiv:2309.12236.

    >>> round(float(metrics.smooth_ece([0.9, 0.9], [1, 0])), 2)
    0.4
    """
    return smooth_curve(confidence, correct, bandwidth=bandwidth, weights=weights).error


@jax.jit
def smooth_curve(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    bandwidth: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> SmoothCurve:
    """Compute the kernel-smoothed reliability curve behind `smooth_ece`. Arguments as there.

    The cosines `cos(pi k t)` are the eigenfunctions of smoothing with a reflected Gaussian: the
    residuals are put on a fine grid once, and each bandwidth costs a product and an inverse cosine
    transform of that grid, whatever the number of examples.

    >>> metrics.smooth_curve([0.9, 0.6], [1, 0]).confidence.shape
    (4096,)
    """
    bins = bin_stats(confidence, correct, num_bins=_GRID, weights=weights)
    total = jnp.sum(bins.count)
    density, residual = (
        dct(column / total, norm="ortho") for column in (bins.count, bins.confidence - bins.correct)
    )
    dtype = bins.count.dtype
    frequency = jnp.pi * jnp.arange(_GRID, dtype=dtype)

    def smoothed(spectrum: jax.Array, sigma: jax.Array) -> jax.Array:
        return idct(spectrum * jnp.exp(-((sigma * frequency) ** 2) / 2), norm="ortho")

    def error(sigma: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(smoothed(residual, sigma)))

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = (low + high) / 2
        too_narrow = error(middle) > middle
        return jnp.where(too_narrow, middle, low), jnp.where(too_narrow, high, middle)

    if bandwidth is None:
        ends = jnp.asarray(_SMALLEST_BANDWIDTH, dtype), jnp.asarray(1.0, dtype)
        _, sigma = jax.lax.fori_loop(0, 20 if dtype == jnp.float32 else 48, halve, ends)
    else:
        sigma = jnp.asarray(bandwidth, dtype)

    grid = (jnp.arange(_GRID, dtype=dtype) + 0.5) / _GRID
    mass = smoothed(density, sigma)
    gap = smoothed(residual, sigma) / jnp.maximum(mass, 1e-9)
    return SmoothCurve(
        confidence=grid,
        accuracy=jnp.clip(grid - gap, 0.0, 1.0),
        density=mass * _GRID,
        bandwidth=sigma,
        error=error(sigma),
    )
