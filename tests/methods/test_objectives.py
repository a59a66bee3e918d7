"""What the weight of a penalty means: its gradient beside that of cross entropy, in float64."""

import chex
import jax
import numpy as np
import pytest

from calib_jax import losses, methods

B, K, WIDTH = 128, 10, 0.4


def _batch(accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    """Confident logits, of which a share has the label of the second largest."""
    logits = 6 * np.random.default_rng(0).normal(size=(B, K))
    order = np.argsort(logits, axis=1)
    wrong = np.arange(B) < round(B * (1 - accuracy))
    return logits, np.where(wrong, order[:, -2], order[:, -1])


def _confidence(logits: np.ndarray) -> np.ndarray:
    return 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)


def _mmce(r: np.ndarray, correct: np.ndarray, double: bool) -> float:
    """Means over pairs of correct, of wrong and of mixed examples; divided by the pairs again."""

    def pairs(a: np.ndarray, b: np.ndarray, u: np.ndarray, v: np.ndarray) -> float:
        kernel = np.exp(-np.abs(a[:, None] - b[None, :]) / WIDTH)
        mean = np.mean(u[:, None] * v[None, :] * kernel)
        return mean / (len(a) * len(b) + 1e-5) if double else mean

    right, wrong = r[correct], r[~correct]
    square = pairs(right, right, 1 - right, 1 - right) + pairs(wrong, wrong, wrong, wrong)
    return np.sqrt(square - 2 * pairs(right, wrong, 1 - right, wrong) + 1e-10)


def _gradient(logits: np.ndarray, labels: np.ndarray, double: bool) -> np.ndarray:
    """By central differences in the confidences, and the softmax's derivative."""
    r, correct = _confidence(logits), logits.argmax(1) == labels
    slopes = np.empty(B)
    for i in range(B):
        step = np.zeros(B)
        step[i] = 1e-6
        slopes[i] = (_mmce(r + step, correct, double) - _mmce(r - step, correct, double)) / 2e-6
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    top = np.eye(K)[logits.argmax(1)]
    return (slopes * r)[:, None] * (top - probs)


@pytest.mark.parametrize(
    ("accuracy", "double", "share"),
    [(0.7, False, 1.36), (0.7, True, 0.034), (0.9, False, 4.0), (0.9, True, 0.30)],
)
def test_mmce_of_weight_2_beside_cross_entropy(accuracy: float, double: bool, share: float) -> None:
    """Normalised twice, as published with that weight, it is small; once, it outweighs the loss."""
    logits, labels = _batch(accuracy)
    want = 2 * _gradient(logits, labels, double)
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs /= probs.sum(1, keepdims=True)
    cross_entropy = (probs - np.eye(K)[labels]) / B
    assert np.linalg.norm(want) / np.linalg.norm(cross_entropy) == pytest.approx(share, rel=0.02)

    penalty = methods.OBJECTIVES["mmce"](double_normalized=double).penalty
    assert penalty is not None
    z = np.asarray(logits, np.float32)
    got = jax.grad(lambda z: penalty(z, labels, np.ones(B, np.float32)))(z)
    chex.assert_trees_all_close(
        np.asarray(got, np.float64), want, atol=2e-4 * np.abs(want).max(), rtol=2e-3
    )
    ours = jax.grad(lambda z: losses.cross_entropy(z, labels).mean())(z)
    assert np.linalg.norm(got) / np.linalg.norm(ours) == pytest.approx(share, rel=0.02)
