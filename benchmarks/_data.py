"""Made-up predictions, the same in every run."""

import numpy as np


def predictions(n: int, num_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Float32 logits `[n, num_classes]` of an over-confident classifier, and labels `[n]`.

    Labels are drawn from `softmax(logits / 1.7)`. Confidences are spread out and come near 1, but
    none is 1, which libraries bin differently.
    """
    rng = np.random.default_rng(seed)
    calibrated = rng.normal(size=(n, num_classes))
    favorite = rng.integers(num_classes, size=n)
    calibrated[np.arange(n), favorite] += rng.uniform(0, 5, size=n)
    calibrated = np.clip(calibrated, -4, 5)
    # The largest of z + Gumbel noise is distributed as softmax(z).
    labels = np.argmax(calibrated + rng.gumbel(size=calibrated.shape), axis=-1)
    return (1.7 * calibrated).astype(np.float32), labels.astype(np.int32)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row, in the logits' type."""
    exponentials = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return exponentials / np.sum(exponentials, axis=-1, keepdims=True)


def top_label(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float32 confidence `[n]` and correctness `[n]`."""
    confidence = np.max(probabilities(logits), axis=-1)
    return confidence, (np.argmax(logits, axis=-1) == labels).astype(np.float32)


def confidences(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Float32 confidences `[n]` spread over (0.2, 0.95), with correctness that lags behind them."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.2, 0.95, size=n).astype(np.float32)
    correct = rng.uniform(size=n) < confidence - 0.12 * np.sin(3 * confidence)
    return confidence, correct.astype(np.float32)
