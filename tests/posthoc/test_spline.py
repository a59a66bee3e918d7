"""Spline recalibration of the top-1 score against numpy least squares on a natural spline."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.special import softmax

from calib_jax import posthoc


def make_data(seed, n=300, k=4, scale=2.0):
    """No two top scores closer than 1e-4, else float32 runs up a steep line between them."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(4 * n, k)) * 1.5
    labels = np.argmax(u + rng.gumbel(size=(4 * n, k)), axis=1)
    logits = (scale * u).astype(np.float32)
    order = np.argsort(top1(logits))
    apart = order[1:][np.diff(top1(logits)[order]) > 1e-4]
    chosen = rng.permutation(apart)[:n]
    assert len(chosen) == n
    return logits[chosen], labels[chosen]


def top1(logits, labels=None):
    score = softmax(np.asarray(logits, np.float64), 1).max(1)
    return score if labels is None else (score, (logits.argmax(1) == labels).astype(float))


def spline_oracle(logits, labels, knots=6):
    """Gupta et al.: fit h = cumsum(correct - score)/N over the percentile; add its slope.

    The basis: natural cubic splines through the unit vectors at equally spaced knots.
    """
    score, correct = top1(logits, labels)
    order = np.argsort(score)
    score, correct = score[order], correct[order]
    n = len(score)
    h = (np.cumsum(correct) - np.cumsum(score)) / n
    x = np.linspace(0, 1, n)
    basis = CubicSpline(np.linspace(0, 1, knots), np.eye(knots), bc_type="natural")
    coefficients = np.linalg.lstsq(basis(x), h, rcond=None)[0]
    return score, score + basis(x, 1) @ coefficients


def recalibrated(logits, labels, new, knots=6):
    score, value = spline_oracle(logits, labels, knots)
    return np.clip(np.interp(top1(new), score, value), 0, 1)


# Sums of 300 float32 terms and the slope of a spline with 5 intervals: about 1e-7 * 50.
TOLERANCE = 2e-5


@pytest.mark.parametrize(("seed", "scale"), [(0, 2.0), (1, 0.5), (2, 1.0)])
def test_fitted_scores(seed, scale):
    logits, labels = make_data(seed, scale=scale)
    got = posthoc.Spline.fit(logits, labels).confidence(logits)
    want = recalibrated(logits, labels, logits)
    np.testing.assert_allclose(got, want, atol=TOLERANCE)


@pytest.mark.parametrize("knots", [3, 9])
def test_number_of_knots(knots):
    logits, labels = make_data(3)
    got = posthoc.Spline.fit(logits, labels, num_knots=knots).confidence(logits)
    np.testing.assert_allclose(got, recalibrated(logits, labels, logits, knots), atol=TOLERANCE)


def test_new_scores_are_interpolated_and_clamped_at_the_ends():
    logits, labels = make_data(4)
    rng = np.random.default_rng(0)
    new = (rng.normal(size=(300, 4)) * rng.uniform(0, 10, size=(300, 1))).astype(np.float32)
    new[0], new[1] = 0.0, [50.0, 0, 0, 0]  # the lowest and the highest score there is
    score = top1(new)
    assert score.min() < top1(logits).min()
    assert score.max() > top1(logits).max()
    got = posthoc.Spline.fit(logits, labels).confidence(new)
    want = recalibrated(logits, labels, new)
    # Between two close scores the slope of the interpolant can be steep: one order of slack.
    np.testing.assert_allclose(got, want, atol=10 * TOLERANCE)


def test_clipped_to_the_unit_interval():
    """All wrong with growing confidence: the least-squares slope overshoots below 0."""
    logits = np.zeros((300, 4), np.float32)
    logits[:, 0] = np.linspace(0.1, 8, 300)
    fitted = posthoc.Spline.fit(logits, np.ones(300, int))
    got = np.asarray(fitted.confidence(logits))
    assert spline_oracle(logits, np.ones(300, int))[1].min() < -1e-4  # so that clipping matters
    assert got.min() == 0
    assert got.max() <= 0.05
    np.testing.assert_allclose(got, recalibrated(logits, np.ones(300, int), logits), atol=1e-4)


