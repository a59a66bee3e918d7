"""The choice of a calibrator by cross-fitted NLL."""

import numpy as np
import pytest

from calib_jax import posthoc
from calib_jax.posthoc import _auto

RNG = np.random.default_rng(0)
N = 120


def two_classes() -> tuple[np.ndarray, np.ndarray]:
    """Scores whose log odds are shifted: a temperature cannot repair that, a bias can."""
    true = RNG.normal(size=N)
    scores = np.stack([np.zeros(N), true + 3], axis=1).astype(np.float32)
    return scores, (RNG.random(N) < 1 / (1 + np.exp(-true))).astype(int)


LOGITS, LABELS = two_classes()
NAMES = ("temperature", "platt")


@pytest.fixture(scope="module")
def fitted() -> posthoc.Auto:
    return posthoc.Auto.fit(LOGITS, LABELS, candidates=NAMES, folds=3)


def test_it_chooses_the_lowest_cross_fitted_nll_and_says_so(fitted: posthoc.Auto) -> None:
    fold = np.empty(N, int)
    fold[np.random.default_rng(0).permutation(N)] = np.arange(N) % 3
    for name, nll in zip(NAMES, fitted.nll, strict=True):
        surprise = np.empty(N)
        for i in range(3):
            others, left_out = fold != i, fold == i
            calibrator = posthoc.CALIBRATORS[name](LOGITS, LABELS, weights=others * 1.0)
            probs = np.asarray(calibrator(LOGITS[left_out]))
            surprise[left_out] = -np.log(probs[np.arange(left_out.sum()), LABELS[left_out]])
        np.testing.assert_allclose(nll, surprise.mean(), rtol=1e-5)
    assert fitted.chosen == "platt"
    assert fitted.reason == (
        f"platt: lowest cross-fitted NLL (temperature {fitted.nll[0]:.4f}, platt {fitted.nll[1]:.4f})"
    )
    want = posthoc.Platt.fit(LOGITS, LABELS)(LOGITS)
    np.testing.assert_allclose(fitted(LOGITS), want, atol=1e-5)


def test_rows_of_weight_zero_change_nothing(fitted: posthoc.Auto) -> None:
    weights = (np.arange(N) % 5 > 0).astype(np.float32)
    broken = np.where(weights[:, None] == 0, np.nan, LOGITS)
    labels = np.where(weights == 0, -1, LABELS)
    options = {"weights": weights, "candidates": NAMES, "folds": 3}
    got = posthoc.Auto.fit(broken, labels, **options)
    want = posthoc.Auto.fit(LOGITS, np.where(weights == 0, 1 - LABELS, LABELS), **options)
    np.testing.assert_allclose(got.nll, want.nll, rtol=1e-5)
    np.testing.assert_allclose(got(LOGITS), want(LOGITS), atol=1e-5)
    assert np.max(np.abs(got.nll - fitted.nll)) > 1e-4


def test_a_probability_of_0_does_not_rule_a_candidate_out(monkeypatch) -> None:
    """It counts as 1e-30, as in an evaluation; what is no number is never chosen."""
    extreme = LOGITS.copy()
    extreme[5] = [400.0, 0.0] if LABELS[5] else [0.0, 400.0]
    got = posthoc.Auto.fit(extreme, LABELS, candidates=["ets", "platt"], folds=2)
    assert np.isfinite(np.asarray(got.nll)).all()

    def broken(logits, labels, *, weights=None, check=True):
        return posthoc.Temperature(np.float32("nan"))

    monkeypatch.setitem(_auto._FITS, "temperature", broken)
    chosen = posthoc.Auto.fit(LOGITS, LABELS, candidates=NAMES, folds=2)
    assert chosen.chosen == "platt"
    assert chosen.reason.startswith("platt: lowest cross-fitted NLL (temperature inf, platt 0.")


def test_files(fitted: posthoc.Auto, tmp_path) -> None:
    posthoc.save(tmp_path / "auto.npz", fitted)
    again = posthoc.load(tmp_path / "auto.npz")
    assert isinstance(again, posthoc.Auto)
    assert again.reason == fitted.reason
    assert isinstance(again.calibrator, posthoc.Platt)
    np.testing.assert_array_equal(again(LOGITS), fitted(LOGITS))


def test_candidates_by_default() -> None:
    assert set(_auto._candidates(2)) == set(_auto._FITS)
    assert set(_auto._candidates(10)) == set(_auto._FITS) - {"platt", "beta"}
    assert set(_auto._candidates(201)) == set(_auto._FITS) - {"platt", "beta", "sms"}
    assert _auto._FITS.keys() <= posthoc.CALIBRATORS.keys()
    assert {name: posthoc.CALIBRATORS[name] for name in _auto._FITS} == _auto._FITS


def test_errors() -> None:
    with pytest.raises(ValueError, match="did you mean 'platt'"):
        posthoc.Auto.fit(LOGITS, LABELS, candidates=["plat"])
    with pytest.raises(ValueError, match="at least one name"):
        posthoc.Auto.fit(LOGITS, LABELS, candidates=[])
    with pytest.raises(ValueError, match="folds=1 of 120 examples"):
        posthoc.Auto.fit(LOGITS, LABELS, candidates=NAMES, folds=1)
    with pytest.raises(ValueError, match="folds=5 of 1 examples"):
        posthoc.Auto.fit(LOGITS[:1], LABELS[:1], candidates=NAMES)
    with pytest.raises(ValueError, match="probabilities"):
        posthoc.Auto.fit([[0.6, 0.4], [0.5, 0.5]], [0, 1])
