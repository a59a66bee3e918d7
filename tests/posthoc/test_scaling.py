"""Vector and Dirichlet scaling against L-BFGS in float64."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from calib_jax import posthoc


def make_data(seed, n=300, k=4, scale=2.0):
    """Classes get their own scale and offset, so that one temperature is not enough."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, k)) * 1.5
    labels = np.argmax(u + rng.gumbel(size=(n, k)), axis=1)
    z = scale * u * np.linspace(0.5, 1.5, k) + np.linspace(-1, 1, k)
    return z.astype(np.float32), labels


def nll(probs, labels):
    return -np.log(np.asarray(probs, np.float64)[np.arange(len(labels)), labels]).mean()


def minimise(objective, start):
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9},
    )
    assert np.abs(found.jac).max() < 1e-6  # the oracle itself has converged
    return found.x, found.fun


def vector_oracle(logits, labels):
    x, y = logits.astype(np.float64), np.eye(logits.shape[1])[labels]
    n, k = x.shape

    def objective(theta):
        w, b = theta[:k], theta[k:]
        logp = log_softmax(w * x + b, axis=1)
        g = (np.exp(logp) - y) / n
        return -(y * logp).sum() / n, np.concatenate([(g * x).sum(0), g.sum(0)])

    theta, value = minimise(objective, np.concatenate([np.ones(k), np.zeros(k)]))
    return softmax(theta[:k] * x + theta[k:], 1), value


def dirichlet_oracle(logits, labels, odir, bias):
    x, y = log_softmax(logits.astype(np.float64), 1), np.eye(logits.shape[1])[labels]
    n, k = x.shape
    off = 1 - np.eye(k)

    def objective(theta):
        w, b = theta[: k * k].reshape(k, k), theta[k * k :]
        logp = log_softmax(x @ w.T + b, axis=1)
        g = (np.exp(logp) - y) / n
        value = -(y * logp).sum() / n
        value += odir * (off * w**2).sum() / (k * (k - 1)) + bias * (b**2).mean()
        grad_w = g.T @ x + 2 * odir * off * w / (k * (k - 1))
        return value, np.concatenate([grad_w.ravel(), g.sum(0) + 2 * bias * b / k])

    theta, _ = minimise(objective, np.concatenate([np.eye(k).ravel(), np.zeros(k)]))
    matrix, offset = theta[: k * k].reshape(k, k), theta[k * k :]
    return softmax(x @ matrix.T + offset, 1), matrix, offset


