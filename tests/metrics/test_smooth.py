"""smooth_ece against direct quadrature of its definition (Blasiok and Nakkiran, 2023)."""

import warnings

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import run
from scipy.optimize import brentq

from calib_jax import metrics


def rows(n=400, seed=0, wave=0.25):
    """Under- and overconfident by turns, so that a wide kernel cancels what a narrow one sees."""
    rng = np.random.default_rng(seed)
    conf = rng.uniform(0.0, 1.0, n).astype(np.float32)
    chance = conf + wave * np.sin(2 * np.pi * conf)
    return conf, (rng.uniform(size=n) < chance).astype(np.float32)


def quadrature(conf, correct, sigma, weights=None):
    """int_0^1 |sum_i w_i (y_i - f_i) K(t, f_i)| dt, the Gaussian folded at 0 and 1.

    The images of f on the unfolded line are 2k + f and 2k - f. Midpoint rule in float64, with at
    least 20 points per sigma: far more exact than what is compared with it.
    """
    f, y = np.asarray(conf, np.float64), np.asarray(correct, np.float64)
    w = np.full(len(f), 1 / len(f)) if weights is None else np.asarray(weights) / np.sum(weights)
    # Equal confidences act together: fewer columns, same sum.
    f, group = np.unique(f, return_inverse=True)
    mass = np.bincount(group, w * (y - f[group]))
    points = max(2000, int(20 / sigma))
    total, reach = 0.0, int(np.ceil(4 * sigma)) + 1
    for t in np.array_split((np.arange(points) + 0.5) / points, max(1, points * len(f) // 10**6)):
        kernel = sum(
            np.exp(-0.5 * ((t[:, None] - (2 * k + s * f)) / sigma) ** 2)
            for k in range(-reach, reach + 1)
            for s in (1, -1)
        )
        total += np.abs(kernel @ mass).sum()
    return total / points / (sigma * np.sqrt(2 * np.pi))


def fixed_point(conf, correct, weights=None):
    def excess(s):
        return quadrature(conf, correct, s, weights) - s

    return brentq(excess, 0.01, 1.0, xtol=1e-5)


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.5])
def test_fixed_bandwidth_against_quadrature(sigma):
    conf, correct = rows()
    got = run(metrics.smooth_ece, conf, correct, bandwidth=sigma)
    # The residual is a curve on a grid: 5e-4 absolute is the grid's error, not float32's.
    np.testing.assert_allclose(got, quadrature(conf, correct, sigma), atol=5e-4)


@pytest.mark.parametrize("wave", [0.0, 0.25, -0.5])
def test_automatic_bandwidth_is_the_fixed_point(wave):
    conf, correct = rows(wave=wave)
    want = fixed_point(conf, correct)
    got = float(run(metrics.smooth_ece, conf, correct))
    np.testing.assert_allclose(got, want, atol=1e-3)
    # smECE_sigma = sigma at the answer, by our own fixed-bandwidth function.
    np.testing.assert_allclose(
        run(metrics.smooth_ece, conf, correct, bandwidth=got), got, atol=1e-3
    )


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_one_confidence_by_hand(p):
    # A single location: the folded kernel integrates to 1, so the answer is |p - accuracy|
    # at every bandwidth, also on the border where half the Gaussian folds back.
    conf, correct = jnp.full(10, p), jnp.arange(10) < 6
    for kwargs in ({"bandwidth": 0.05}, {"bandwidth": 0.3}, {}):
        np.testing.assert_allclose(
            run(metrics.smooth_ece, conf, correct, **kwargs), abs(p - 0.6), atol=1e-3
        )


def test_two_confidences_by_hand():
    # Far apart against sigma: nothing cancels, (0.5 |.2 - 1| + 0.5 |.8 - 0|) = 0.8.
    conf, correct = jnp.array([0.2, 0.8]), jnp.array([1, 0])
    np.testing.assert_allclose(
        run(metrics.smooth_ece, conf, correct, bandwidth=0.02), 0.8, atol=1e-3
    )
    # Very wide: residuals +.8 and -.8 cancel almost wholly.
    assert float(run(metrics.smooth_ece, conf, correct, bandwidth=1.0)) < 0.02


