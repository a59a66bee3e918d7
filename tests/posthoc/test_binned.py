"""Isotonic regression and histogram binning, one class against the rest."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from calib_jax import posthoc


def make_data(seed, n=300, k=4, scale=2.0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, k)) * 1.5
    labels = np.argmax(u + rng.gumbel(size=(n, k)), axis=1)
    return (scale * u).astype(np.float32), labels


def probabilities(logits):
    return softmax(np.asarray(logits, np.float64), 1)


def normalised(scores):
    return scores / scores.sum(1, keepdims=True)


def isotonic_oracle(logits, labels, new):
    p, q = probabilities(logits), probabilities(new)
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(p[:, c], labels == c).predict(q[:, c])
        for c in range(p.shape[1])
    ]
    return np.stack(columns, 1)


def histogram_oracle(logits, labels, new, bins, scheme):
    """Scores before normalising, and whether a value lies next to an edge (float32 may differ)."""
    p, q = probabilities(logits), probabilities(new)
    n, k = p.shape
    scores, near = np.zeros(q.shape), np.zeros(q.shape, bool)
    for c in range(k):
        order = sorted(range(n), key=lambda i: p[i, c])
        if scheme == "mass":
            member = [rank * bins // n for rank in range(n)]
            inner = []
            for b in range(1, bins):
                last = max(r for r in range(n) if member[r] < b)
                inner.append((p[order[last], c] + p[order[last + 1], c]) / 2)
        else:
            inner = [b / bins for b in range(1, bins)]
            member = [sum(p[i, c] > e for e in inner) for i in order]
        edges = [0.0, *inner, 1.0]
        values = []
        for b in range(bins):
            inside = [float(labels[order[r]] == c) for r in range(n) if member[r] == b]
            empty = (edges[b] + edges[b + 1]) / 2
            values.append(sum(inside) / len(inside) if inside else empty)
        for i in range(len(q)):
            scores[i, c] = values[sum(q[i, c] > e for e in inner)]
            near[i, c] = min(abs(q[i, c] - e) for e in inner) < 1e-6
    return scores, near.any(1)


# ---------------------------------------------------------------- isotonic


@pytest.mark.parametrize(("seed", "scale"), [(0, 2.0), (1, 0.5)])
def test_isotonic_is_sklearn_per_class(seed, scale):
    logits, labels = make_data(seed, scale=scale)
    new, _ = make_data(seed + 100, scale=scale * 1.5)
    fitted = posthoc.Isotonic.fit(logits, labels)
    for z in (logits, new):
        scores = isotonic_oracle(logits, labels, z)
        some = scores.sum(1) > 1e-3  # a row of zeros has no direction to normalise to
        assert some.mean() > 0.95
        got = np.asarray(fitted(z))
        # Between two thresholds that nearly touch, float32 inputs can move along a steep ramp.
        close = np.abs(got - normalised(scores + 1e-30))[some] < 1e-4
        assert close.all(1).mean() > 0.99


def test_isotonic_smooth_case_to_float_precision():
    """Well separated thresholds: exact, with no excuse for steep ramps."""
    p = np.linspace(0.05, 0.95, 19)
    logits = np.stack([np.log(p), np.log1p(-p)], 1).astype(np.float32)
    labels = np.array([1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0])
    want = normalised(isotonic_oracle(logits, labels, logits))
    np.testing.assert_allclose(posthoc.Isotonic.fit(logits, labels)(logits), want, atol=1e-5)


def test_isotonic_hand_numbers():
    """Four two-class rows: p = .2 .4 .6 .8, class 0 is right at .4 and .8: pools .4 and .6."""
    p = np.array([0.2, 0.4, 0.6, 0.8])
    logits = np.log(np.stack([p, 1 - p], 1))
    got = posthoc.Isotonic.fit(logits, np.array([1, 0, 1, 0]))(logits)
    np.testing.assert_allclose(got[:, 0], [0, 0.5, 0.5, 1], atol=1e-6)
    # 0.3 lies halfway between the thresholds 0.2 (value 0) and 0.4 (value 1/2)
    middle = posthoc.Isotonic.fit(logits, np.array([1, 0, 1, 0]))(np.log([[0.3, 0.7]]))
    np.testing.assert_allclose(middle, [[0.25, 0.75]], atol=1e-5)


def test_isotonic_between_two_thresholds():
    """Each class is always right at 0.8 and never at 0.1; the new row is in between."""
    labels = np.arange(30) % 3
    logits = np.log(np.where(np.eye(3)[labels] == 1, 0.8, 0.1))
    fitted = posthoc.Isotonic.fit(logits, labels)
    want = np.eye(3)[labels]
    logits[0], want[0] = 0, 1 / 3  # between 0.1 (value 0) and 0.8 (value 1) on the same ramp
    np.testing.assert_allclose(fitted(logits), want, atol=1e-5)


def test_isotonic_all_zero_row_is_a_distribution():
    """Class 0 and 1 are both wrong wherever class 2 is not high; the new row has low scores."""
    p = np.array([[0.45, 0.45, 0.10]] * 6 + [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    labels = np.array([2] * 6 + [0, 1, 2])
    new = np.log([[0.45, 0.45, 0.10], [0.44, 0.44, 0.12]])
    got = np.asarray(posthoc.Isotonic.fit(np.log(p), labels)(new))
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-5)


def test_isotonic_class_without_examples():
    logits, labels = make_data(3)
    labels = np.where(labels == 2, 0, labels)
    got = np.asarray(posthoc.Isotonic.fit(logits, labels)(logits))
    assert np.all(np.isfinite(got))
    np.testing.assert_allclose(got[:, 2], 0, atol=1e-6)


# ---------------------------------------------------------------- histogram binning


@pytest.mark.parametrize("scheme", ["mass", "width"])
@pytest.mark.parametrize("bins", [15, 4])
def test_histogram_binning_against_plain_loops(scheme, bins):
    logits, labels = make_data(4)
    new, _ = make_data(104, scale=3.0)
    fitted = posthoc.HistogramBinning.fit(logits, labels, num_bins=bins, scheme=scheme)
    for z in (logits, new):
        scores, near = histogram_oracle(logits, labels, z, bins, scheme)
        keep = ~near & (scores.sum(1) > 1e-3)
        assert keep.mean() > 0.9
        np.testing.assert_allclose(np.asarray(fitted(z))[keep], normalised(scores[keep]), atol=1e-5)


def test_histogram_binning_defaults_are_15_equal_width_bins():
    logits, labels = make_data(5)
    a = posthoc.HistogramBinning.fit(logits, labels)(logits)
    b = posthoc.HistogramBinning.fit(logits, labels, num_bins=15, scheme="width")(logits)
    np.testing.assert_array_equal(a, b)


def test_histogram_binning_hand_numbers():
    """Two bins for two classes, split between the second and the third example."""
    p = np.array([0.1, 0.2, 0.7, 0.9])
    logits = np.log(np.stack([p, 1 - p], 1))
    labels = np.array([1, 0, 0, 0])
    fitted = posthoc.HistogramBinning.fit(logits, labels, num_bins=2, scheme="mass")
    np.testing.assert_allclose(fitted(logits)[:, 0], [0.5, 0.5, 1, 1], atol=1e-6)
    # the edge is the midpoint 0.45
    new = fitted(np.log([[0.44, 0.56], [0.46, 0.54]]))
    np.testing.assert_allclose(new[:, 0], [0.5, 1], atol=1e-6)


def test_histogram_binning_empty_bins_give_their_middle():
    """All training probabilities are 0.1 or 0.9; a new row falls into the empty bin (.4, .6]."""
    labels = np.array([0, 1] * 10)
    p = np.where(labels == 0, 0.9, 0.1)
    logits = np.log(np.stack([p, 1 - p], 1))
    fitted = posthoc.HistogramBinning.fit(logits, labels, num_bins=5, scheme="width")
    np.testing.assert_allclose(fitted(np.log([[0.55, 0.45]])), [[0.5, 0.5]], atol=1e-6)
    # (.2, .4] and (.6, .8] are empty as well: middles .3 and .7
    np.testing.assert_allclose(fitted(np.log([[0.3, 0.7]])), [[0.3, 0.7]], atol=1e-6)


@pytest.mark.parametrize(("scheme", "rows"), [("mass", 7), ("width", 1)])
def test_fewer_examples_than_bins(scheme, rows):
    logits, labels = make_data(6, n=rows)
    fitted = posthoc.HistogramBinning.fit(logits, labels, scheme=scheme)
    got = np.asarray(fitted(make_data(7, n=7)[0]))
    assert np.all(np.isfinite(got))
    assert got.min() >= 0
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-5)


def test_equal_probabilities_share_their_outcome():
    """Ties over a bin border: the order of the examples must not matter."""
    p = np.array([0.3] * 10 + [0.8] * 10)
    logits = np.log(np.stack([p, 1 - p], 1))
    labels = np.array([0] * 3 + [1] * 7 + [0] * 6 + [1] * 4)
    order = np.random.default_rng(0).permutation(20)
    a = posthoc.HistogramBinning.fit(logits, labels, num_bins=4)(logits)
    b = posthoc.HistogramBinning.fit(logits[order], labels[order], num_bins=4)(logits)
    np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_allclose(a[:, 0], [0.3] * 10 + [0.6] * 10, atol=1e-6)


def test_saturated_probabilities_take_the_end_bins():
    """Exactly 0 and 1 in float32."""
    labels = np.arange(300) % 4
    logits = np.where(np.eye(4)[labels] == 1, 500.0, 0.0).astype(np.float32)
    for scheme in ("mass", "width"):
        got = posthoc.HistogramBinning.fit(logits, labels, scheme=scheme)(logits)
        np.testing.assert_allclose(got, np.eye(4)[labels], atol=1e-6)


def test_unknown_scheme():
    logits, labels = make_data(0)
    with pytest.raises(ValueError, match="quantile"):
        posthoc.HistogramBinning.fit(logits, labels, scheme="quantile")
