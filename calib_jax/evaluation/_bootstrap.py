"""Bootstrap of the metrics of several evaluations at once, from sums over the examples.

A resample is a count per example, the same for all evaluations, so that they can be compared in pairs.
Nothing is computed from logits again: proper scores are weighted means of per-example losses, and what
depends on the confidence is computed from the number of right and wrong examples in cells of examples
with nearly the same confidence. Up to 4,096 different confidences every one has its cell, and the
metrics are those of the `metrics` package; above, the mean of a cell stands for its confidences.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import fft

_MOST_CELLS = 2**12
_NUM_BINS = 15
_GRID = 4096  # as in `metrics.smooth_ece`, like the bandwidth
_SMALLEST_BANDWIDTH = 1e-3
_CHUNK_VALUES = 2**22  # counts that are held at the same time

Samples = dict[str, np.ndarray]


class Rows(NamedTuple):
    """What the metrics need to know of each example, `[n]` each.

    Attributes:
      confidence: Top-label confidence.
      correct: Whether the prediction is right.
      nll: Negative log likelihood.
      brier: Squared error of the probabilities.
    """

    confidence: np.ndarray
    correct: np.ndarray
    nll: np.ndarray
    brier: np.ndarray


def default_num_samples(n: int) -> int:
    """Return the number of resamples: 500 up to 200,000 examples, 100 from a million on.

    >>> default_num_samples(10_000), default_num_samples(1_000_000)
    (500, 100)
    """
    return max(100, min(500, 10**8 // n))


def resample(
    evaluations: Sequence[Rows],
    *,
    seed: int,
    num_samples: int,
    progress: Callable[[int], None] | None = None,
) -> list[Samples]:
    """Compute metrics of resampled examples.

    Args:
      evaluations: Evaluations of the same `n` examples.
      seed: Seed of the draws.
      num_samples: Number of resamples.
      progress: Function that is called with the number of finished resamples now and then.

    Returns:
      The metrics of each evaluation, `[num_samples]` each: accuracy, nll, brier, ece, ece_mass,
      smooth_ece and aurc.
    """
    n = len(evaluations[0].confidence)
    losses = np.stack([column for e in evaluations for column in (e.nll, e.brier)], axis=1)
    center = losses.mean(axis=0, dtype=np.float64)
    losses = (losses - center).astype(np.float32)  # float32 sums of what is left keep their digits
    cells = [_Cells(e.confidence, e.correct) for e in evaluations]
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])
    chunks: list[list[Samples]] = []
    done = 0
    for counts in _draws(n, seed, num_samples):
        with np.errstate(over="ignore", invalid="ignore"):  # losses of 1e38 have an infinite mean
            means = counts.astype(np.float32) @ losses / n + center
        chunks.append(
            [
                {
                    "nll": means[:, 2 * i],
                    "brier": means[:, 2 * i + 1],
                    **c.metrics(counts, harmonic),
                }
                for i, c in enumerate(cells)
            ]
        )
        done += len(counts)
        if progress is not None:
            progress(done)
    return [
        {key: np.concatenate([chunk[i][key] for chunk in chunks]) for key in chunks[0][i]}
        for i in range(len(evaluations))
    ]


def percentiles(samples: Samples, level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the percentile interval of each metric.

    >>> percentiles({"ece": np.arange(101)}, 0.5)
    {'ece': (25.0, 75.0)}
    """
    tail = (1 - level) / 2
    ends = {key: np.quantile(values, (tail, 1 - tail)) for key, values in samples.items()}
    return {key: (float(low), float(high)) for key, (low, high) in ends.items()}


