"""Metrics against a known p(y|x), compared with sums written out in float64 and with drawn labels."""

import jax
import numpy as np
import pytest

from calib_jax import metrics


def _predictions(n: int, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    noisy = np.exp(logits / 2 + 0.3 * rng.normal(size=(n, k)))
    return logits, noisy / noisy.sum(axis=1, keepdims=True)


def _softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def _oracle(logits: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Row by row; n is a multiple of 30, so that bins of equal mass are equal slices of a sort."""
    probs = _softmax(logits)
    n, top = len(probs), probs.argmax(axis=1)
    confidence, right = probs.max(axis=1), truth[np.arange(n), top]

    def error(num_bins: int) -> float:
        order = np.argsort(confidence)
        gaps = (confidence - right)[order].reshape(num_bins, -1).mean(axis=1)
        return float(np.abs(gaps).mean())

    brier = sum(truth[:, k] * ((probs - np.eye(4)[k]) ** 2).sum(axis=1) for k in range(4))
    return {
        "true_accuracy": float(right.mean()),
        "true_ece": error(15),
        "true_ece_30": error(30),
        "true_gap": float(np.abs(right - confidence).mean()),
        "expected_nll": float(-(truth * np.log(probs)).sum(axis=1).mean()),
        "expected_brier": float(np.mean(brier)),
        "bayes_error": float(1 - truth.max(axis=1).mean()),
    }


def test_summary_is_that_of_an_oracle_in_float64() -> None:
    logits, truth = _predictions(300)
    with jax.enable_x64(True):
        got = metrics.truth_summary(logits, truth)
        alone = metrics.true_calibration_error(_softmax(logits), truth, num_bins=30)
    expected = _oracle(logits, truth)
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-12, err_msg=key)
    np.testing.assert_allclose(alone, expected["true_ece_30"], rtol=1e-12)
    assert expected["true_ece"] <= expected["true_ece_30"] <= expected["true_gap"]


def test_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])
    truth = np.array([[0.7, 0.3], [0.1, 0.9], [0.3, 0.7], [0.5, 0.5]])
    # Confidence 0.9, 0.8, 0.6, 0.5; p(ŷ|x) 0.7, 0.9, 0.3, 0.5. Two bins: 0.85 - 0.8, 0.55 - 0.4.
    got = metrics.true_calibration_error(probs, truth, num_bins=2)
    np.testing.assert_allclose(got, (0.05 + 0.15) / 2, rtol=1e-6)
    each = metrics.truth_summary(np.log(probs), truth)
    np.testing.assert_allclose(each["true_gap"], (0.2 + 0.1 + 0.3 + 0) / 4, rtol=1e-5)
    np.testing.assert_allclose(each["bayes_error"], 1 - (0.7 + 0.9 + 0.7 + 0.5) / 4, rtol=1e-6)


def test_drawn_labels_give_the_same_in_the_long_run() -> None:
    logits, truth = _predictions(600)
    rng = np.random.default_rng(1)
    draws = 400
    labels = (truth.cumsum(axis=1)[:, None, :-1] <= rng.random((600, draws, 1))).sum(axis=-1)
    probs, rows = _softmax(logits), np.arange(600)[:, None]
    hits = probs.argmax(axis=1)[:, None] == labels
    nll = -np.log(probs[rows, labels])
    brier = (probs**2).sum(axis=1)[:, None] - 2 * probs[rows, labels] + 1
    got = metrics.truth_summary(logits, truth)
    for key, drawn in (("true_accuracy", hits), ("expected_nll", nll), ("expected_brier", brier)):
        means = drawn.mean(axis=0)
        assert abs(means.mean() - got[key]) < 4 * means.std() / np.sqrt(draws), key


def test_perfect_and_certain_predictions() -> None:
    logits, _ = _predictions(90)
    got = metrics.truth_summary(logits, _softmax(logits))
    assert max(float(got[key]) for key in ("true_ece", "true_ece_30", "true_gap")) < 1e-6
    assert float(got["bayes_error"]) == pytest.approx(1 - float(got["true_accuracy"]), abs=1e-6)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "row 0 has least entry 0.4 and sum 0.9"),
        ([[0.5, 0.5], [1.5, -0.5]], "row 1 has least entry -0.5"),
        ([0.5, 0.5], "of the shape of the predictions"),
    ],
)
def test_what_is_no_distribution_is_refused(truth: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metrics.true_calibration_error([[0.9, 0.1], [0.2, 0.8]], truth)
    with pytest.raises(ValueError, match=message):
        metrics.truth_summary([[2.0, 0.1], [0.2, 0.8]], truth)


def test_logits_in_place_of_probabilities_are_refused() -> None:
    with pytest.raises(ValueError, match="these are logits"):
        metrics.true_calibration_error([[2.0, -1.0]], [[0.5, 0.5]])
    with pytest.raises(ValueError, match="these are probabilities"):
        metrics.truth_summary([[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]])
