"""`BinStats`: the one binning core behind every binned metric."""

import dataclasses
import math
from functools import partial
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax._arrays import as_floats, as_weights
from calib_jax._hints import check_choice
from calib_jax.metrics._sorting import argsort_floats, running_sums, sort_floats

_FEW = 64  # bins up to here are found by comparing with every edge


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BinStats:
    """Sums per confidence bin. `a + b` merges the statistics of two parts of a data set.

    The parts must have the same edges: bins of equal width, or the same given `edges`. Other ones are
    refused, except inside jit, where values cannot be looked at.

    Attributes:
      count: number (or total weight) of examples `[num_bins]`.
      confidence: sum of their confidences `[num_bins]`.
      correct: sum of their correctness `[num_bins]`.
      edges: `[num_bins + 1]`, ascending from 0 to 1.
    """

    count: jax.Array
    confidence: jax.Array
    correct: jax.Array
    edges: jax.Array

    def __add__(self, other: "BinStats") -> "BinStats":
        if self.edges.shape != other.edges.shape:
            raise ValueError(
                f"BinStats of {self.num_bins} and {other.num_bins} bins cannot be merged"
            )
        traced = any(isinstance(s.edges, jax.core.Tracer) for s in (self, other))
        if not traced and not np.array_equal(self.edges, other.edges):
            raise ValueError(
                "BinStats with different edges cannot be merged: bin all parts by equal width "
                "(scheme='width') or by the same edges (bin_stats(..., edges=first.edges))"
            )
        return BinStats(
            count=self.count + other.count,
            confidence=self.confidence + other.confidence,
            correct=self.correct + other.correct,
            edges=self.edges,
        )

    @property
    def num_bins(self) -> int:
        return self.edges.shape[-1] - 1

    @property
    def weight(self) -> jax.Array:
        """Return the share of the examples in each bin; sums to 1 (NaN if there are none at all)."""
        return self.count / jnp.sum(self.count, axis=-1, keepdims=True)

    @property
    def mean_confidence(self) -> jax.Array:
        """Return the mean confidence per bin; 0 where empty."""
        return self.confidence / self._divisor

    @property
    def accuracy(self) -> jax.Array:
        """Return the accuracy per bin; 0 where empty."""
        return self.correct / self._divisor

    @property
    def gap(self) -> jax.Array:
        """Return mean confidence minus accuracy per bin: positive is over-confident; 0 where empty."""
        return (self.confidence - self.correct) / self._divisor

    @property
    def _divisor(self) -> jax.Array:
        return jnp.where(self.count > 0, self.count, 1.0)

    def ece(self, norm: float = 1) -> jax.Array:
        """Compute `(sum_b weight_b |gap_b|^norm)^(1/norm)`."""
        error = jnp.sum(self.weight * jnp.abs(self.gap) ** norm, axis=-1)
        return error if norm == 1 else root(error, norm)

    def mce(self) -> jax.Array:
        """Return the largest |gap| of a bin; NaN if there are no examples at all."""
        largest = jnp.max(jnp.abs(self.gap), axis=-1)
        return jnp.where(jnp.sum(self.count, axis=-1) == 0, jnp.nan, largest)


class Binning(TypedDict, total=False):
    """Options of `bin_stats` that binned metrics pass on."""

    num_bins: int
    scheme: str
    closed: str
    weights: ArrayLike | None


def root(x: jax.Array, degree: float) -> jax.Array:
    """Return `x^(1/degree)` for `x >= 0`, with slope 0 instead of infinity at 0."""
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1.0) ** (1 / degree), x)


