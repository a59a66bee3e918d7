"""ece, mce, classwise_ece, ece_debiased, ece_sweep against hand numbers, loops and live peers."""

import functools
import itertools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import run
from scipy import stats as sps

from calib_jax import metrics


def rows(n=300, seed=0, sharpen=1.6):
    """Overconfident predictions: the true accuracy at confidence p is p ** sharpen."""
    rng = np.random.default_rng(seed)
    conf = rng.uniform(0.1, 0.999, n).astype(np.float32)
    return conf, (rng.uniform(size=n) < conf.astype(np.float64) ** sharpen).astype(np.float32)


def class_rows(n=240, k=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 2
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return probs.astype(np.float32), rng.integers(0, k, n)


def loop_groups(conf, correct, num_bins, scheme="width", closed="right"):
    """Rows of each bin as plain lists of (confidence, correct); ties share their mean."""
    conf, correct = [float(p) for p in np.float32(conf)], [float(c) for c in correct]
    bins = [[] for _ in range(num_bins)]
    if scheme == "width":
        for p, c in zip(conf, correct, strict=True):
            edges = [float(np.float32(i / num_bins)) for i in range(1, num_bins)]
            bins[sum(e < p if closed == "right" else e <= p for e in edges)].append((p, c))
        return bins
    by_value = {}
    for p, c in zip(conf, correct, strict=True):
        by_value.setdefault(p, []).append(c)
    for rank, p in enumerate(sorted(conf)):
        share = sum(by_value[p]) / len(by_value[p])
        bins[rank * num_bins // len(conf)].append((p, share))
    return bins


def loop_gaps(bins):
    """[(share, gap, accuracy, count)] of the non-empty bins."""
    total = sum(len(b) for b in bins)
    out = []
    for b in bins:
        if b:
            conf, acc = (sum(col) / len(b) for col in zip(*b, strict=True))
            out.append((len(b) / total, conf - acc, acc, len(b)))
    return out


def loop_ece(bins, norm=1):
    return sum(w * abs(g) ** norm for w, g, _, _ in loop_gaps(bins)) ** (1 / norm)


def loop_debiased(bins, norm):
    gaps = loop_gaps(bins)
    if norm == 2:
        terms = [w * (g * g - a * (1 - a) / (n - 1)) for w, g, a, n in gaps if n > 1]
        return math.sqrt(max(0.0, sum(terms)))
    expected = 0.0
    for w, g, a, n in gaps:
        sd = math.sqrt(a * (1 - a) / n)
        # scipy's folded normal is |N(c, 1)| with c = mean / sd.
        expected += w * (sps.foldnorm.mean(abs(g) / sd, scale=sd) if sd > 1e-9 else abs(g))
    return max(0.0, 2 * loop_ece(bins) - expected)


def loop_sweep(conf, correct, scheme, norm=1):
    kept = loop_groups(conf, correct, 1, scheme, "left")
    for n in range(2, len(conf) + 1):
        bins = loop_groups(conf, correct, n, scheme, "left")
        acc = [a for _, _, a, _ in loop_gaps(bins)]
        if any(b < a - 1e-9 for a, b in itertools.pairwise(acc)):
            break
        kept = bins
    return loop_ece(kept, norm), sum(1 for b in kept if b)


# --- ece and mce -------------------------------------------------------------------------------


def test_ece_by_hand():
    # Bins of width 1/2: {.2, .4} one right of two, {.6, .9} none right.
    conf, correct = jnp.array([0.2, 0.4, 0.6, 0.9]), jnp.array([1, 0, 0, 0])
    kwargs = {"num_bins": 2}
    np.testing.assert_allclose(
        run(metrics.ece, conf, correct, **kwargs), (0.2 + 0.75) / 2, rtol=1e-6
    )
    np.testing.assert_allclose(run(metrics.mce, conf, correct, **kwargs), 0.75, rtol=1e-6)
    rms = math.sqrt((0.2**2 + 0.75**2) / 2)
    np.testing.assert_allclose(run(metrics.ece, conf, correct, norm=2, **kwargs), rms, rtol=1e-6)


def test_confidence_one_is_in_the_last_bin():
    # torchmetrics#3510: its answer is 0.525 because 1.0 gets a bin of its own.
    conf, correct = jnp.array([0.95, 1.0]), jnp.array([1, 0])
    np.testing.assert_allclose(run(metrics.ece, conf, correct, num_bins=10), 0.475, rtol=1e-6)


def test_ece_golden():
    # Five rows, M=15 right-closed: 3/15 -> bin 2, .21 -> 3, {.5} -> 7, {.97, 1} -> 14.
    conf = jnp.array([3 / 15, 0.21, 0.5, 0.97, 1.0])
    correct = jnp.array([0, 1, 1, 1, 0])
    want = (0.2 + 0.79 + 0.5 + 2 * abs(0.985 - 0.5)) / 5
    np.testing.assert_allclose(run(metrics.ece, conf, correct), want, rtol=1e-6)
    # Left-closed: 3/15 joins .21 in bin 3 with accuracy 1/2.
    want = (2 * abs(0.205 - 0.5) + 0.5 + 2 * abs(0.985 - 0.5)) / 5
    np.testing.assert_allclose(run(metrics.ece, conf, correct, closed="left"), want, rtol=1e-6)


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("norm", [1, 3])
def test_ece_against_loop(scheme, norm):
    conf, correct = rows()
    bins = loop_groups(conf, correct, 15, scheme)
    np.testing.assert_allclose(
        run(metrics.ece, conf, correct, scheme=scheme, norm=norm), loop_ece(bins, norm), rtol=1e-5
    )
    np.testing.assert_allclose(
        run(metrics.mce, conf, correct, scheme=scheme),
        max(abs(g) for _, g, _, _ in loop_gaps(bins)),
        rtol=1e-5,
    )


def test_mce_ignores_bins_of_padding_only():
    conf, correct = jnp.array([0.3, 0.3, 0.95]), jnp.array([0, 1, 0])
    got = run(metrics.mce, conf, correct, num_bins=10, weights=jnp.array([1, 1, 0]))
    np.testing.assert_allclose(got, 0.2, rtol=1e-6)


def test_perfect_and_worst():
    conf, correct = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([0, 0, 1, 1])
    for metric in (metrics.ece, metrics.mce, metrics.ece_debiased):
        np.testing.assert_allclose(run(metric, conf, correct), 0.0, atol=1e-7)
    for metric in (metrics.ece, metrics.mce):
        np.testing.assert_allclose(run(metric, conf, 1 - correct), 1.0, atol=1e-7)


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_all_confidences_equal(scheme):
    # TrustLens#163: collapsed quantile edges gave 0. The gap is 0.9 - 0.4 whatever the bins.
    conf, correct = np.full(60, 0.9, np.float32), np.float32(np.arange(60) % 5 < 2)
    for metric in (metrics.ece, metrics.mce):
        np.testing.assert_allclose(run(metric, conf, correct, scheme=scheme), 0.5, rtol=1e-5)
    np.testing.assert_allclose(run(metrics.ece_sweep, conf, correct, scheme=scheme), 0.5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_fewer_rows_than_bins(scheme):
    conf, correct = jnp.array([0.31, 0.55, 0.93]), jnp.array([0, 1, 1])
    want = (0.31 + 0.45 + 0.07) / 3
    np.testing.assert_allclose(run(metrics.ece, conf, correct, scheme=scheme), want, rtol=1e-5)


def test_gradient_is_the_sign_of_the_gap():
    conf, correct = jnp.array([0.2, 0.4, 0.6, 0.9]), jnp.array([1.0, 0, 0, 0])
    grad = jax.grad(lambda c: metrics.ece(c, correct, num_bins=2))(conf)
    np.testing.assert_allclose(grad, [-0.25, -0.25, 0.25, 0.25], rtol=1e-6)


@pytest.mark.parametrize("norm", [1, 2])
def test_gradient_is_finite_with_empty_bins_and_zero_gap(norm):
    # (0)^(1/2) has no derivative: the perfectly calibrated case must not give NaN.
    conf, correct = jnp.array([0.0, 1.0, 1.0]), jnp.array([0.0, 1, 1])
    grad = jax.grad(lambda c: metrics.ece(c, correct, norm=norm))(conf)
    assert np.isfinite(grad).all()


# --- classwise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("norm", [1, 2])
def test_classwise_against_loop(scheme, norm):
    probs, labels = class_rows()
    want = np.mean(
        [loop_ece(loop_groups(probs[:, k], labels == k, 15, scheme), norm) for k in range(4)]
    )
    np.testing.assert_allclose(
        run(metrics.classwise_ece, probs, labels, scheme=scheme, norm=norm), want, rtol=1e-5
    )


def test_classwise_by_hand_with_a_class_nobody_has():
    # verified_calibration#2. Class 2 never occurs: its column is just the mean probability.
    probs = jnp.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2]])
    labels = jnp.array([0, 1])
    # One bin: |0.4 - 0.5|, |0.45 - 0.5|, |0.15 - 0|.
    got = run(metrics.classwise_ece, probs, labels, num_bins=1)
    np.testing.assert_allclose(got, (0.1 + 0.05 + 0.15) / 3, rtol=1e-5)


