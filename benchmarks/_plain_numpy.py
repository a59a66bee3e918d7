"""The same quantities in plain numpy and scipy, as one would write them."""

import itertools

import numpy as np
from scipy import interpolate, optimize

from benchmarks._data import probabilities, top_label


def ece(probs: np.ndarray, labels: np.ndarray, num_bins: int = 15) -> float:
    """Equal-width ECE of the predicted class, by `bincount`."""
    correct = np.argmax(probs, axis=-1) == labels
    return binned_gap(np.max(probs, axis=-1), correct, num_bins)


def binned_gap(confidence: np.ndarray, correct: np.ndarray, num_bins: int) -> float:
    index = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    gaps = np.bincount(index, weights=confidence - correct, minlength=num_bins)
    return float(np.sum(np.abs(gaps)) / len(confidence))


def mass_edges(confidence: np.ndarray, num_bins: int) -> np.ndarray:
    """The confidences at which bins of equal mass begin, and one beyond the last."""
    ascending = np.sort(confidence)
    n = len(ascending)
    starts = [-(-b * n // num_bins) for b in range(num_bins)]
    return np.append(ascending[starts], np.inf)


def mass_ece(confidence: np.ndarray, correct: np.ndarray, num_bins: int = 15) -> float:
    """Equal-mass ECE, one mask for each bin."""
    edges = mass_edges(confidence, num_bins)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    return float(total)


def sweep_ece(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Equal-mass ECE with the most bins whose accuracies rise, one more bin at a time."""
    order = np.argsort(confidence)
    confidence, correct = confidence[order].astype(np.float64), correct[order]
    n = len(confidence)
    value = abs(float(np.mean(confidence) - np.mean(correct)))
    for num_bins in range(2, n + 1):
        index = np.arange(n) * num_bins // n
        count = np.bincount(index, minlength=num_bins)
        accuracy = np.bincount(index, weights=correct, minlength=num_bins) / count
        if np.any(np.diff(accuracy) < 0):
            break
        mean_confidence = np.bincount(index, weights=confidence, minlength=num_bins) / count
        value = float(np.sum(count * np.abs(mean_confidence - accuracy)) / n)
    return value


def grid_temperature(logits: np.ndarray, labels: np.ndarray, grid: np.ndarray) -> float:
    """The temperature of the grid with the lowest ECE: softmax, then `ece`, for each."""
    errors = [ece(probabilities(logits / np.float32(t)), labels) for t in grid]
    return float(grid[int(np.argmin(errors))])


def grid_temperature_tuned(logits: np.ndarray, labels: np.ndarray, grid: np.ndarray) -> float:
    """`grid_temperature` with all that does not depend on the temperature taken out of the loop."""
    correct = np.argmax(logits, axis=-1) == labels
    below_top = np.ascontiguousarray((logits - np.max(logits, axis=-1, keepdims=True)).T)
    errors = [
        binned_gap(1 / np.sum(np.exp(below_top / np.float32(t)), axis=0), correct, 15) for t in grid
    ]
    return float(grid[int(np.argmin(errors))])


def ensemble_temperature(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """ETS by scipy's general solvers: first the temperature, then the weights, by squared error."""
    logits = logits.astype(np.float64)
    target = np.eye(logits.shape[1])[labels]

    def at_temperature(t: np.ndarray) -> float:
        return float(np.mean((probabilities(logits / t) - target) ** 2))

    start = optimize.minimize(at_temperature, np.ones(1), method="L-BFGS-B", bounds=[(0.05, 5.0)])
    temperature = float(start.x[0])
    members = np.stack(
        [
            probabilities(logits / temperature),
            probabilities(logits),
            np.full_like(logits, 1 / logits.shape[1]),
        ]
    )

    def at_weights(weights: np.ndarray) -> float:
        return float(np.mean((np.tensordot(weights, members, 1) - target) ** 2))

    best = optimize.minimize(
        at_weights,
        np.array([1.0, 0.0, 0.0]),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 3,
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - 1},
        tol=1e-12,
    )
    return temperature, best.x


def spline(
    logits: np.ndarray, labels: np.ndarray, num_knots: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted confidences and what the spline method turns them into."""
    confidence, correct = top_label(logits, labels)
    order = np.argsort(confidence)
    scores = confidence[order].astype(np.float64)
    percentile = np.linspace(0, 1, len(scores))
    knots = np.linspace(0, 1, num_knots)
    basis = interpolate.CubicSpline(knots, np.eye(num_knots), bc_type="natural")
    curve = np.cumsum(correct[order] - scores) / len(scores)
    coefficients = np.linalg.lstsq(basis(percentile), curve, rcond=None)[0]
    return scores, np.clip(scores + basis(percentile, 1) @ coefficients, 0, 1)