def _draws(n: int, seed: int, num_samples: int) -> Iterator[np.ndarray]:
    """Yield multinomial counts per example, `[resamples, n]` at a time."""
    rng = np.random.default_rng(seed)
    size = max(1, min(64, _CHUNK_VALUES // n))
    for start in range(0, num_samples, size):
        rows = range(min(size, num_samples - start))
        yield np.stack([np.bincount(rng.integers(0, n, n), minlength=n) for _ in rows])


class _Cells:
    """Examples sorted by confidence once, and cut into cells.

    Examples of the same confidence share a cell, and none holds examples of two bins of equal width.
    """

    def __init__(self, confidence: np.ndarray, correct: np.ndarray) -> None:
        n = len(confidence)
        order = np.argsort(confidence)  # equal ones share a cell: their order does not matter
        ascending = confidence[order]
        # As `metrics.width_bins`: the float32 edges decide, and belong to the lower bin.
        inner = np.asarray(np.arange(1, _NUM_BINS) / _NUM_BINS, np.float32)
        bins = np.searchsorted(inner, ascending, side="left")
        begins = _changes(ascending)
        if begins.sum() > _MOST_CELLS:
            block = np.arange(n) * _MOST_CELLS // n
            begins &= _changes(block) | _changes(bins)
        number = np.cumsum(begins) - 1
        cell = np.empty(n, np.int64)
        cell[order] = number
        first = np.flatnonzero(begins)
        self.slot = 2 * cell + (correct > 0)
        self.confidence = np.bincount(number, ascending) / np.bincount(number)
        self.bin_starts = np.flatnonzero(_changes(bins[first]))
        grid = np.clip(np.ceil(self.confidence * _GRID) - 1, 0, _GRID - 1).astype(np.int64)
        self.grid_starts = np.flatnonzero(_changes(grid))
        self.grid = grid[self.grid_starts]

    def metrics(self, counts: np.ndarray, harmonic: np.ndarray) -> Samples:
        """Compute the metrics of resamples.

        Args:
          counts: How often each example was drawn `[resamples, n]`.
          harmonic: Sums of 1, 1/2, … of 0, 1, …, n terms.
        """
        n, num_cells = counts.shape[1], len(self.confidence)
        slots = [np.bincount(self.slot, c, 2 * num_cells) for c in counts]
        wrong, right = np.stack(slots).reshape(len(counts), num_cells, 2).transpose(2, 0, 1)
        total = wrong + right
        residual = total * self.confidence - right
        through = np.cumsum(total, axis=1)
        on_grid = np.zeros((len(counts), _GRID), np.float32)
        on_grid[:, self.grid] = np.add.reduceat(residual, self.grid_starts, axis=1) / n
        per_bin = np.add.reduceat(residual, self.bin_starts, axis=1)
        return {
            "accuracy": right.sum(axis=1) / n,
            "ece": np.abs(per_bin).sum(axis=1) / n,
            "ece_mass": _equal_mass(total, residual, through),
            "smooth_ece": _smooth(on_grid),
            "aurc": _aurc(wrong, total, through, harmonic),
        }


def _changes(ascending: np.ndarray) -> np.ndarray:
    """Return where a value is not that before it; true at the first."""
    return np.concatenate([[True], ascending[1:] != ascending[:-1]])


def _equal_mass(total: np.ndarray, residual: np.ndarray, through: np.ndarray) -> np.ndarray:
    """Compute the ECE in bins of equal mass, cells cut in proportion. All `[resamples, cells]`."""
    n = int(through[0, -1])
    ranks = np.array([-(-b * n // _NUM_BINS) for b in range(1, _NUM_BINS)])
    at = np.stack([np.searchsorted(row, ranks) for row in through])

    def look_up(column: np.ndarray) -> np.ndarray:
        return np.take_along_axis(column, at, axis=1)

    running = np.cumsum(residual, axis=1)
    # The rank lies in the cell, or at its end: the part above it is taken off.
    above = (look_up(through) - ranks) / look_up(total)
    cuts = look_up(running) - above * look_up(residual)
    sums = np.diff(cuts, axis=1, prepend=0.0, append=running[:, -1:])
    return np.abs(sums).sum(axis=1) / n


def _aurc(
    wrong: np.ndarray, total: np.ndarray, through: np.ndarray, harmonic: np.ndarray
) -> np.ndarray:
    """Compute the area under the risk-coverage curve as `metrics.aurc` does, cell by cell."""
    n = int(through[0, -1])
    error = wrong / np.maximum(total, 1)
    errors = wrong.sum(axis=1, keepdims=True) - np.cumsum(wrong, axis=1)  # of higher confidence
    covered = n - through.astype(np.int64)
    steps = harmonic[covered + total.astype(np.int64)] - harmonic[covered]
    return (wrong + (errors - error * covered) * steps).sum(axis=1) / n


def _smooth(residual: np.ndarray) -> np.ndarray:
    """Compute the smooth ECE of residuals on the grid, `[resamples, grid]`, as `metrics.smooth_ece`.

    The error less the bandwidth falls as the bandwidth grows, nearly on a straight line: its zero is
    found by regula falsi (Illinois) in a few steps.
    """
    spectrum = fft.dct(residual, norm="ortho")
    frequency = np.pi * np.arange(_GRID, dtype=np.float32)

    def error(sigma: np.ndarray) -> np.ndarray:
        damping = np.exp(-((sigma[:, None].astype(np.float32) * frequency) ** 2) / 2)
        return np.abs(fft.idct(spectrum * damping, norm="ortho")).sum(axis=1, dtype=np.float64)

    low, high = (np.full(len(residual), end) for end in (_SMALLEST_BANDWIDTH, 1.0))
    at_low, at_high = error(low) - low, error(high) - high
    has_zero = at_low > 0  # else the error is that of the smallest bandwidth
    side = np.zeros(len(residual))  # of the zero that the last step was on
    for _ in range(12):
        slope = np.where(has_zero, at_high - at_low, -1.0)  # never 0 where there is a zero
        middle = np.where(has_zero, (low * at_high - high * at_low) / slope, low)
        at_middle = error(middle) - middle
        if np.abs(at_middle[has_zero]).max(initial=0.0) < 1e-7:
            break
        below = at_middle > 0
        # An end that stays twice counts half, or it would stay for good.
        at_high = np.where(below, np.where(side > 0, at_high / 2, at_high), at_middle)
        at_low = np.where(below, at_middle, np.where(side < 0, at_low / 2, at_low))
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        side = np.where(below, 1, -1)
    return at_middle + middle