# --- debiased ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("norm", [1, 2])
def test_debiased_against_loop(scheme, norm):
    conf, correct = rows()
    bins = loop_groups(conf, correct, 15, scheme)
    want = loop_debiased(bins, norm)
    assert want > 0.05  # not the floor
    np.testing.assert_allclose(
        run(metrics.ece_debiased, conf, correct, scheme=scheme, norm=norm), want, rtol=2e-5
    )


def test_debiased_by_hand():
    # One bin, n=4, conf .9, acc .5: .16 - .25/3.
    conf, correct = jnp.full(4, 0.9), jnp.array([1, 1, 0, 0])
    got = run(metrics.ece_debiased, conf, correct, num_bins=1)
    np.testing.assert_allclose(got, math.sqrt(0.16 - 0.25 / 3), rtol=1e-5)


@pytest.mark.parametrize("norm", [1, 2])
def test_debiased_is_floored_and_finite(norm):
    # Gap 0 with noisy bins: the correction exceeds the plug-in value.
    conf, correct = jnp.full(4, 0.5), jnp.array([1, 1, 0, 0])
    assert float(run(metrics.ece_debiased, conf, correct, num_bins=1, norm=norm)) == 0.0


def test_debiased_l2_ignores_single_row_bins():
    # Width bins of 1/2: {.2} alone contributes 0; {.8, .9, .9} acc 1/3.
    conf, correct = jnp.array([0.2, 0.8, 0.9, 0.9]), jnp.array([1, 1, 0, 0])
    gap = 2.6 / 3 - 1 / 3
    want = math.sqrt(0.75 * (gap**2 - (1 / 3) * (2 / 3) / 2))
    got = run(metrics.ece_debiased, conf, correct, num_bins=2, scheme="width")
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_debiased_removes_the_bias_of_calibrated_predictions():
    # Calibrated by construction: plug-in L2 is about sqrt(M v / N) > 0; debiased averages lower.
    plug, unbiased = [], []
    for seed in range(20):
        conf, correct = rows(300, seed, sharpen=1.0)
        plug.append(run(metrics.ece, conf, correct, scheme="mass", norm=2))
        unbiased.append(run(metrics.ece_debiased, conf, correct))
    assert np.mean(plug) > 0.08
    assert np.mean(unbiased) < 0.5 * np.mean(plug)


