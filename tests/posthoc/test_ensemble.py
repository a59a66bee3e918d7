"""Ensemble temperature scaling (ETS): temperature and weights by squared error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax

from calib_jax import posthoc


def make_data(seed, n=300, k=4, scale=2.0, noise=0.0):
    """`noise` is a share of labels drawn at random: it gives the uniform part a weight."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, k)) * 2
    labels = np.argmax(u + rng.gumbel(size=(n, k)), axis=1)
    labels = np.where(rng.random(n) < noise, rng.integers(0, k, n), labels)
    return (scale * u).astype(np.float32), labels


def parts(logits, temperature):
    z = np.asarray(logits, np.float64)
    k = z.shape[1]
    return np.stack([softmax(z / temperature, 1), softmax(z, 1), np.full(z.shape, 1 / k)])


def mse(probs, labels):
    return np.mean((np.asarray(probs, np.float64) - np.eye(probs.shape[1])[labels]) ** 2)


def mse_of(weights, components, labels):
    return mse(np.tensordot(np.asarray(weights, np.float64), components, 1), labels)


def best_temperature(logits, labels):
    """A grid for the basin (the squared error is not convex), then Brent inside it."""

    def loss(t):
        return mse(softmax(logits.astype(np.float64) / np.exp(t), 1), labels)

    grid = np.linspace(np.log(0.05), np.log(5), 200)
    i = int(np.argmin([loss(t) for t in grid]))
    found = minimize_scalar(
        loss,
        bounds=(grid[max(i - 1, 0)], grid[min(i + 1, 199)]),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return np.exp(found.x)


def best_weights(components, labels):
    """SLSQP, as Mix-n-Match does it, from several starts and with a tight tolerance."""
    runs = [
        minimize(
            # scaled up: SLSQP stops on the absolute change of the objective
            lambda w: 1e4 * mse_of(w, components, labels),
            start,
            method="SLSQP",
            bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        for start in ([1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [1 / 3] * 3)
    ]
    return min(runs, key=lambda r: r.fun).x


CASES = {
    "overconfident": make_data(0, scale=3.0),
    "underconfident": make_data(1, scale=0.4),
    "random labels": make_data(2, scale=2.0, noise=0.4),
    "calibrated": make_data(3, scale=1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_temperature_minimises_the_squared_error(name):
    logits, labels = CASES[name]
    got = float(posthoc.EnsembleTemperature.fit(logits, labels).temperature)
    want = best_temperature(logits, labels)
    # The error is flat at its minimum: float32 finds T to the root of its precision.
    np.testing.assert_allclose(got, want, rtol=2e-3)
    assert mse(parts(logits, got)[0], labels) <= mse(parts(logits, want)[0], labels) + 1e-7


@pytest.mark.parametrize("name", CASES)
def test_weights_are_the_simplex_optimum(name):
    logits, labels = CASES[name]
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    weights = np.asarray(fitted.weights, np.float64)
    components = parts(logits, float(fitted.temperature))
    want = best_weights(components, labels)
    assert weights.shape == (3,)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(), 1, atol=1e-6)
    assert mse_of(weights, components, labels) <= mse_of(want, components, labels) + 1e-8
    if name != "calibrated":  # there T is about 1, so that the first two parts are nearly the same
        np.testing.assert_allclose(weights, want, atol=2e-3)


def exact_weights(logits, labels, temperature):
    """The least-squares weights on the simplex in float64, with the ridge of 1e-7: seven faces."""
    components = parts(logits, temperature).reshape(3, -1)
    target = np.eye(logits.shape[1])[labels].ravel()
    gram = components @ components.T / len(labels) + 1e-7 * np.eye(3)
    pull = components @ target / len(labels)
    best = None
    for face in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
        m = len(face)
        system = np.ones((m + 1, m + 1))
        system[:m, :m], system[m, m] = gram[np.ix_(face, face)], 0
        w = np.zeros(3)
        w[face] = np.linalg.solve(system, np.append(pull[face], 1))[:m]
        loss = w @ gram @ w - 2 * pull @ w
        if w.min() >= 0 and (best is None or loss < best[0]):
            best = loss, w
    return best[1]


@pytest.mark.parametrize(
    ("n", "k"), [(4000, 100), pytest.param(25_000, 1000, marks=pytest.mark.slow)]
)
def test_weights_keep_their_digits_over_many_terms(n, k):
    """One float32 sum over all n K terms is off by up to 2e-3 here; a sum per row first is not."""
    logits, labels = make_data(5, n=n, k=k, scale=2.0, noise=0.3)
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    want = exact_weights(logits, labels, float(fitted.temperature))
    np.testing.assert_allclose(fitted.weights, want, atol=2e-6)
    assert np.sort(want)[1] > 0.01  # inside the triangle or on an edge: the digits matter


@pytest.mark.parametrize("name", CASES)
def test_optimality_conditions_of_the_weights(name):
    """Karush-Kuhn-Tucker: equal slopes where the weight is positive, no smaller one elsewhere."""
    logits, labels = CASES[name]
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    weights = np.asarray(fitted.weights, np.float64)
    components = parts(logits, float(fitted.temperature))
    residual = np.tensordot(weights, components, 1) - np.eye(4)[labels]
    slope = np.array([2 * np.mean(residual * c) for c in components])
    slope = slope - slope.min()
    assert np.all(slope[weights > 1e-4] < 1e-6)


def test_call_is_the_weighted_sum():
    logits, labels = CASES["random labels"]
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    want = np.tensordot(np.asarray(fitted.weights), parts(logits, float(fitted.temperature)), 1)
    np.testing.assert_allclose(fitted(logits), want, atol=1e-6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.05, 20), noise=st.floats(0, 1))
def test_never_worse_than_its_parts(seed, scale, noise):
    """The simplex holds every part alone, uncalibrated softmax and uniform among them."""
    logits, labels = make_data(seed, scale=scale, noise=noise)
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    weights = np.asarray(fitted.weights)
    assert np.all(np.isfinite(weights))
    assert weights.min() >= 0
    assert float(fitted.temperature) > 0
    components = parts(logits, float(fitted.temperature))
    after = mse(fitted(logits), labels)
    assert after <= min(mse(c, labels) for c in components) + 1e-6


@pytest.mark.parametrize(
    "logits",
    [
        np.zeros((300, 4)),
        np.tile([[3.0, 0, -3.0, 1.0]], (300, 1)),
        -np.eye(4)[np.arange(300) % 4] * 40,
    ],
    ids=["all equal", "constant rows", "worse than chance"],
)
def test_degenerate_sets(logits):
    """Parts that coincide make the least squares singular; the weights must still be a simplex."""
    labels = np.arange(300) % 4
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    probs = np.asarray(fitted(logits))
    assert np.all(np.isfinite(probs))
    assert probs.min() >= 0
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)
    assert mse(probs, labels) <= mse(np.full((300, 4), 1 / 4), labels) + 1e-6


def test_separable_data_keep_their_sharpness():
    labels = np.arange(300) % 4
    logits = np.where(np.eye(4)[labels] == 1, 3.0, -3.0).astype(np.float32)
    fitted = posthoc.EnsembleTemperature.fit(logits, labels)
    assert mse(fitted(logits), labels) <= mse(softmax(logits.astype(float), 1), labels)
    assert 0 < float(fitted.temperature) < 1
