"""Intervals from sums: the metrics of the resampled rows, as of `metrics.bootstrap`."""

import jax
import numpy as np
import pytest

from calib_jax import evaluation, metrics
from calib_jax.evaluation import Predictions, _bootstrap


def make(n: int, k: int = 4, seed: int = 0, digits: int | None = None) -> Predictions:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    logits = 2 * (rng.normal(size=(n, k)) + np.eye(k)[labels])
    if digits is not None:
        logits = logits.round(digits)  # ties
    return Predictions(logits.astype(np.float32), labels.astype(np.int32))


def rows_of(predictions: Predictions) -> _bootstrap.Rows:
    """Row statistics in float64 numpy."""
    z, y = predictions.logits.astype(np.float64), predictions.labels
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    at = np.arange(len(y))
    brier = ((p - np.eye(z.shape[1])[y]) ** 2).sum(1)
    correct = (p.argmax(1) == y).astype(float)
    return _bootstrap.Rows(p.max(1).astype(np.float32), correct, -np.log(p[at, y]), brier)


def oracle(rows: _bootstrap.Rows, drawn: np.ndarray) -> dict[str, float]:
    """The metrics of the rows that were drawn, written out one by one, in float64."""
    conf, corr = rows.confidence[drawn].astype(np.float64), rows.correct[drawn]
    n = len(drawn)
    edges = np.asarray(np.arange(1, 15) / 15, np.float32)
    index = np.searchsorted(edges, rows.confidence[drawn], side="left")
    ece = sum(abs((conf - corr)[index == b].sum()) for b in range(15)) / n
    # Examples of the same confidence share their mean correctness.
    order = np.argsort(conf, kind="stable")
    c, values = conf[order], corr[order]
    shared = np.array([values[c == x].mean() for x in np.unique(c)])[
        np.unique(c, return_inverse=True)[1]
    ]
    mass = np.arange(n) * 15 // n
    ece_mass = sum(abs((c - shared)[mass == b].sum()) for b in range(15)) / n
    risk = np.cumsum((1 - shared)[::-1]) / np.arange(1, n + 1)
    return {
        "accuracy": corr.mean(),
        "nll": rows.nll[drawn].mean(),
        "brier": rows.brier[drawn].mean(),
        "ece": ece,
        "ece_mass": ece_mass,
        "aurc": risk.mean(),
    }


@pytest.mark.parametrize("digits", [None, 0])
def test_resampled_metrics_are_those_of_the_drawn_rows(digits) -> None:
    rows = rows_of(make(211, digits=digits))
    (samples,) = _bootstrap.resample([rows], seed=3, num_samples=5)
    rng = np.random.default_rng(3)
    for i in range(5):
        drawn = rng.integers(0, 211, 211)
        for key, value in oracle(rows, drawn).items():
            np.testing.assert_allclose(samples[key][i], value, atol=2e-6, err_msg=key)
        weights = np.bincount(drawn, minlength=211).astype(np.float32)
        want = metrics.smooth_ece(rows.confidence, rows.correct, weights=weights)
        np.testing.assert_allclose(samples["smooth_ece"][i], want, atol=2e-6)


def test_cells_of_many_rows_change_nothing_that_is_shown(monkeypatch) -> None:
    rows = rows_of(make(3000))
    (exact,) = _bootstrap.resample([rows], seed=0, num_samples=4)
    monkeypatch.setattr(_bootstrap, "_MOST_CELLS", 750)
    (cells,) = _bootstrap.resample([rows], seed=0, num_samples=4)
    for key, values in exact.items():
        np.testing.assert_allclose(cells[key], values, atol=3e-4, err_msg=key)
        if key in ("accuracy", "nll", "brier"):
            np.testing.assert_array_equal(cells[key], values)