def test_the_calibration_error_of_the_ranks_falls():
    """Kolmogorov-Smirnov error: the largest |h|, which the spline is made to remove."""
    logits, labels = make_data(5, scale=4.0)
    after = np.asarray(posthoc.Spline.fit(logits, labels).confidence(logits), np.float64)
    before, correct = top1(logits, labels)
    order = np.argsort(before)
    ks = [np.abs(np.cumsum((correct - s)[order])).max() / 300 for s in (before, after)]
    assert ks[1] < ks[0] / 4
    assert ks[1] < 0.03


def test_vector_holds_the_score_and_the_scaled_rest():
    logits, labels = make_data(6)
    fitted = posthoc.Spline.fit(logits, labels)
    probs, raw = np.asarray(fitted(logits), np.float64), softmax(logits.astype(np.float64), 1)
    top = logits.argmax(1)
    rows = np.arange(300)
    score = np.asarray(fitted.confidence(logits), np.float64)
    others = np.eye(4)[top] == 0
    rest = raw[others].reshape(300, 3)
    scaled = rest / rest.sum(1, keepdims=True) * (1 - score)[:, None]
    free = score > scaled.max(1) + 1e-5  # where the promise to keep the class costs nothing
    assert free.sum() > 200
    np.testing.assert_allclose(probs[rows, top][free], score[free], atol=1e-6)
    np.testing.assert_allclose(probs[others].reshape(300, 3)[free], scaled[free], atol=1e-5)


@pytest.mark.parametrize("k", [2, 4])
def test_the_class_is_kept_even_when_the_score_falls_to_zero(k):
    logits = np.zeros((300, k), np.float32)
    logits[np.arange(300), np.arange(300) % k] = np.linspace(0.1, 8, 300)
    wrong = (np.arange(300) + 1) % k
    probs = np.asarray(posthoc.Spline.fit(logits, wrong)(logits))
    np.testing.assert_array_equal(probs.argmax(1), logits.argmax(1))
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)
    assert probs.min() >= 0


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.05, 30))
def test_class_and_simplex_for_any_data(seed, scale):
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(300, 4)) * scale).astype(np.float32)
    fitted = posthoc.Spline.fit(logits, rng.integers(0, 4, 300))
    new = (rng.normal(size=(300, 4)) * scale).astype(np.float32)
    for z in (logits, new):
        probs = np.asarray(fitted(z))
        assert np.all(np.isfinite(probs))
        assert probs.min() >= 0
        np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)
        np.testing.assert_array_equal(probs.argmax(1), z.argmax(1))


@pytest.mark.parametrize("rows", [1, 5])
def test_fewer_examples_than_knots(rows):
    logits, labels = make_data(7, n=rows)
    score = np.asarray(posthoc.Spline.fit(logits, labels).confidence(logits))
    assert np.all(np.isfinite(score))
    assert score.min() >= 0
    assert score.max() <= 1


def test_tied_scores():
    """Saturated logits tie at confidence 1; the order of the examples must not decide anything."""
    logits = np.zeros((300, 4), np.float32)
    logits[:, 0] = 200.0
    labels = np.array([0] * 225 + [1] * 75)
    order = np.random.default_rng(0).permutation(300)
    a = posthoc.Spline.fit(logits, labels).confidence(logits)
    b = posthoc.Spline.fit(logits, labels[order]).confidence(logits)
    np.testing.assert_allclose(a, b, atol=1e-5)
    # h falls by 1/4 per example in steps of 1/299 of the percentile axis, not 1/300
    np.testing.assert_allclose(a, 1 - 0.25 * 299 / 300, atol=2e-5)