# --- sweep -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("seed", range(4))
def test_sweep_against_loop(scheme, seed):
    conf, correct = rows(60, seed, sharpen=1.2)
    want, used = loop_sweep(conf, correct, scheme)
    assert used > 1
    np.testing.assert_allclose(
        run(metrics.ece_sweep, conf, correct, scheme=scheme), want, rtol=1e-5
    )


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_sweep_falls_back_to_one_bin(scheme):
    # Accuracy falls with confidence: two bins already fail. One bin: |0.5 - 0.5| = 0.
    conf, correct = jnp.array([0.1, 0.2, 0.8, 0.9]), jnp.array([1, 1, 0, 0])
    np.testing.assert_allclose(run(metrics.ece_sweep, conf, correct, scheme=scheme), 0.0, atol=1e-6)


def test_sweep_norm():
    conf, correct = rows(60, 3, sharpen=1.2)
    want, _ = loop_sweep(conf, correct, "mass", norm=2)
    got = run(metrics.ece_sweep, conf, correct, scheme="mass", norm=2)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_sweep_with_ties_against_loop():
    conf, correct = rows(60, 1, sharpen=1.2)
    conf = np.round(conf, 1)
    want, used = loop_sweep(conf, correct, "mass")
    assert used > 1
    np.testing.assert_allclose(
        run(metrics.ece_sweep, conf, correct, scheme="mass"), want, rtol=1e-5
    )