def test_intervals_agree_with_metrics_bootstrap() -> None:
    test = make(400)
    (got,) = evaluation.evaluate(test, num_samples=1500)
    confidence, correct = metrics.top_label(test.logits, test.labels)
    for key, metric in {"ece": metrics.ece, "aurc": metrics.aurc}.items():
        want = metrics.bootstrap(
            metric, confidence, correct, key=jax.random.key(0), num_samples=1500
        )
        width = float(want.high - want.low)
        np.testing.assert_allclose(got.intervals[key], (want.low, want.high), atol=0.12 * width)


def test_draws_are_shared_so_that_differences_are_paired() -> None:
    rows = rows_of(make(300))
    shifted = rows._replace(nll=rows.nll + 0.25)
    first, second = _bootstrap.resample([rows, shifted], seed=0, num_samples=40)
    np.testing.assert_allclose(second["nll"] - first["nll"], 0.25, atol=1e-6)
    np.testing.assert_array_equal(second["ece"], first["ece"])
    assert np.ptp(first["nll"]) > 0.02


def test_perfect_and_constant_predictions() -> None:
    rows = _bootstrap.Rows(np.ones(50, np.float32), np.ones(50), np.zeros(50), np.zeros(50))
    (samples,) = _bootstrap.resample([rows], seed=0, num_samples=3)
    for key, values in samples.items():
        np.testing.assert_allclose(values, 1.0 if key == "accuracy" else 0.0, atol=1e-6)


def test_nothing_is_warned_of_equal_logits_and_huge_losses() -> None:
    labels = np.arange(40, dtype=np.int32) % 3
    equal = rows_of(Predictions(np.zeros((40, 3), np.float32), labels))
    for rows in (equal, equal._replace(nll=3e38 * labels.astype(np.float64))):
        with np.errstate(all="raise", under="ignore"):
            (samples,) = _bootstrap.resample([rows], seed=0, num_samples=3)
        assert np.isfinite(samples["smooth_ece"]).all()


def test_fewer_resamples_of_more_examples() -> None:
    sizes = [1, 200_000, 400_000, 10**6, 10**8]
    assert [_bootstrap.default_num_samples(n) for n in sizes] == [500, 500, 250, 100, 100]


def test_comparison_marks_what_differs() -> None:
    test = make(600)
    sharp = Predictions(3 * test.logits, test.labels)
    a, b, same = evaluation.compare({"a": test, "b": sharp, "same": test}, num_samples=200)
    assert a.differences == {}
    low, high = b.differences["nll"]
    assert 0 < low < b.metrics["nll"] - a.metrics["nll"] < high
    assert b.differences["accuracy"] == (0.0, 0.0)
    assert same.differences["ece"] == (0.0, 0.0)


def test_comparison_needs_the_same_examples() -> None:
    test = make(20)
    other = Predictions(test.logits, np.roll(test.labels, 1))
    with pytest.raises(ValueError, match=r"in row \d+ the label is \d in a, \d in b; expected"):
        evaluation.compare({"a": test, "b": other})
    short = Predictions(test.logits[:9], test.labels[:9])
    with pytest.raises(ValueError, match="a has 20 rows, b 9"):
        evaluation.compare({"a": test, "b": short})


def test_classes_in_another_order_are_aligned() -> None:
    test = make(200)
    names = ("a", "b", "c", "d")
    order = [2, 0, 3, 1]
    named = Predictions(test.logits, test.labels, label_names=names)
    mixed = Predictions(
        test.logits[:, order],
        np.argsort(order).astype(np.int32)[test.labels],
        label_names=tuple(names[i] for i in order),
    )
    _, got = evaluation.compare({"a": named, "b": mixed}, num_samples=4)
    assert got.differences["nll"] == pytest.approx((0, 0), abs=1e-6)
    want, got = (
        evaluation.evaluate(named, v, ["vector"], num_samples=4)[1].metrics["nll"]
        for v in (named, mixed)
    )
    assert got == pytest.approx(want, abs=1e-4)
    other = Predictions(test.logits, test.labels, label_names=("a", "b", "c", "e"))
    with pytest.raises(ValueError, match="validation: class 'e' is not in the other predictions"):
        evaluation.evaluate(named, other, ["vector"])
