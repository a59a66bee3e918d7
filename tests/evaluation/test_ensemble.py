"""Ensembles: mean probabilities, disagreement and mutual information, against float64 NumPy."""

import jax
import numpy as np
import pytest

from calib_jax import evaluation


def _networks(number: int, n: int = 60, k: int = 4) -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, k, n)
    logits = [2 * rng.normal(size=(n, k)) + 3 * np.eye(k)[labels] for _ in range(number)]
    return [x.astype(np.float32) for x in logits], labels.astype(np.int32)


def _softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits.astype(float) - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _entropy(probs: np.ndarray) -> np.ndarray:
    return -(probs * np.log(probs)).sum(-1)


def test_all_three_agree_with_numpy_with_and_without_jit() -> None:
    logits, _ = _networks(3)
    probs = np.stack([_softmax(x) for x in logits])
    predicted = probs.argmax(-1)
    pairs = [(0, 1), (0, 2), (1, 2)]
    disagreement = np.mean([np.mean(predicted[i] != predicted[j]) for i, j in pairs])
    information = np.mean(_entropy(probs.mean(0)) - _entropy(probs).mean(0))
    for transform in (lambda f: f, jax.jit):
        mean = transform(evaluation.ensemble_logits)(logits)
        np.testing.assert_allclose(np.exp(mean), probs.mean(0), atol=1e-6)
        assert float(transform(evaluation.disagreement)(logits)) == pytest.approx(disagreement)
        found = float(transform(evaluation.mutual_information)(logits))
        assert found == pytest.approx(information, abs=1e-6)


def test_equal_networks_do_not_disagree_even_with_masked_classes() -> None:
    (logits,), _ = _networks(1)
    logits[:, 0] = -np.inf
    assert float(evaluation.disagreement([logits, logits])) == 0
    assert float(evaluation.mutual_information([logits, logits])) == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(
        np.exp(evaluation.ensemble_logits([logits, logits])), _softmax(logits), atol=1e-6
    )


def test_ensemble_is_evaluated_before_and_after_calibration() -> None:
    logits, labels = _networks(3, n=200)
    networks = [evaluation.Predictions(x[:100], labels[:100]) for x in logits]
    validation = [evaluation.Predictions(x[100:], labels[100:]) for x in logits]
    before, after = evaluation.evaluate_ensemble(
        networks, validation, ["temperature"], num_samples=4
    )
    assert (before.name, after.name) == ("uncalibrated", "temperature")
    probs = np.mean([_softmax(x[:100]) for x in logits], axis=0)
    nll = -np.log(probs[np.arange(100), labels[:100]]).mean()
    assert before.metrics["nll"] == pytest.approx(nll, abs=1e-5)
    assert 0 < before.metrics["disagreement"] < 1
    assert 0 < before.metrics["mutual_information"] < np.log(3)
    assert "disagreement" not in after.metrics
    assert after.parameters["temperature"][0] > 0
