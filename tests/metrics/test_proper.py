"""accuracy, nll, brier_score, f1, confusion_matrix, brier_decomposition, refinement."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit, run
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn import metrics as skm

from calib_jax import metrics


def make(n=120, k=4, seed=0, scale=2.0):
    """Logits that know something about the labels and are too sure of it."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    logits = rng.normal(size=(n, k)) + 1.2 * np.eye(k)[labels]
    return (scale * logits).astype(np.float32), labels


def float_weights(n=120):
    return np.random.default_rng(9).uniform(0, 3, n)


def test_two_rows_by_hand():
    # Probabilities 1/4, 3/4 and 1/2, 1/2.
    logits, labels = jnp.array([[0.0, math.log(3.0)], [0.0, 0.0]]), jnp.array([0, 1])
    want = (math.log(4) + math.log(2)) / 2
    np.testing.assert_allclose(run(metrics.nll, logits, labels), want, rtol=1e-6)
    # (3/4)^2 + (3/4)^2 and 1/2: summed over classes, no 1/2.
    want = (1.125 + 0.5) / 2
    np.testing.assert_allclose(run(metrics.brier_score, logits, labels), want, rtol=1e-6)
    # Row 1: class 1 is predicted, wrong. Row 2: a tie, the first class wins, wrong.
    np.testing.assert_allclose(run(metrics.accuracy, logits, labels), 0.0)
    np.testing.assert_array_equal(run(metrics.confusion_matrix, logits, labels), [[0, 1], [1, 0]])
    conf, correct = metrics.top_label(logits, labels)
    np.testing.assert_allclose(conf, [0.75, 0.5], rtol=1e-6)
    np.testing.assert_array_equal(correct, [0, 0])


@pytest.mark.parametrize("weighted", [False, True])
def test_against_scikit_learn(weighted):
    logits, labels = make()
    w = float_weights() if weighted else None
    probs, predicted, every = softmax(logits.astype(np.float64), 1), logits.argmax(1), range(4)
    pairs = {
        "accuracy": (metrics.accuracy, skm.accuracy_score(labels, predicted, sample_weight=w)),
        "nll": (metrics.nll, skm.log_loss(labels, probs, labels=every, sample_weight=w)),
        "confusion_matrix": (
            metrics.confusion_matrix,
            skm.confusion_matrix(labels, predicted, labels=every, sample_weight=w),
        ),
        "brier_score": (
            metrics.brier_score,
            np.average(((probs - np.eye(4)[labels]) ** 2).sum(1), weights=w),
        ),
    }
    for name, (metric, want) in pairs.items():
        got = run(metric, logits, labels, weights=w)
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("case", ["plain", "weights", "absent_label", "never_predicted"])
def test_f1_against_scikit_learn(average, case):
    logits, labels = make()
    weights = float_weights() if case == "weights" else None
    if case == "absent_label":
        labels = np.where(labels == 2, 0, labels)
    if case == "never_predicted":
        logits[:, 1] = -50
    want = skm.f1_score(
        labels, logits.argmax(1), labels=range(4), average=average, zero_division=0,
        sample_weight=weights,
    )  # fmt: skip
    got = run(metrics.f1, logits, labels, average=average, weights=weights)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_f1_by_hand_counts_a_class_nobody_has():
    # Predictions 0 0 1, labels 0 1 1, third class unseen: F1 = 2/3, 2/3, 0.
    logits = jnp.eye(3)[jnp.array([0, 0, 1])] * 5
    labels = jnp.array([0, 1, 1])
    np.testing.assert_allclose(run(metrics.f1, logits, labels), 4 / 9, rtol=1e-6)
    np.testing.assert_allclose(
        run(metrics.f1, logits, labels, average="weighted"), 2 / 3, rtol=1e-6
    )


