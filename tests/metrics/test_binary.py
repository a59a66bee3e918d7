"""Metrics of labels that are true or not, against two-class metrics, scikit-learn and loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from sklearn import metrics as sklearn_metrics

from calib_jax import metrics

RNG = np.random.default_rng(0)
N, L = 150, 3
LOGITS = (2 * RNG.normal(size=(N, L))).astype(np.float32)
LABELS = (RNG.random((N, L)) < expit(LOGITS - 0.7)).astype(int)
WEIGHTS = RNG.integers(0, 3, N).astype(float)
Z, Y = LOGITS[:, 0], LABELS[:, 0]


def slow_ece(p: np.ndarray, y: np.ndarray, weights: np.ndarray, bins: int) -> float:
    index = np.clip(np.ceil(p * bins) - 1, 0, bins - 1).astype(int)
    gaps = [np.sum((weights * (p - y))[index == b]) for b in range(bins)]
    return np.abs(gaps).sum() / weights.sum()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_ece_of_the_positive_and_of_the_top(weights: np.ndarray | None) -> None:
    p, weight = expit(Z.astype(float)), np.ones(N) if weights is None else weights
    got = metrics.binary_ece(expit(Z), Y, num_bins=10, weights=weights)
    np.testing.assert_allclose(got, slow_ece(p, Y, weight, 10), rtol=1e-5)
    got = metrics.binary_ece(expit(Z), Y, of="top", num_bins=10, weights=weights)
    want = slow_ece(np.maximum(p, 1 - p), (p > 0.5) == Y, weight, 10)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    two = np.stack([np.zeros(N, np.float32), Z], axis=1)
    same = metrics.ece(*metrics.top_label(two, Y), num_bins=10, weights=weights)
    np.testing.assert_allclose(got, same, rtol=1e-5)


def test_several_labels_one_by_one() -> None:
    options = {"scheme": "mass", "norm": 2, "weights": WEIGHTS}
    got = metrics.binary_ece(expit(LOGITS), LABELS, of="top", **options)
    want = [
        metrics.binary_ece(expit(LOGITS[:, k]), LABELS[:, k], of="top", **options) for k in range(L)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_summary_against_scikit_learn() -> None:
    got = metrics.binary_summary(Z, Y, weights=WEIGHTS)
    p, options = expit(Z.astype(float)), {"sample_weight": WEIGHTS}
    want = {
        "accuracy": sklearn_metrics.accuracy_score(Y, p > 0.5, **options),
        "f1_positive": sklearn_metrics.f1_score(Y, p > 0.5, **options),
        "base_rate": np.average(Y, weights=WEIGHTS),
        "mean_positive": np.average(p, weights=WEIGHTS),
        "nll": sklearn_metrics.log_loss(Y, p, **options),
        "brier_positive": sklearn_metrics.brier_score_loss(Y, p, **options),
        "auroc_positive": sklearn_metrics.roc_auc_score(Y, p, **options),
        "ece_positive": slow_ece(p, Y, WEIGHTS, 15),
        "ece_top": slow_ece(np.maximum(p, 1 - p), (p > 0.5) == Y, WEIGHTS, 15),
    }
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)
    assert got.keys() - want.keys() == {"ece_positive_mass", "smooth_ece_positive", "aurc"}
    assert got.keys() <= metrics.METRICS.keys()


def test_summary_agrees_with_that_of_two_classes() -> None:
    got = metrics.binary_summary(Z, Y)
    two = metrics.summary(np.stack([np.zeros(N, np.float32), Z], axis=1), Y)
    pairs = {name: name for name in ("accuracy", "nll", "aurc")} | {"ece_top": "ece"}
    for name, other in pairs.items():
        np.testing.assert_allclose(got[name], two[other], rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(2 * got["brier_positive"], two["brier"], rtol=1e-5)


def test_multilabel_summary() -> None:
    per_label, macro = metrics.multilabel_summary(LOGITS, LABELS, weights=WEIGHTS)
    one = metrics.binary_summary(LOGITS[:, 1], LABELS[:, 1], weights=WEIGHTS)
    for name, value in one.items():
        np.testing.assert_allclose(per_label[name][1], value, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(macro[name], np.mean(per_label[name]), rtol=1e-6)
    # A label without positives has no AUROC; the mean is that of the others.
    rare = LABELS * np.array([1, 1, 0])
    per_label, macro = metrics.multilabel_summary(LOGITS, rare)
    aurocs = np.asarray(per_label["auroc_positive"])
    assert np.isnan(aurocs).tolist() == [False, False, True]
    np.testing.assert_allclose(macro["auroc_positive"], aurocs[:2].mean(), rtol=1e-6)


def test_padding_infinite_logits_and_nan() -> None:
    broken = np.where(WEIGHTS == 0, np.nan, Z)
    labels = np.where(WEIGHTS == 0, -1, Y)
    got = metrics.binary_summary(broken, labels, weights=WEIGHTS)
    want = metrics.binary_summary(Z, Y, weights=WEIGHTS)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-5, err_msg=name)
    certain = metrics.binary_summary([np.inf, -np.inf, 2.0], [1, 0, 1])
    np.testing.assert_allclose(certain["nll"], np.log1p(np.exp(-2.0)) / 3, rtol=1e-6)
    unknown = metrics.binary_summary(np.where(np.arange(N) == 4, np.nan, Z), Y)
    assert all(np.isnan(value) for value in unknown.values()), unknown
    # Inside jit, a label that is neither 0 nor 1 cannot be refused.
    wrong = jax.jit(metrics.binary_summary)(Z, jnp.asarray(Y).at[4].set(2))
    assert all(np.isnan(value) for value in wrong.values()), wrong
    assert np.isnan(jax.jit(metrics.binary_ece)(expit(Z), jnp.asarray(Y).at[4].set(2)))


def test_errors() -> None:
    with pytest.raises(ValueError, match="these are probabilities"):
        metrics.binary_summary(expit(Z), Y)
    metrics.binary_summary(expit(Z), Y, check=False)
    with pytest.raises(ValueError, match="these are logits"):
        metrics.binary_ece(Z, Y)
    with pytest.raises(ValueError, match="labels: expected 0 or 1, found 2"):
        metrics.binary_ece(expit(Z), np.where(np.arange(N) == 4, 2, Y))
    with pytest.raises(ValueError, match=r"logits: expected \[n\], got shape \(150, 3\)"):
        metrics.binary_summary(LOGITS, LABELS)
    with pytest.raises(ValueError, match=r"logits: expected \[n, num_labels\], got shape \(150,\)"):
        metrics.multilabel_summary(Z, Y)
    with pytest.raises(ValueError, match="expected one of positive, top"):
        metrics.binary_ece(expit(Z), Y, of="both")
    with pytest.raises(ValueError, match="labels: expected integers"):
        metrics.binary_ece(expit(Z), Y[:-1])