@partial(jax.jit, static_argnames=("num_bins", "scheme", "closed"))
def bin_stats(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 15,
    scheme: str = "width",
    closed: str = "right",
    weights: ArrayLike | None = None,
    edges: ArrayLike | None = None,
) -> BinStats:
    """Compute the sums of count, confidence and correctness per confidence bin.

    Confidence 0 lands in the first bin and 1 in the last, whichever side is closed.

    Args:
      confidence: `[n]` in [0, 1].
      correct: `[n]`, 0 or 1 (or label mass in between).
      num_bins: number of bins.
      scheme: `'width'`: bins `i / num_bins`; these merge across parts of a data set.
        `'mass'`: by rank, the example of rank r in bin `floor(r num_bins / n)`, so that bins differ
        by one example at most, however few or tied the examples are. Examples of the same confidence
        share their mean correctness: the result does not depend on their order. A whole weight
        counts as that many examples; fractional ones are cut into exactly equal parts. Each data set
        has other edges: to merge parts, bin them by the `edges` of one.
      closed: to which bin an example on an inner edge belongs: `'right'` puts it in the lower bin,
        `(lo, hi]`, `'left'` in the upper one, `[lo, hi)`. Means nothing for `'mass'`.
      weights: `[n]`, non-negative; a row of weight 0 (padding) counts for nothing.
      edges: `[num_bins + 1]`, to bin by given edges (of another data set) instead of a scheme.

    Returns:
      `BinStats`

    >>> bins = metrics.bin_stats([0.1, 0.9, 0.8], [0, 1, 0], num_bins=2)
    >>> bins.count.tolist(), bins.correct.tolist()
    ([1.0, 2.0], [0.0, 1.0])
    """
    confidence, correct, weight = check_binary(confidence, correct, weights)
    check_binning(num_bins, scheme, closed)
    if edges is not None:
        edges = jnp.asarray(edges, confidence.dtype)
        index = find_bin(edges[1:-1], confidence, "left" if closed == "right" else "right")
        sums = bin_sums(index, edges.shape[0] - 1, *_columns(confidence, correct, weight))
    elif scheme == "width":
        edges, index = width_bins(confidence, num_bins, closed)
        sums = bin_sums(index, num_bins, *_columns(confidence, correct, weight))
    else:
        edges, sums = _mass_sums(confidence, correct, weight, num_bins)
    count, confidences, hits = sums
    return BinStats(count, confidences, hits, edges)


def check_binning(num_bins: int, scheme: str, closed: str) -> None:
    check_choice("scheme", scheme, ("width", "mass"))
    check_choice("closed", closed, ("right", "left"))
    if num_bins < 1:
        raise ValueError(f"num_bins={num_bins}: expected at least 1")


