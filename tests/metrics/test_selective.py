"""aurc, e_aurc, auroc, fpr_at_tpr, roc_curve, predictive_entropy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import run
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score, roc_curve

from calib_jax import metrics


def rows(n=150, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    conf = rng.uniform(0.2, 1.0, n)
    if digits is not None:
        conf = np.round(conf, digits)
    return conf.astype(np.float32), (rng.uniform(size=n) < conf).astype(np.float32)


def loop_aurc(conf, correct):
    """Mean error rate of the k most confident, k = 1..N; tied rows count their mean error."""
    conf, error = np.asarray(conf), 1.0 - np.asarray(correct, np.float64)
    shared = [error[conf == p].mean() for p in conf]
    order = sorted(range(len(conf)), key=lambda i: -conf[i])
    risks, wrong = [], 0.0
    for k, i in enumerate(order, start=1):
        wrong += shared[i]
        risks.append(wrong / k)
    return sum(risks) / len(risks)


def loop_best_aurc(correct):
    """The same with every error last."""
    return loop_aurc(-np.arange(len(correct)), sorted(correct, reverse=True))


def loop_fpr(scores, positives, tpr):
    """Smallest false positive rate over all thresholds `score >= t` that reach the tpr."""
    pos, neg = scores[positives == 1], scores[positives == 0]
    # Counts, not rates: 19 of 20 is exactly 0.95.
    reach = [t for t in scores if (pos >= t).sum() >= tpr * len(pos) - 1e-9]
    return min((neg >= t).sum() / len(neg) for t in reach)


# --- AURC --------------------------------------------------------------------------------------


def test_aurc_by_hand():
    # Risks 0/1, 1/2, 1/3, 2/4.
    conf, correct = jnp.array([0.9, 0.8, 0.7, 0.6]), jnp.array([1, 0, 1, 0])
    want = (0 + 1 / 2 + 1 / 3 + 1 / 2) / 4
    np.testing.assert_allclose(run(metrics.aurc, conf, correct), want, rtol=1e-6)
    # Two errors last: 0, 0, 1/3, 1/2.
    best = (1 / 3 + 1 / 2) / 4
    np.testing.assert_allclose(run(metrics.e_aurc, conf, correct), want - best, rtol=1e-5)


def test_aurc_of_ties_by_hand():
    # Nothing to order by: every prefix errs at the overall rate.
    conf, correct = jnp.full(5, 0.6), jnp.array([1, 0, 1, 1, 0])
    np.testing.assert_allclose(run(metrics.aurc, conf, correct), 0.4, rtol=1e-6)


@pytest.mark.parametrize("digits", [None, 1])
def test_aurc_against_loop(digits):
    conf, correct = rows(digits=digits)
    want = loop_aurc(conf, correct)
    np.testing.assert_allclose(run(metrics.aurc, conf, correct), want, rtol=1e-5)
    np.testing.assert_allclose(
        run(metrics.e_aurc, conf, correct), want - loop_best_aurc(correct), rtol=1e-5
    )


def test_aurc_at_the_ends():
    conf, _ = rows()
    np.testing.assert_allclose(run(metrics.aurc, conf, np.ones(150)), 0.0, atol=1e-7)
    np.testing.assert_allclose(run(metrics.aurc, conf, np.zeros(150)), 1.0, rtol=1e-6)
    for correct in (np.ones(150), np.zeros(150), conf > 0.6):
        np.testing.assert_allclose(run(metrics.e_aurc, conf, correct), 0.0, atol=1e-6)


def test_aurc_depends_on_the_order_only():
    conf, correct = rows()
    np.testing.assert_allclose(
        run(metrics.aurc, conf**3, correct), run(metrics.aurc, conf, correct), rtol=1e-6
    )


# --- AUROC and FPR -----------------------------------------------------------------------------


def test_auroc_by_hand():
    # Pairs (positive, negative): .8>.5, .8>.1, .5=.5 (half), .5>.1.
    scores, positives = jnp.array([0.8, 0.5, 0.5, 0.1]), jnp.array([1, 1, 0, 0])
    np.testing.assert_allclose(run(metrics.auroc, scores, positives), 3.5 / 4, rtol=1e-6)


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_auroc_against_scikit_learn(digits, weighted):
    scores, positives = rows(digits=digits)
    w = np.random.default_rng(5).uniform(0, 2, 150) if weighted else None
    want = roc_auc_score(positives, scores, sample_weight=w)
    np.testing.assert_allclose(run(metrics.auroc, scores, positives, weights=w), want, rtol=1e-5)
    # Reversed scores: the complement.
    np.testing.assert_allclose(
        run(metrics.auroc, -scores, positives, weights=w), 1 - want, rtol=1e-5
    )


def test_auroc_takes_any_finite_scores():
    scores = jnp.array([-1e30, -3.0, 0.0, 5.0, 1e30])
    np.testing.assert_allclose(
        run(metrics.auroc, scores, jnp.array([0, 0, 1, 0, 1])), 5 / 6, rtol=1e-6
    )


def test_fpr_by_hand():
    # 4 positives at 9, 7, 5, 3; 3 negatives at 8, 4, 1. TPR 1 needs t <= 3: FPR 2/3.
    scores = jnp.array([9.0, 7, 5, 3, 8, 4, 1])
    positives = jnp.array([1, 1, 1, 1, 0, 0, 0])
    for tpr, want in ((1.0, 2 / 3), (0.75, 1 / 3), (0.5, 1 / 3), (0.25, 0.0)):
        np.testing.assert_allclose(
            run(metrics.fpr_at_tpr, scores, positives, tpr=tpr), want, atol=1e-6, err_msg=str(tpr)
        )


def test_fpr_ties_enter_together():
    # The threshold cannot separate a positive from a negative of equal score.
    scores, positives = jnp.array([0.5, 0.5, 0.5, 0.1]), jnp.array([1, 0, 0, 0])
    np.testing.assert_allclose(run(metrics.fpr_at_tpr, scores, positives), 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_fpr_against_loop_and_scikit_learn(digits, seed):
    scores, positives = rows(digits=digits, seed=seed)
    for tpr in (0.5, 0.9, 0.95, 1.0):
        want = loop_fpr(scores, positives, tpr)
        fpr, hit, _ = roc_curve(positives, scores, drop_intermediate=False)
        np.testing.assert_allclose(fpr[hit >= tpr - 1e-9].min(), want)  # the oracle itself
        np.testing.assert_allclose(
            run(metrics.fpr_at_tpr, scores, positives, tpr=tpr), want, atol=1e-6
        )


@pytest.mark.parametrize("count", [18, 19, 20])
def test_fpr_when_the_rate_is_met_exactly(count):
    # 20 positives: 19 / 20 reaches 0.95, in float32 too. Each step down adds one negative.
    scores = np.concatenate([np.arange(20), np.arange(20) - 0.5]).astype(np.float32)
    positives = np.repeat([1, 0], 20)
    got = run(metrics.fpr_at_tpr, scores, positives, tpr=count / 20)
    np.testing.assert_allclose(got, (count - 1) / 20, atol=1e-6)


# --- ROC ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [None, 1])
def test_roc_passes_through_the_points_of_scikit_learn(digits):
    scores, positives = rows(digits=digits)
    false, true = map(np.asarray, run(metrics.roc_curve, scores, positives))
    assert false.shape == true.shape == (151,)
    found = set(zip(false.round(4).tolist(), true.round(4).tolist(), strict=True))
    points = np.stack(roc_curve(positives, scores, drop_intermediate=False)[:2], 1)
    assert found == set(map(tuple, points.astype(np.float32).round(4).tolist()))
    assert (np.diff(false) >= 0).all()
    assert (np.diff(true) >= 0).all()
    np.testing.assert_allclose(
        np.trapezoid(true, false), run(metrics.auroc, scores, positives), rtol=1e-5
    )


def test_roc_leaves_padding_out_and_says_what_is_missing():
    scores, positives = jnp.array([3.0, 2, 1, jnp.nan]), jnp.array([1, 0, 1, 0])
    false, true = run(metrics.roc_curve, scores, positives, weights=jnp.array([1.0, 1, 1, 0]))
    np.testing.assert_allclose(np.unique(np.stack([false, true]), axis=1),
                               [[0, 0, 1, 1], [0, 0.5, 0.5, 1]])  # fmt: skip
    false, true = run(metrics.roc_curve, scores[:2], jnp.zeros(2))
    np.testing.assert_allclose(false, [0, 0.5, 1])
    assert np.isnan(true[1:]).all()


# --- entropy -----------------------------------------------------------------------------------


def test_entropy():
    logits = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32) * 3
    got = metrics.predictive_entropy(logits)
    assert got.shape == (30,)
    np.testing.assert_allclose(got, entropy(softmax(logits, 1), axis=1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        metrics.predictive_entropy(jnp.zeros((1, 8))), math.log(8), rtol=1e-6
    )


def test_entropy_of_certainty_is_zero_with_finite_gradient():
    logits = jnp.array([[1e4, -1e4, 0.0], [-jnp.inf, 0.0, 0.0]])
    np.testing.assert_allclose(metrics.predictive_entropy(logits), [0, math.log(2)], atol=1e-6)
    grad = jax.grad(lambda z: metrics.predictive_entropy(z).sum())(logits)
    assert np.isfinite(grad).all()


# --- every one of them -------------------------------------------------------------------------

METRICS = {
    "aurc": metrics.aurc,
    "e_aurc": metrics.e_aurc,
    "auroc": metrics.auroc,
    "fpr_at_tpr": metrics.fpr_at_tpr,
}


@pytest.mark.parametrize("name", METRICS)
def test_jit_bfloat16_and_padding(name):
    metric = METRICS[name]
    conf, correct = rows()
    want = metric(conf, correct)
    assert want.shape == ()
    assert want.dtype == jnp.float32
    np.testing.assert_allclose(run(metric, conf, correct), want, rtol=1e-5)
    low = jnp.asarray(conf).astype(jnp.bfloat16)
    got = run(metric, low, correct.astype(bool))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, run(metric, low.astype(jnp.float32), correct), rtol=1e-6)
    # Padding may sit anywhere in the order, hold NaN, and be right or wrong.
    weights, padded_correct = np.r_[np.zeros(5), np.ones(150)], np.r_[0, 1, 0, 1, 0, correct]
    for pad in (0.0, 0.6, 1.0, np.nan, -np.nan):
        padded = np.r_[np.full(5, pad), conf].astype(np.float32)
        got = run(metric, padded, padded_correct, weights=weights)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=str(pad))


@pytest.mark.parametrize("name", METRICS)
def test_no_rows_is_an_error(name):
    with pytest.raises(ValueError, match=r"0|empty|no "):
        METRICS[name](jnp.zeros(0), jnp.zeros(0))


def test_accumulation_over_many_rows():
    # 2^18 rows: cumulative float32 sums must not lose the later rows.
    n = 2**18
    conf = np.linspace(0, 1, n, dtype=np.float32)
    correct = np.arange(n) % 10 != 0
    error = np.cumsum(1.0 - correct[::-1]) / np.arange(1, n + 1)
    np.testing.assert_allclose(run(metrics.aurc, conf, correct), error.mean(), rtol=1e-4)


# ---------------------------------------------------------------- points of the risk-coverage curve


def test_risk_at_coverage_and_coverage_at_risk_against_loops():
    rng = np.random.default_rng(7)
    n = 60
    confidence = rng.permutation(n) / n  # no ties
    correct = rng.random(n) < confidence
    weights = rng.integers(0, 3, n)
    order = np.argsort(-confidence)
    covered = np.cumsum(weights[order]) / weights.sum()
    wrong = np.cumsum((weights * ~correct)[order])
    risks = wrong / np.maximum(np.cumsum(weights[order]), 1)
    for share in (0.01, 0.3, 0.5, 1.0):
        got = metrics.risk_at_coverage(confidence, correct, share, weights=weights)
        want = next(r for c, r in zip(covered, risks, strict=True) if c >= share - 1e-9)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    for risk in (0.0, 0.1, 0.3, 1.0):
        got = metrics.coverage_at_risk(confidence, correct, risk, weights=weights)
        want = max([0.0, *(c for c, r in zip(covered, risks, strict=True) if r <= risk + 1e-9)])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


def test_risk_and_coverage_at_the_ends():
    confidence, correct = [0.9, 0.8, 0.8, 0.1], [0, 1, 0, 1]
    assert float(metrics.risk_at_coverage(confidence, correct, 1.0)) == 0.5
    assert float(metrics.risk_at_coverage(confidence, correct, 0.5)) == 0.75  # of a tie: its mean
    assert float(metrics.coverage_at_risk(confidence, correct, 0.1)) == 0.0
    assert float(metrics.coverage_at_risk(confidence, correct, 0.5)) == 1.0
    # The one that is NaN comes last, and would not be seen.
    broken = [0.9, 0.8, 0.7, np.nan]
    assert np.isnan(metrics.risk_at_coverage(broken, correct, 0.5))
    assert np.isnan(metrics.coverage_at_risk(broken, correct, 0.9))
    # Percent in place of fractions, and a share of nothing.
    for wrong in (-0.1, 5.0):
        assert np.isnan(metrics.risk_at_coverage(confidence, correct, wrong))
        assert np.isnan(metrics.coverage_at_risk(confidence, correct, wrong))
        assert np.isnan(metrics.fpr_at_tpr(confidence, correct, wrong))
    assert np.isnan(metrics.risk_at_coverage(confidence, correct, 0.0))


def test_scores_for_other_inputs_have_the_sign_of_the_entropy():
    logits = np.random.default_rng(8).normal(size=(50, 4))
    energy = metrics.energy_score(logits, temperature=2.0)
    np.testing.assert_allclose(energy, -2 * np.log(np.exp(logits / 2).sum(1)), rtol=1e-5)
    np.testing.assert_allclose(metrics.max_logit_score(logits), -logits.max(1), rtol=1e-6)
    # Inside the distribution one logit is large; outside none is.
    both = np.concatenate([8 * np.eye(4)[np.arange(50) % 4] + logits, logits])
    outside = np.arange(100) >= 50
    for score in (metrics.energy_score, metrics.max_logit_score, metrics.predictive_entropy):
        assert float(metrics.auroc(score(both), outside)) > 0.95
    masked = np.pad(logits, ((0, 0), (0, 1)), constant_values=-np.inf)
    np.testing.assert_allclose(
        metrics.energy_score(masked), metrics.energy_score(logits), rtol=1e-6
    )
    with pytest.raises(ValueError, match="probabilities"):
        metrics.energy_score(np.array([[0.5, 0.5], [0.1, 0.9]]))