def folded(t, f, sigma):
    """Density at t of a normal around f, folded at 0 and 1: images at 2k + f and 2k - f."""
    images = [2 * k + s * f for k in range(-4, 5) for s in (1, -1)]
    kernel = sum(np.exp(-0.5 * ((t - image) / sigma) ** 2) for image in images)
    return kernel / (sigma * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("sigma", [0.04, 0.2])
def test_curve_against_kernel_means(sigma):
    """Density is the weighted mean of the kernels, accuracy t less the kernel-weighted mean gap."""
    conf, correct = np.array([0.2, 0.5, 0.9, 1.0]), np.array([1.0, 0.0, 1.0, 0.0])
    weights = np.array([1.0, 2.0, 0.5, 0.5])
    curve = metrics.smooth_curve(conf, correct, bandwidth=sigma, weights=weights)
    t = (np.arange(4096) + 0.5) / 4096
    chex.assert_trees_all_close(curve.confidence, t.astype(np.float32), atol=1e-7)
    kernels = np.stack([folded(t, f, sigma) for f in conf], axis=1) * weights / weights.sum()
    density = kernels.sum(1)
    gap = kernels @ (conf - correct) / np.maximum(density, 1e-6)
    # Examples are moved to the middles of 4,096 bins: 1.2e-4 at most, times the kernel's slope.
    np.testing.assert_allclose(curve.density, density, atol=2e-4 / sigma**2)
    np.testing.assert_allclose(np.mean(curve.density), 1, rtol=1e-5)
    dense = density > 0.05
    want = np.clip(t - gap, 0, 1)
    np.testing.assert_allclose(curve.accuracy[dense], want[dense], atol=4e-4 / sigma)
    assert np.ptp(want[dense]) > 0.3  # a curve that bends, not a line
    np.testing.assert_allclose(curve.bandwidth, sigma, rtol=1e-6)
    np.testing.assert_allclose(curve.error, np.mean(np.abs(gap * density)), atol=5e-4)


def test_curve_of_one_confidence_by_hand():
    """Ten examples at 0.5, six of them right: the gap is -0.1 wherever there is density."""
    curve = metrics.smooth_curve(jnp.full(10, 0.5), jnp.arange(10) < 6, bandwidth=0.1)
    t = np.asarray(curve.confidence)
    near = np.abs(t - 0.5) < 0.3
    np.testing.assert_allclose(curve.accuracy[near], t[near] + 0.1, atol=1e-3)
    np.testing.assert_allclose(curve.density[2048], 1 / (0.1 * np.sqrt(2 * np.pi)), rtol=1e-3)


def test_falls_with_bandwidth():
    conf, correct = rows()
    values = [
        float(run(metrics.smooth_ece, conf, correct, bandwidth=s)) for s in (0.01, 0.05, 0.2, 1.0)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > 2 * values[-1]


def test_continuous_where_binned_ece_jumps():
    # The reason to have it: move one group across a bin border.
    correct = jnp.array([1.0, 0.0])
    below, above = jnp.array([0.499, 0.501]), jnp.array([0.501, 0.501])
    jump = abs(
        run(metrics.ece, below, correct, num_bins=2) - run(metrics.ece, above, correct, num_bins=2)
    )
    move = abs(run(metrics.smooth_ece, below, correct) - run(metrics.smooth_ece, above, correct))
    assert jump > 0.4
    # The bandwidth is a fixed point, so the move is like sqrt(0.0005), not a jump.
    assert move < 0.03


def test_perfect_is_zero_and_worst_is_one():
    conf, correct = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([0, 0, 1, 1])
    np.testing.assert_allclose(run(metrics.smooth_ece, conf, correct), 0.0, atol=1e-6)
    np.testing.assert_allclose(
        run(metrics.smooth_ece, conf, 1 - correct, bandwidth=0.02), 1.0, atol=1e-3
    )


def test_weights_are_shares():
    conf, correct = rows(60)
    weights = np.random.default_rng(3).uniform(0, 3, 60)
    got = run(metrics.smooth_ece, conf, correct, bandwidth=0.1, weights=weights)
    np.testing.assert_allclose(got, quadrature(conf, correct, 0.1, weights), atol=5e-4)
    want = fixed_point(conf, correct, weights)
    np.testing.assert_allclose(
        run(metrics.smooth_ece, conf, correct, weights=weights), want, atol=1e-3
    )


def test_padding_weighs_nothing():
    conf, correct = rows(60)
    padded = np.r_[conf, 0.0, 1.0, np.nan, -np.nan].astype(np.float32)
    weights = np.r_[np.ones(60), np.zeros(4)]
    got = run(metrics.smooth_ece, padded, np.r_[correct, np.ones(4)], weights=weights)
    np.testing.assert_allclose(got, run(metrics.smooth_ece, conf, correct), rtol=1e-5)


def test_jit_and_bfloat16():
    conf, correct = rows()
    eager = metrics.smooth_ece(conf, correct)
    assert eager.shape == ()
    assert eager.dtype == jnp.float32
    np.testing.assert_allclose(jax.jit(metrics.smooth_ece)(conf, correct), eager, rtol=1e-5)
    low = jnp.asarray(conf).astype(jnp.bfloat16)
    np.testing.assert_allclose(
        run(metrics.smooth_ece, low, correct),
        run(metrics.smooth_ece, low.astype(jnp.float32), correct),
        rtol=1e-6,
    )


def test_gradient_of_the_fixed_bandwidth_is_finite_and_points_down():
    conf, correct = rows(60)
    value, grad = jax.value_and_grad(lambda c: metrics.smooth_ece(c, correct, bandwidth=0.1))(
        jnp.asarray(conf)
    )
    assert np.isfinite(grad).all()
    step = jnp.clip(conf - 1e-2 * grad / jnp.linalg.norm(grad), 0, 1)
    assert float(run(metrics.smooth_ece, step, correct, bandwidth=0.1)) < float(value)


def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match=r"0|empty|no "):
        run(metrics.smooth_ece, jnp.zeros(0), jnp.zeros(0))


@pytest.mark.parametrize("seed", [0, 1])
def test_live_relplot(seed):
    peer = pytest.importorskip("relplot")
    conf, correct = rows(2000, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = peer.smECE(conf.astype(np.float64), correct.astype(np.float64))
    # relplot bisects the bandwidth in ten steps: its answer is known to about 1e-3.
    np.testing.assert_allclose(run(metrics.smooth_ece, conf, correct), want, atol=2e-3)