def test_f1_and_summary_of_fifty_thousand_classes():
    """`label * K + prediction` has no place in 32 bits there, and K x K no place in memory."""
    k = 50_000
    labels = np.array([0, 49_998, 49_998, 49_999, 49_999, 7], np.int32)
    predicted = np.array([0, 49_998, 49_999, 49_999, 3, 7])
    logits = np.zeros((6, k), np.float32)
    logits[np.arange(6), predicted] = 20.0
    # F1 of 0, 7: 1; of 49,998: 2 (1) / (2 + 1); of 49,999: 2 (1) / (2 + 2); of all others 0.
    each = {0: 1.0, 7: 1.0, 49_998: 2 / 3, 49_999: 0.5}
    weighted = sum(each[y] for y in labels) / 6
    chex.assert_trees_all_close(
        (
            run(metrics.f1, logits, labels),
            run(metrics.f1, logits, labels, average="weighted"),
        ),
        (sum(each.values()) / k, weighted),
        rtol=1e-5,
    )
    memory = jax.jit(metrics.summary).lower(logits, labels).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 16 * logits.nbytes
    summary = metrics.summary(logits, labels)
    chex.assert_tree_all_finite(summary)
    chex.assert_trees_all_close(summary["f1_weighted"], weighted, rtol=1e-5)
    chex.assert_trees_all_close(summary["accuracy"], 4 / 6, rtol=1e-6)


@pytest.mark.parametrize("label", [-1, 4])
def test_a_label_that_is_no_class_is_named_unless_its_row_is_padding(label):
    logits, labels = make()
    bad = labels.copy()
    bad[[3, 5]] = label
    weights = np.ones(120)
    weights[[3, 5]] = 0
    functions = (metrics.accuracy, metrics.nll, metrics.f1, metrics.refinement, metrics.summary)
    for function in functions:
        with pytest.raises(ValueError, match=f"expected 0 to 3, found {label} .2 of 120"):
            function(logits, bad)
        chex.assert_trees_all_close(
            function(logits, bad, weights=weights), function(logits, labels, weights=weights)
        )


def test_f1_bad_average_names_it():
    with pytest.raises(ValueError, match="micro"):
        metrics.f1(*make(), average="micro")


def test_soft_labels_are_expectations():
    logits, labels = make()
    soft = np.random.default_rng(2).dirichlet(np.ones(4), len(labels)).astype(np.float32)
    logp = log_softmax(logits.astype(np.float64), 1)
    np.testing.assert_allclose(
        run(metrics.nll, logits, soft), -(soft * logp).sum(1).mean(), rtol=1e-5
    )
    brier = ((np.exp(logp) - soft) ** 2).sum(1).mean()
    np.testing.assert_allclose(run(metrics.brier_score, logits, soft), brier, rtol=1e-5)
    onehot = np.eye(4, dtype=np.float32)[labels]
    for metric in (metrics.nll, metrics.brier_score, metrics.accuracy):
        np.testing.assert_allclose(
            run(metric, logits, onehot), run(metric, logits, labels), rtol=1e-6
        )


def test_huge_logits_stay_finite():
    logits = jnp.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]])
    labels = jnp.array([1, 1])
    np.testing.assert_allclose(run(metrics.nll, logits, labels), 1e4, rtol=1e-6)
    np.testing.assert_allclose(run(metrics.brier_score, logits, labels), 1.0, rtol=1e-6)
    both = jax.grad(lambda z: metrics.nll(z, labels) + metrics.brier_score(z, labels))
    grads = quick_jit(both)(logits)
    assert np.isfinite(grads).all()


def test_constant_shift_changes_nothing():
    logits, labels = make()
    for metric in (metrics.nll, metrics.brier_score, metrics.accuracy, metrics.refinement):
        np.testing.assert_allclose(
            run(metric, logits + 50, labels), run(metric, logits, labels), rtol=1e-4, atol=1e-5
        )


def test_top_label_of_logits_and_of_probabilities():
    logits, labels = make()
    probs = softmax(logits.astype(np.float64), 1)
    for conf, correct in (
        metrics.top_label(logits, labels),
        metrics.top_label_probs(probs.astype(np.float32), labels),
    ):
        np.testing.assert_allclose(conf, probs.max(1), rtol=1e-5)
        np.testing.assert_array_equal(np.asarray(correct), logits.argmax(1) == labels)


# --- Murphy's decomposition on the bins --------------------------------------------------------