SEEDS = [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_vector_scaling_is_the_scipy_optimum(seed):
    logits, labels = make_data(seed)
    got = posthoc.VectorScaling.fit(logits, labels)(logits)
    want, value = vector_oracle(logits, labels)
    assert nll(got, labels) <= value + 1e-6
    np.testing.assert_allclose(got, want, atol=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_vector_scaling_matches_the_moments(seed):
    """First-order conditions: per class, the mean probability and its product with the logit."""
    logits, labels = make_data(seed)
    residual = np.asarray(posthoc.VectorScaling.fit(logits, labels)(logits), np.float64)
    residual = residual - np.eye(4)[labels]
    np.testing.assert_allclose(residual.mean(0), 0, atol=2e-4)
    np.testing.assert_allclose((residual * logits).mean(0), 0, atol=5e-4)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_vector_scaling_does_not_depend_on_the_scale_of_the_logits(factor):
    """The family is closed under scaling, so the optimum is the same; plain descent stalls here."""
    logits, labels = make_data(3)
    want, value = vector_oracle(logits, labels)
    scaled = (logits * factor).astype(np.float32)
    got = posthoc.VectorScaling.fit(scaled, labels)(scaled)
    assert nll(got, labels) <= value + 1e-5
    np.testing.assert_allclose(got, want, atol=3e-3)


@pytest.mark.parametrize("kind", ["VectorScaling", "Dirichlet"])
def test_reversed_logits_are_turned_round(kind):
    """Worse than chance: no temperature helps, but a negative scale does; convex all the same."""
    logits, labels = make_data(3)
    if kind == "VectorScaling":
        got = posthoc.VectorScaling.fit(-logits, labels)
        want = vector_oracle(-logits, labels)[0]
    else:
        got = posthoc.Dirichlet.fit(-logits, labels, odir=1e-3, bias=1e-3)
        want = dirichlet_oracle(-logits, labels, 1e-3, 1e-3)[0]
    np.testing.assert_allclose(nll(got(-logits), labels), nll(want, labels), atol=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_dirichlet_is_the_scipy_optimum(seed):
    logits, labels = make_data(seed)
    got = posthoc.Dirichlet.fit(logits, labels, odir=1e-3, bias=1e-3)(logits)
    want, _, _ = dirichlet_oracle(logits, labels, 1e-3, 1e-3)
    np.testing.assert_allclose(nll(got, labels), nll(want, labels), atol=1e-5)
    np.testing.assert_allclose(got, want, atol=2e-3)


def test_dirichlet_defaults():
    logits, labels = make_data(0)
    a = posthoc.Dirichlet.fit(logits, labels)(logits)
    k = logits.shape[1]
    b = posthoc.Dirichlet.fit(logits, labels, odir=0.1 * k * (k - 1), bias=1e-3)(logits)
    np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(("odir", "bias"), [(1.0, 1e-3), (1e-3, 1.0), (1e3, 1e3), (0.1, 0.1)])
def test_dirichlet_penalties(odir, bias):
    """Large penalties move the optimum by percents, so a wrong normalisation shows."""
    logits, labels = make_data(4)
    got = posthoc.Dirichlet.fit(logits, labels, odir=odir, bias=bias)
    want, matrix, offset = dirichlet_oracle(logits, labels, odir, bias)
    np.testing.assert_allclose(got(logits), want, atol=1e-3)
    # The same vector added to each row (each bias) changes no probability: compare without it.
    np.testing.assert_allclose(got.matrix - got.matrix.mean(0), matrix - matrix.mean(0), atol=2e-3)
    np.testing.assert_allclose(got.bias - got.bias.mean(), offset - offset.mean(), atol=2e-3)


@pytest.mark.parametrize("kind", ["VectorScaling", "Dirichlet"])
def test_a_constant_added_to_each_row(kind):
    """log p removes a per-row constant; a vector of scales does not, unless they are equal."""
    logits, labels = make_data(1)
    shift = np.random.default_rng(0).integers(-8, 8, size=(300, 1)).astype(np.float32)
    cls = getattr(posthoc, kind)
    a, b = cls.fit(logits, labels)(logits), cls.fit(logits + shift, labels)(logits + shift)
    if kind == "Dirichlet":
        np.testing.assert_allclose(a, b, atol=2e-3)
    else:
        want, value = vector_oracle(logits + shift, labels)
        assert nll(b, labels) <= value + 1e-6
        np.testing.assert_allclose(b, want, atol=1e-3)


@pytest.mark.parametrize("kind", ["VectorScaling", "Dirichlet"])
def test_separable_data_stay_finite(kind):
    """No finite optimum for vector scaling: the parameters must stop somewhere."""
    labels = np.arange(300) % 4
    logits = np.where(np.eye(4)[labels] == 1, 2.0, -2.0).astype(np.float32)
    fitted = getattr(posthoc, kind).fit(logits, labels)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(fitted))
    assert nll(fitted(logits), labels) < nll(softmax(logits.astype(float), 1), labels)


@pytest.mark.parametrize("kind", ["VectorScaling", "Dirichlet"])
def test_a_class_without_examples(kind):
    logits, labels = make_data(2)
    labels = np.where(labels == 3, 0, labels)
    fitted = getattr(posthoc, kind).fit(logits, labels)
    probs = np.asarray(fitted(logits))
    assert np.all(np.isfinite(probs))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(fitted))
    assert probs[:, 3].mean() < 0.05  # it was never seen
