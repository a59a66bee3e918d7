"""Focal temperature scaling: the focal map by its defining property, the fit against scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from calib_jax import losses, posthoc


def make_data(seed, n=300, k=4, scale=2.0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, k)) * 2
    labels = np.argmax(u + rng.gumbel(size=(n, k)), axis=1)
    return (scale * u).astype(np.float32), labels


@jax.jit
def apply(temperature, gamma, logits):
    return posthoc.FocalTemperature(temperature=temperature, gamma=gamma)(logits)


def mapped(q, gamma):
    return apply(1.0, gamma, np.log(q))


def focal_term(q, gamma):
    return -((1 - q) ** gamma) * np.log(q)


def map_oracle(logits, temperature, gamma):
    """p_k proportional to 1 / -d/dq[-(1-q)^gamma log q], in float64 and log space."""
    logq = log_softmax(np.asarray(logits, np.float64) / temperature, axis=1)
    logq = np.minimum(logq, -1e-15)  # q = 1 - 1e-15 stands for a saturated 1
    rest = np.log(-np.expm1(logq))  # log(1 - q)
    slope = gamma * rest - logq
    if gamma > 0:
        slope = np.logaddexp(slope, np.log(gamma) + (gamma - 1) * rest + np.log(-logq))
    return softmax(-slope, 1)


def nll(probs, labels):
    return -np.log(np.asarray(probs, np.float64)[np.arange(len(labels)), labels]).mean()


POINTS = np.random.default_rng(0).dirichlet([1.0, 1.0, 2.0, 0.7], size=12).clip(0.01)
POINTS = POINTS / POINTS.sum(1, keepdims=True)
GAMMAS = [0.0, 0.3, 1.0, 2.0, 5.0]


@pytest.mark.parametrize("gamma", GAMMAS)
def test_focal_risk_under_the_mapped_distribution_is_stationary(gamma):
    """If labels follow p = map(q), then q minimises the expected focal loss on the simplex."""
    step = 1e-5
    for q, p in zip(POINTS, np.asarray(mapped(POINTS, gamma), np.float64), strict=True):
        steepness = np.abs(p * (focal_term(q + step, gamma) - focal_term(q, gamma)) / step).max()
        for i in range(4):
            for j in range(i):
                direction = np.zeros(4)
                direction[i], direction[j] = step, -step
                up = (p * focal_term(q + direction, gamma)).sum()
                down = (p * focal_term(q - direction, gamma)).sum()
                # float32 p (1e-7 relative) and a central difference: 1e-5 of the slopes' size
                assert abs(up - down) / (2 * step) < 1e-5 * max(steepness, 1.0)


@jax.jit
@jax.grad
def gradient_of_focal(logits, labels, gamma):
    return losses.focal(logits, labels, gamma).sum()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradient_of_our_own_focal_loss_vanishes_there(gamma):
    """The same through `losses.focal` with soft labels, by automatic differentiation."""
    grad = gradient_of_focal(np.log(POINTS), mapped(POINTS, gamma), gamma)
    np.testing.assert_allclose(grad, 0, atol=2e-6)


def test_the_stationary_point_is_a_minimum():
    rng = np.random.default_rng(1)
    for q, p in zip(POINTS, np.asarray(mapped(POINTS, 2.0), np.float64), strict=True):
        here = (p * focal_term(q, 2.0)).sum()
        for other in rng.dirichlet(np.ones(4), size=20).clip(1e-6):
            other = other / other.sum()
            assert (p * focal_term(other, 2.0)).sum() >= here - 1e-7


def test_gamma_zero_is_plain_temperature():
    np.testing.assert_allclose(mapped(POINTS, 0.0), POINTS, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0, 20.0])
def test_the_map_raises_confidence_and_keeps_the_order(gamma):
    """Focal training is under-confident; its proper map makes the largest probability larger."""
    got = np.asarray(mapped(POINTS, gamma))
    np.testing.assert_array_equal(np.argsort(got, 1), np.argsort(POINTS, 1))
    assert np.all(got.max(1) > POINTS.max(1))


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("temperature", [0.7, 3.0])
def test_call_against_float64(gamma, temperature):
    logits, _ = make_data(0)
    want = map_oracle(logits, temperature, gamma)
    np.testing.assert_allclose(apply(temperature, gamma, logits), want, atol=5e-6)


@jax.jit
@jax.grad
def slope_of_two_entries(logits, gamma):
    probs = apply(1.0, gamma, logits)
    return probs[0, 1] + probs[1, 0]


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("size", [20.0, 100.0, 1e4])
def test_saturated_logits(gamma, size):
    """(1-q)^(gamma-1) with 1-q = 0 is where a naive formula divides by zero."""
    logits = jnp.array([[size, 0.0, -size], [size, size, -size], [0.0, 0.0, 0.0]])
    want = np.array([[1, 0, 0], [0.5, 0.5, 0], [1 / 3] * 3])
    np.testing.assert_allclose(apply(1.0, gamma, logits), want, atol=1e-5)
    assert np.all(np.isfinite(slope_of_two_entries(logits, gamma)))


# ---------------------------------------------------------------- fit


def best_nll(logits, labels):
    def objective(theta):
        return nll(map_oracle(logits, np.exp(theta[0]), theta[1]).clip(1e-300), labels)

    runs = [
        minimize(objective, start, method="L-BFGS-B", bounds=[(-5, 5), (0, 30)])
        for start in ([0.0, 0.0], [0.7, 1.0], [1.0, 4.0], [-0.5, 0.5])
    ]
    return min(r.fun for r in runs)


@pytest.mark.parametrize(("seed", "scale"), [(0, 2.0), (1, 0.5), (2, 1.0), (3, 6.0)])
def test_fit_reaches_the_scipy_optimum(seed, scale):
    """Compared by NLL: temperature and gamma trade off along a flat valley."""
    logits, labels = make_data(seed, scale=scale)
    fitted = posthoc.FocalTemperature.fit(logits, labels)
    assert float(fitted.gamma) >= 0
    assert float(fitted.temperature) > 0
    assert nll(fitted(logits), labels) <= best_nll(logits, labels) + 2e-5


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_never_worse_than_temperature_alone(seed):
    """gamma = 0 is temperature scaling."""
    logits, labels = make_data(seed)
    alone = nll(posthoc.Temperature.fit(logits, labels)(logits), labels)
    assert nll(posthoc.FocalTemperature.fit(logits, labels)(logits), labels) <= alone + 1e-5


@pytest.mark.parametrize("sign", [1, -1], ids=["separable", "worse than chance"])
def test_extreme_data_give_finite_parameters(sign):
    labels = np.arange(300) % 4
    logits = sign * np.where(np.eye(4)[labels] == 1, 3.0, -3.0).astype(np.float32)
    fitted = posthoc.FocalTemperature.fit(logits, labels)
    assert np.isfinite(float(fitted.temperature))
    assert float(fitted.temperature) > 0
    assert np.isfinite(float(fitted.gamma))
    assert float(fitted.gamma) >= 0
    after = nll(np.asarray(fitted(logits)).clip(1e-30), labels)
    assert after <= min(nll(softmax(logits.astype(float), 1), labels), np.log(4) + 5e-3)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0])
def test_a_masked_class_leaves_the_others_as_they_are(gamma):
    logits = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32) * 3
    masked = np.concatenate([logits, np.full((20, 1), -np.inf, np.float32)], axis=1)
    calibrator = posthoc.FocalTemperature(jnp.float32(1.3), jnp.float32(gamma))
    probs = np.asarray(calibrator(masked))
    np.testing.assert_allclose(probs[:, :4], calibrator(logits), rtol=1e-6)
    np.testing.assert_array_equal(probs[:, 4], 0)