def test_sweep_to_the_end_when_always_monotone():
    # Right above, wrong below: every rank binning is monotone, so each row ends in its own bin.
    conf = np.float32([0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
    correct = np.array([0, 0, 0, 1, 1, 1])
    want = np.abs(conf - correct).mean()
    np.testing.assert_allclose(
        run(metrics.ece_sweep, conf, correct, scheme="mass"), want, rtol=1e-5
    )


def test_sweep_max_bins_limits_the_search():
    conf = np.float32([0.15, 0.3, 0.45, 0.6, 0.75, 0.9])
    correct = np.array([0, 0, 0, 1, 1, 1])
    # Two bins of three: gaps .3 and .25.
    got = run(metrics.ece_sweep, conf, correct, scheme="mass", max_bins=2)
    np.testing.assert_allclose(got, 0.275, rtol=1e-5)


# --- every one of them -------------------------------------------------------------------------

TOP_LABEL = {
    "ece": metrics.ece,
    "ece_mass": functools.partial(metrics.ece, scheme="mass"),
    "mce": metrics.mce,
    "debiased": metrics.ece_debiased,
    "debiased_l1": functools.partial(metrics.ece_debiased, norm=1),
    "sweep": metrics.ece_sweep,
}


@pytest.mark.parametrize("name", TOP_LABEL)
def test_jit_and_bfloat16(name):
    metric = TOP_LABEL[name]
    conf, correct = rows(60, sharpen=1.2)
    eager = metric(conf, correct)
    assert eager.shape == ()
    assert eager.dtype == jnp.float32
    np.testing.assert_allclose(run(metric, conf, correct), eager, rtol=1e-5)
    low = jnp.asarray(conf).astype(jnp.bfloat16)
    got = run(metric, low, correct)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, run(metric, np.float32(low), correct), rtol=1e-6)


@pytest.mark.parametrize("name", TOP_LABEL)
def test_one_row_and_no_rows(name):
    assert 0 <= float(run(TOP_LABEL[name], jnp.array([0.7]), jnp.array([1]))) <= 0.3 + 1e-6
    with pytest.raises(ValueError, match=r"0|empty|no "):
        TOP_LABEL[name](jnp.zeros(0), jnp.zeros(0))


# --- live peers: only where they are installed -------------------------------------------------


@pytest.mark.parametrize("norm", [1, 2])
def test_live_verified_calibration(norm):
    peer = pytest.importorskip("calibration")
    conf, correct = rows(600)  # a multiple of 15: array_split and rank agree on the bins
    labels = correct.astype(int)
    # 1-D input means "probability of class 1", which is exactly confidence against correctness.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plugin = peer.lower_bound_scaling_ce(
            conf, labels, p=norm, debias=False, num_bins=15, binning_scheme=peer.get_equal_bins
        )
        debiased = peer.lower_bound_scaling_ce(
            conf, labels, p=2, debias=True, num_bins=15, binning_scheme=peer.get_equal_bins
        )
    got = run(metrics.ece, conf, correct, scheme="mass", norm=norm)
    np.testing.assert_allclose(got, plugin, rtol=1e-5)
    np.testing.assert_allclose(run(metrics.ece_debiased, conf, correct), debiased, rtol=1e-5)


def test_live_torchmetrics():
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.classification")
    probs, labels = class_rows()
    conf, correct = metrics.top_label_probs(probs, labels)
    for norm, name in ((1, "l1"), (2, "l2")):
        want = peer.multiclass_calibration_error(
            torch.tensor(probs), torch.tensor(labels), num_classes=4, n_bins=15, norm=name
        )
        got = run(metrics.ece, conf, correct, closed="left", norm=norm)
        np.testing.assert_allclose(got, float(want), rtol=1e-5)
    want = peer.multiclass_calibration_error(
        torch.tensor(probs), torch.tensor(labels), num_classes=4, n_bins=15, norm="max"
    )
    np.testing.assert_allclose(
        run(metrics.mce, conf, correct, closed="left"), float(want), rtol=1e-5
    )
