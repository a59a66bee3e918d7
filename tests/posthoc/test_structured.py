"""Structured vector and matrix scaling against a float64 oracle and against probmetrics."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from calib_jax import posthoc

NAMES = ["StructuredVectorScaling", "StructuredMatrixScaling"]
N, K = 60, 3


def make_data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(N, K)) * 1.5
    labels = np.argmax(true + rng.gumbel(size=(N, K)), axis=1)
    return 2 * true + np.array([1.0, 0.0, -0.5]), labels


LOGITS, LABELS = make_data()


def log_q(logits: np.ndarray, temperature: float, n: float) -> np.ndarray:
    uniform = 1 / (n + 1)
    return np.log((1 - uniform) * softmax(logits / temperature, axis=1) + uniform / K)


def best_temperature(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    rows = np.arange(len(labels))

    def nll(beta: np.ndarray) -> float:
        return -np.sum(weights * log_softmax(beta * logits, axis=1)[rows, labels])

    return 1 / float(minimize(nll, [1.0], method="Nelder-Mead", tol=1e-12).x[0])


def objective(
    matrix: np.ndarray, bias: np.ndarray, x: np.ndarray, labels: np.ndarray, weights: np.ndarray,
    strength: float,
) -> float:  # fmt: skip
    n = weights.sum()
    log_p = log_softmax(x @ matrix.T + bias, axis=1)[np.arange(len(labels)), labels]
    change = matrix - np.eye(K)
    diagonal = np.sum(np.diag(change) ** 2)
    off = np.sum(change**2) - diagonal
    penalty = K / n * (diagonal + np.sum(bias**2)) + K * (K - 1) / n * off
    return -np.sum(weights * log_p) / n + strength * penalty


def oracle(name: str, x: np.ndarray, labels: np.ndarray, weights: np.ndarray, strength: float):
    """The matrix and bias with the lowest objective."""
    is_vector = name == "StructuredVectorScaling"
    size = K if is_vector else K * K

    def unpack(params: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        change = np.diag(params[:size]) if is_vector else params[:size].reshape(K, K)
        return np.eye(K) + change, params[size:]

    found = minimize(
        lambda params: objective(*unpack(params), x, labels, weights, strength),
        np.zeros(size + K),
        method="BFGS",
        options={"gtol": 1e-8},
    )
    return unpack(found.x)


def parameters(calibrator) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(calibrator, posthoc.StructuredVectorScaling):
        return np.diag(np.asarray(calibrator.scale)), np.asarray(calibrator.bias)
    return np.asarray(calibrator.matrix), np.asarray(calibrator.bias)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("strength", "weighted"), [(1.0, False), (0.1, True)])
def test_oracle(name: str, strength: float, weighted: bool) -> None:
    weights = np.arange(N) % 3 * 1.0 if weighted else np.ones(N)
    with jax.enable_x64(True):
        got = getattr(posthoc, name).fit(
            LOGITS, LABELS, strength=strength, weights=weights if weighted else None
        )
        temperature = best_temperature(LOGITS, LABELS, weights)
        np.testing.assert_allclose(got.temperature, temperature, rtol=1e-5)
        np.testing.assert_allclose(got.uniform, 1 / (weights.sum() + 1), rtol=1e-12)
        x = log_q(LOGITS, temperature, weights.sum())
        matrix, bias = oracle(name, x, LABELS, weights, strength)
        np.testing.assert_allclose(parameters(got)[0], matrix, atol=2e-4)
        np.testing.assert_allclose(parameters(got)[1], bias, atol=2e-4)
        np.testing.assert_allclose(got(LOGITS), softmax(x @ matrix.T + bias, axis=1), atol=2e-4)
        value = objective(*parameters(got), x, LABELS, weights, strength)
        assert value <= objective(matrix, bias, x, LABELS, weights, strength) * (1 + 1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_strong_penalty_leaves_the_smoothed_temperature(name: str) -> None:
    with jax.enable_x64(True):
        got = getattr(posthoc, name).fit(LOGITS, LABELS, strength=1e6)
        want = np.exp(log_q(LOGITS, float(got.temperature), N))
        np.testing.assert_allclose(got(LOGITS), want, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_negative_penalty_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"strength=-1\.0: expected at least 0"):
        getattr(posthoc, name).fit(LOGITS, LABELS, strength=-1.0)


@pytest.mark.parametrize("name", NAMES)
def test_masked_classes_keep_0_and_the_rest_is_finite(name: str) -> None:
    masked = np.pad(LOGITS, ((0, 0), (0, 1)), constant_values=-np.inf).astype(np.float32)
    calibrator = getattr(posthoc, name).fit(masked, LABELS)
    probs = np.asarray(calibrator(masked))
    np.testing.assert_array_equal(probs[:, 3], 0.0)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-6)
    if name == "StructuredVectorScaling":
        # The class that is masked counts as one more in the penalty, and for nothing else.
        with jax.enable_x64(True):
            three = posthoc.StructuredVectorScaling.fit(LOGITS, LABELS, strength=4 / 3)
            np.testing.assert_allclose(probs[:, :3], three(LOGITS), atol=1e-4)
    slope = jax.grad(lambda z: calibrator(z)[:, 0].sum())(jnp.asarray(masked))
    assert np.isfinite(np.asarray(slope)).all()


def shared_outputs(data_dir: pathlib.Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_dir / "softmax_outputs" / f"{name}.npz") as archive:
        probs, labels = archive["predictions"].astype(np.float64), archive["ground_truth"]
    return probs / probs.sum(axis=1, keepdims=True), labels


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("network", ["wideresnet-16-4-cifar-10", "densenet-bc-100-cifar-100"])
def test_probmetrics(name: str, network: str, data_dir: pathlib.Path) -> None:
    """Objective on the rows that were fitted to, and NLL on the others: within 1e-4."""
    reference = pytest.importorskip("probmetrics.calibrators")
    probs, labels = shared_outputs(data_dir, network)
    n, k = 5000, probs.shape[1]
    short = {"StructuredVectorScaling": "SVSCalibrator", "StructuredMatrixScaling": "SMSCalibrator"}
    theirs = getattr(reference, short[name])()
    theirs.fit(probs[:n], labels[:n])
    logits = np.log(probs).astype(np.float32)
    ours = getattr(posthoc, name).fit(logits[:n], labels[:n])

    def nll(p: np.ndarray, y: np.ndarray) -> float:
        return float(-np.log(np.asarray(p, np.float64)[np.arange(len(y)), y]).mean())

    def regularized(p: np.ndarray, matrix: np.ndarray, bias: np.ndarray) -> float:
        change = matrix - np.eye(k)
        diagonal = np.sum(np.diag(change) ** 2)
        penalty = diagonal + np.sum(bias**2) + (k - 1) * (np.sum(change**2) - diagonal)
        return nll(p, labels[:n]) + k / n * penalty

    if name == "StructuredVectorScaling":
        their_parameters = np.diag(theirs.v_), theirs.b_
    else:
        their_parameters = theirs.W_[:, :-1], theirs.W_[:, -1]
    got = regularized(ours(logits[:n]), *parameters(ours))
    want = regularized(theirs.predict_proba(probs[:n]), *their_parameters)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert got <= want * (1 + 1e-5)
    held_out = nll(ours(logits[n:]), labels[n:])
    np.testing.assert_allclose(
        held_out, nll(theirs.predict_proba(probs[n:]), labels[n:]), rtol=1e-4
    )