def check_binary(
    confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return `[n]` of each, in float32 or the float64 of `confidence`.

    A row of weight 0 may hold anything, and is correct 0 times.

    A row whose confidence is NaN is NaN times correct: every sum over it is NaN then, also where the
    confidence itself is only sorted by, which would give it an ordinary place.
    """
    confidence = as_floats(confidence)
    correct = jnp.asarray(correct, confidence.dtype)
    if confidence.ndim != 1 or confidence.shape != correct.shape:
        raise ValueError(
            f"confidence and correct: expected the same shape [n], "
            f"got {confidence.shape} and {correct.shape}"
        )
    correct = jnp.where(jnp.isnan(confidence), jnp.nan, correct)
    weights = as_weights(weights, confidence.shape, confidence.dtype)
    if weights is None:
        return confidence, correct, None
    # Cleaned only where they are summed: cleaning the sort key would tie it to the weights, and a
    # bootstrap over weights would then sort again for each sample.
    return confidence, jnp.where(weights > 0, correct, 0.0), weights


def _columns(
    confidence: jax.Array, correct: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return what `BinStats` sums up: weight, weighted confidence, weighted correctness."""
    if weights is None:
        return jnp.ones_like(confidence), confidence, correct
    return weights, jnp.where(weights > 0, weights * confidence, 0.0), weights * correct


def bin_sums(index: jax.Array, num_bins: int, *columns: jax.Array) -> list[jax.Array]:
    """Return the sums of each column by bin `index`.

    The one place where binning differs by backend: a CPU adds into bins fastest one example after
    the other, an accelerator by comparing every example with every bin and reducing.

    Args:
      index: `[n]`, or `[n, groups]` to bin each group by itself.
      num_bins: number of bins.
      *columns: like `index`.

    Returns:
      `[num_bins]`, or `[groups, num_bins]`, for each column.
    """
    if num_bins > 256:  # comparing with each of so many bins pays nowhere
        return _scatter_sums(index, num_bins, list(columns))
    return jax.lax.platform_dependent(
        index,
        list(columns),
        cpu=lambda i, c: _scatter_sums(i, num_bins, c),
        default=lambda i, c: _compare_sums(i, num_bins, c),
    )


def _scatter_sums(index: jax.Array, num_bins: int, columns: list[jax.Array]) -> list[jax.Array]:
    # Each column's scatter would otherwise compute for itself what went into index and columns.
    index, columns = jax.lax.optimization_barrier((index, columns))
    groups = index.shape[1:]
    slots = math.prod(groups) * num_bins
    # Adding a million float32 one by one into the same bin loses digits. Chunks of a few hundred, and
    # then the chunks' sums two by two, keep them at the same cost.
    n = index.shape[0]
    chunks = 1
    while chunks * 512 < n and chunks * slots < 2**15:
        chunks *= 2
    chunk = jnp.arange(n, dtype=index.dtype) // math.ceil(n / chunks)
    if groups:
        index += jnp.arange(groups[0], dtype=index.dtype)[None] * num_bins
        chunk = chunk[:, None]
    slot = (chunk * slots + index).ravel()

    def per_bin(column: jax.Array) -> jax.Array:
        sums = jax.ops.segment_sum(column.ravel(), slot, chunks * slots)
        sums = sums.reshape(chunks, *groups, num_bins)
        while sums.shape[0] > 1:
            sums = sums[0::2] + sums[1::2]
        return sums[0]

    return [per_bin(c) for c in columns]


def _compare_sums(index: jax.Array, num_bins: int, columns: list[jax.Array]) -> list[jax.Array]:
    bins = jnp.arange(num_bins, dtype=index.dtype).reshape(*[1] * index.ndim, num_bins)
    member = index[..., None] == bins
    return [jnp.sum(jnp.where(member, c[..., None], 0.0), axis=0) for c in columns]


def width_bins(confidence: jax.Array, num_bins: int, closed: str) -> tuple[jax.Array, jax.Array]:
    """Return edges of equal width, and the bin of each confidence as those rounded edges decide it."""
    fixed = np.asarray(np.arange(num_bins + 1) / num_bins, confidence.dtype)
    edges = jnp.asarray(fixed)
    if num_bins <= _FEW:
        side = "left" if closed == "right" else "right"
        return edges, find_bin(fixed[1:-1], confidence, side)
    # Many bins: arithmetic says which, give or take one, and the edges on either side decide.
    guess = jnp.clip(jnp.floor(confidence * num_bins), 0, num_bins - 1).astype(jnp.int32)
    lower, upper = edges[guess], edges[guess + 1]
    if closed == "left":
        above, below = confidence >= upper, confidence < lower
    else:
        above, below = confidence > upper, confidence <= lower
    guess += above.astype(jnp.int32) - below.astype(jnp.int32)
    return edges, jnp.clip(guess, 0, num_bins - 1)


def width_l1(
    confidence: jax.Array,
    correct: jax.Array,
    weights: jax.Array | None,
    num_bins: int,
    closed: str,
) -> jax.Array:
    """Compute the L1 error in bins of equal width; of each group, if the inputs are `[n, groups]`.

    `sum_b n_b/n |C_b - A_b|` is `sum_b |sum_{i in b} (confidence_i - correct_i)| / n`: one column to add
    up instead of `BinStats`' three, and no means.
    """
    _, index = width_bins(confidence, num_bins, closed)
    residual = confidence - correct
    total: jax.Array | int = confidence.shape[0]
    if weights is not None:
        total = jnp.sum(weights)
        weights = weights.reshape(-1, *[1] * (residual.ndim - 1))
        residual = jnp.where(weights > 0, weights * residual, 0.0)
    (sums,) = bin_sums(index, num_bins, residual)
    return jnp.sum(jnp.abs(sums), axis=-1) / total


def find_bin(inner_edges: jax.Array | np.ndarray, x: jax.Array, side: str) -> jax.Array:
    """Return how many ascending edges are below each x (`side='left'`), or at most x (`'right'`)."""
    if inner_edges.shape[0] > _FEW:
        return jnp.searchsorted(jnp.asarray(inner_edges), x, side=side).astype(jnp.int32)
    # One comparison after the other: a loop over x that vectorizes, where a search does not.
    index = jnp.zeros(x.shape, jnp.int32)
    for edge in inner_edges:
        beyond = (x > edge) if side == "left" else (x >= edge)
        index += beyond.astype(jnp.int32)
    return index


def cut_ranks(
    total: jax.Array, whole: jax.Array, b: jax.Array, num_bins: jax.Array | int
) -> jax.Array:
    """Return the weight below the b-th cut of `total` into `num_bins` equal parts.

    Whole weights stand for repeated examples, which are not divided: the cut is rounded up.
    """
    below = b.astype(total.dtype) * total
    parts = jnp.asarray(num_bins, total.dtype)
    rank = below / parts
    nearest = jnp.round(rank)
    on_example = nearest * parts == below  # division by a constant may be an ulp off
    return jnp.where(whole, jnp.where(on_example, nearest, jnp.ceil(rank)), rank)


def _mass_sums(
    confidence: jax.Array, correct: jax.Array, weights: jax.Array | None, num_bins: int
) -> tuple[jax.Array, list[jax.Array]]:
    """Return edges and sums of bins of equal mass.

    Between bins b - 1 and b lies a threshold confidence, at a known rank. Every example is below,
    between or equal to the thresholds, so only the confidences are sorted and the sums are taken over
    `2 num_bins - 1` slots of the unsorted examples. A slot of examples equal to a threshold is then
    divided between its bins by rank.
    """
    below, above, rank = _thresholds(confidence, weights, num_bins)
    slot = find_bin(above, confidence, "left") + find_bin(above, confidence, "right")
    sums = bin_sums(slot, 2 * num_bins - 1, *_columns(confidence, correct, weights))

    at = find_bin(above, above, "left") + find_bin(above, above, "right")
    before = [running_sums(s) for s in sums]
    tied = sums[0][at]
    share = (rank - before[0][at]) / jnp.where(tied > 0, tied, 1.0)

    def per_bin(cuts: jax.Array, total: jax.Array) -> jax.Array:
        return jnp.diff(cuts, prepend=0.0, append=total)

    count = per_bin(rank, before[0][-1])
    conf, corr = (
        per_bin(b[at] + share * s[at], b[-1]) for s, b in zip(sums[1:], before[1:], strict=True)
    )

    middle = (below + above) / 2
    # neighboring floats have no middle: the edge must still send the upper one up.
    inner = jnp.clip(jnp.where(middle > below, middle, above), 0.0, 1.0)
    edges = jnp.pad(inner, (1, 1), constant_values=(0.0, 1.0))
    return edges, [count, conf, corr]


def _thresholds(
    confidence: jax.Array, weights: jax.Array | None, num_bins: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the confidences on either side of each inner boundary and its rank `[num_bins - 1]`.

    Where no example is left above the boundary the confidence above is 2, beyond all.
    """
    n = confidence.shape[0]
    if weights is None:
        ascending = sort_floats(confidence)
        first = jnp.asarray([-(-b * n // num_bins) for b in range(1, num_bins)], jnp.int32)
        last, rank = first - 1, first.astype(confidence.dtype)
    else:
        order = argsort_floats(confidence)
        ascending = confidence[order]
        through = jnp.cumsum(weights[order])
        whole = jnp.all(weights == jnp.round(weights))
        rank = cut_ranks(through[-1], whole, jnp.arange(1, num_bins), num_bins)
        # The examples that the weight runs through on either side; a row of weight 0 is none.
        first = jnp.searchsorted(through, rank, side="right")
        last = jnp.searchsorted(through, rank, side="left")
    return (
        ascending.at[last].get(mode="clip"),
        ascending.at[first].get(mode="fill", fill_value=2.0),
        rank,
    )