@pytest.mark.parametrize("binning", [{}, {"num_bins": 7, "closed": "left"}, {"scheme": "mass"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_decomposition_adds_up_to_the_binned_brier_score(binning, weighted):
    conf, correct = quick_jit(metrics.top_label)(*make())
    w = float_weights() if weighted else None
    parts = run(metrics.brier_decomposition, conf, correct, weights=w, **binning)
    bins = run(metrics.bin_stats, conf, correct, weights=w, **binning)
    count, right = np.float64(bins.count), np.float64(bins.correct)
    p = np.float64(bins.confidence) / np.maximum(count, 1e-30)
    # Every row scored with the mean confidence of its bin: `right` rows against 1, the rest 0.
    brier = (right * (p - 1) ** 2 + (count - right) * p**2).sum() / count.sum()
    np.testing.assert_allclose(
        parts.reliability - parts.resolution + parts.uncertainty, brier, rtol=1e-5
    )
    accuracy = np.average(correct, weights=w)
    np.testing.assert_allclose(parts.uncertainty, accuracy * (1 - accuracy), rtol=1e-5)
    gap2 = run(metrics.ece, conf, correct, weights=w, norm=2, **binning) ** 2
    np.testing.assert_allclose(parts.reliability, gap2, rtol=1e-5)
    assert float(parts.resolution) >= 0


def test_decomposition_by_hand():
    # Bins of 1/2. {.2, .4}: conf .3, acc 0. {.6, .8, 1, 1}: conf .85, acc 3/4. Overall 1/2.
    conf, correct = jnp.array([0.2, 0.4, 0.6, 0.8, 1, 1]), jnp.array([0, 0, 0, 1, 1, 1])
    parts = run(metrics.brier_decomposition, conf, correct, num_bins=2)
    np.testing.assert_allclose(parts.reliability, (0.3**2 + 2 * 0.1**2) / 3, rtol=1e-5)
    np.testing.assert_allclose(parts.resolution, (0.5**2 + 2 * 0.25**2) / 3, rtol=1e-5)
    np.testing.assert_allclose(parts.uncertainty, 0.25, rtol=1e-6)


# --- refinement: the NLL that temperature cannot remove ----------------------------------------


def best_nll(logits, labels, weights=None):
    logits = logits.astype(np.float64)

    def loss(log_beta):
        logp = log_softmax(np.exp(log_beta) * logits, 1)
        return -np.average(logp[np.arange(len(labels)), labels], weights=weights)

    return minimize_scalar(loss, bounds=(-12, 12), method="bounded", options={"xatol": 1e-9}).fun


@pytest.mark.parametrize("scale", [0.02, 2.0, 200.0])
def test_refinement_against_scipy_whatever_the_scale(scale):
    logits, labels = make(scale=scale)
    want = best_nll(logits, labels)
    got = run(metrics.refinement, logits, labels)
    np.testing.assert_allclose(got, want, rtol=2e-5)
    assert float(got) <= float(run(metrics.nll, logits, labels)) + 1e-6


def test_refinement_with_weights():
    logits, labels = make()
    w = float_weights()
    np.testing.assert_allclose(
        run(metrics.refinement, logits, labels, weights=w), best_nll(logits, labels, w), rtol=2e-5
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_guesses_have_a_bounded_temperature(scale):
    """Labels with the least logit: T is 1,000, or 1,000 typical gaps. Gaps of e^-1 and e^3: e."""
    gaps = scale * np.repeat(np.exp([-1.0, 3.0]), 10)
    logits = np.stack([gaps, 0 * gaps, -gaps], axis=1).astype(np.float32)
    beta = run(metrics.inverse_temperature, logits, np.full(20, 2))
    chex.assert_trees_all_close(1 / beta, 1000 * max(1.0, scale * np.e), rtol=1e-4)
    # Weights count: all of it on the narrow gaps, or three to one.
    weights = np.repeat([3.0, 1.0], 10)
    beta = run(metrics.inverse_temperature, logits, np.full(20, 2), weights=weights)
    chex.assert_trees_all_close(1 / beta, 1000 * max(1.0, float(scale)), rtol=1e-4)
    # Rows of equal logits have no gap and no say.
    more = np.concatenate([logits, np.full((5, 3), 7.0, np.float32)])
    beta = run(metrics.inverse_temperature, more, np.full(25, 2))
    chex.assert_trees_all_close(1 / beta, 1000 * max(1.0, scale * np.e), rtol=1e-4)


def test_gradient_of_the_refinement_is_that_of_the_nll_at_the_best_temperature():
    logits, labels = make()
    beta = float(metrics.inverse_temperature(logits, labels))
    got = jax.grad(lambda z: metrics.refinement(z, labels))(jnp.asarray(logits))
    want = jax.grad(lambda z: metrics.nll(beta * z, labels))(jnp.asarray(logits))
    chex.assert_trees_all_close(got, want, rtol=1e-4, atol=1e-8)


def test_refinement_at_the_ends():
    # Separable: the loss goes to 0. Worse than chance: the best is T -> infinity, log K.
    _, labels = make()
    right = 3 * np.eye(4, dtype=np.float32)[labels]
    np.testing.assert_allclose(run(metrics.refinement, right, labels), 0.0, atol=1e-5)
    np.testing.assert_allclose(run(metrics.refinement, -right, labels), math.log(4), rtol=1e-5)


def test_refinement_of_a_masked_class_is_that_of_the_others():
    logits, labels = make(scale=5.0)
    masked = np.concatenate([logits, np.full((120, 1), -np.inf, np.float32)], axis=1)
    far = np.where(np.isinf(masked), -1e4, masked).astype(np.float32)
    soft = 0.9 * np.eye(5, dtype=np.float32)[labels]
    soft[:, :4] += 0.1 / 4
    for y, without in ((labels, labels), (soft, soft[:, :4])):
        got = run(metrics.refinement, masked, y)
        assert float(got) < float(run(metrics.nll, masked, y)) - 0.1
        np.testing.assert_allclose(got, run(metrics.refinement, logits, without), rtol=1e-5)
        np.testing.assert_allclose(got, run(metrics.refinement, far, y), rtol=1e-5)
        np.testing.assert_allclose(
            run(metrics.inverse_temperature, masked, y),
            run(metrics.inverse_temperature, logits, without),
            rtol=1e-5,
        )
    np.testing.assert_allclose(
        run(metrics.refinement, masked, labels), best_nll(logits, labels), rtol=2e-5
    )


def test_refinement_with_a_label_that_is_masked_is_infinite():
    logits, labels = make()
    logits[0, labels[0]] = -np.inf
    assert run(metrics.refinement, logits, labels) == run(metrics.nll, logits, labels) == np.inf


# --- every one of them -------------------------------------------------------------------------

METRICS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier_score": metrics.brier_score,
    "f1": metrics.f1,
    "confusion_matrix": metrics.confusion_matrix,
    "refinement": metrics.refinement,
}


@pytest.mark.parametrize("name", METRICS)
def test_jit_bfloat16_and_padding(name):
    metric = METRICS[name]
    logits, labels = make()
    want = metric(logits, labels)
    assert want.dtype == jnp.float32
    np.testing.assert_allclose(run(metric, logits, labels), want, rtol=1e-5)
    low = jnp.asarray(logits).astype(jnp.bfloat16)
    got = run(metric, low, labels)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, run(metric, low.astype(jnp.float32), labels), rtol=1e-6)
    padded = np.concatenate([logits, np.full((8, 4), np.nan, np.float32)])
    weights = np.r_[np.ones(120), np.zeros(8)]
    got = run(metric, padded, np.r_[labels, np.zeros(8, int)], weights=weights)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("name", METRICS)
def test_no_rows_is_an_error(name):
    # A NaN would only surface in a table, far from its cause.
    with pytest.raises(ValueError, match=r"0|empty|no "):
        METRICS[name](jnp.zeros((0, 4)), jnp.zeros(0, int))


@pytest.mark.parametrize("name", METRICS)
def test_lengths_must_agree(name):
    logits, labels = make()
    with pytest.raises(ValueError, match="119"):
        METRICS[name](logits, labels[:-1])


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("length", [1, 119])
def test_weights_must_have_one_entry_per_row(name, length):
    # Length 1 is the dangerous one: it broadcasts in the numerator and not in the denominator.
    logits, labels = make()
    with pytest.raises(ValueError, match=f"{length}"):
        METRICS[name](logits, labels, weights=np.ones(length))
