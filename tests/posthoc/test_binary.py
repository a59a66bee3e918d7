"""Platt scaling, beta calibration and isotonic regression of labels, against float64 oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from calib_jax import posthoc

NAMES = ["Platt", "Beta", "Isotonic"]
N = 400


def make_data(seed: int, labels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (N,) if labels is None else (N, labels)
    true = rng.normal(size=shape) * 2 - 0.5
    return (1.7 * true + 0.8).astype(np.float32), (rng.random(shape) < expit(true)).astype(int)


SCORES, LABELS = make_data(0)
MANY, MANY_LABELS = make_data(1, labels=3)


def platt_targets(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    positive, negative = np.sum(weights * y), np.sum(weights * (1 - y))
    return np.where(y == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))


def oracle(features: np.ndarray, y: np.ndarray, bounds, weights=None) -> np.ndarray:
    """The parameters with the lowest NLL of Platt's targets in float64: slopes, then the bias."""
    weights = np.ones(len(y)) if weights is None else weights
    t = platt_targets(y, weights)
    x = np.column_stack([features, np.ones(len(y))])

    def loss(params: np.ndarray) -> tuple[float, np.ndarray]:
        u = x @ params
        value = -np.sum(weights * (t * log_expit(u) + (1 - t) * log_expit(-u)))
        return value / weights.sum(), x.T @ (weights * (expit(u) - t)) / weights.sum()

    return minimize(
        loss, np.zeros(x.shape[1]), jac=True, bounds=bounds, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 5000},
    ).x  # fmt: skip


def beta_features(z: np.ndarray) -> np.ndarray:
    return np.column_stack([log_expit(z), -log_expit(-z)])


def test_platt_is_scikit_learns_sigmoid_calibration() -> None:
    reference = _SigmoidCalibration().fit(SCORES.astype(np.float64), LABELS)
    got = posthoc.Platt.fit(SCORES, LABELS)
    np.testing.assert_allclose(got(SCORES), reference.predict(SCORES), atol=2e-4)


def test_platt_oracle_with_weights() -> None:
    weights = np.random.default_rng(2).integers(0, 3, N).astype(float)
    got = posthoc.Platt.fit(SCORES, LABELS, weights=weights)
    slope, bias = oracle(SCORES[:, None].astype(float), LABELS, None, weights)
    np.testing.assert_allclose([got.slope, got.bias], [slope, bias], rtol=2e-3, atol=2e-3)
    with jax.enable_x64(True):
        wide = posthoc.Platt.fit(SCORES.astype(np.float64), LABELS, weights=weights)
        np.testing.assert_allclose([wide.slope, wide.bias], [slope, bias], rtol=1e-4)


@pytest.mark.parametrize("case", ["both", "a is 0", "b is 0", "both are 0"])
def test_beta_oracle(case: str) -> None:
    """Data whose best slope is negative at one end, at the other, and at both."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=N) * 2
    odds = {
        "both": 0.5 * beta_features(z)[:, 0] + 1.5 * beta_features(z)[:, 1],
        "a is 0": -0.5 * beta_features(z)[:, 0] + 1.0 * beta_features(z)[:, 1] - 2,
        "b is 0": 1.0 * beta_features(z)[:, 0] - 0.5 * beta_features(z)[:, 1] + 2,
        "both are 0": -z,
    }[case]
    y = (rng.random(N) < expit(odds)).astype(int)
    want = oracle(beta_features(z), y, [(0, None), (0, None), (None, None)])
    got = posthoc.Beta.fit(z.astype(np.float32), y)
    np.testing.assert_allclose([got.a, got.b, got.c], want, rtol=5e-3, atol=5e-3)
    zeros = {"both": (), "a is 0": ("a",), "b is 0": ("b",), "both are 0": ("a", "b")}[case]
    assert [name for name in "ab" if float(getattr(got, name)) == 0] == list(zeros)
    rising = np.asarray(got(np.linspace(-20, 20, 200)))
    assert np.all(np.diff(rising) >= -1e-6)


def test_beta_by_hand() -> None:
    """Of p = 3/4: log odds a log 3/4 - b log 1/4 + c."""
    calibrator = posthoc.Beta(jnp.array(2.0), jnp.array(0.5), jnp.array(0.1))
    odds = 2 * np.log(0.75) - 0.5 * np.log(0.25) + 0.1
    got = calibrator([[0.0, np.log(3.0)]])
    np.testing.assert_allclose(got, [[1 - expit(odds), expit(odds)]], rtol=1e-6)


@pytest.mark.parametrize("name", ["Platt", "Beta"])
def test_two_classes_are_the_label_that_it_is_the_second(name: str) -> None:
    fit = getattr(posthoc, name).fit
    shift = np.random.default_rng(4).normal(size=N).astype(np.float32)
    logits = np.stack([shift, SCORES + shift], axis=1)
    got = fit(logits, LABELS)(logits)
    np.testing.assert_allclose(got[:, 1], fit(SCORES, LABELS)(SCORES), atol=2e-4)
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_independent_labels_are_fitted_one_by_one(name: str) -> None:
    fit = getattr(posthoc, name).fit
    weights = np.arange(N) % 3
    both = fit(MANY, MANY_LABELS, weights=weights)
    assert (both.num_classes, both.independent) == (3, True)
    for k in range(3):
        one = fit(MANY[:, k], MANY_LABELS[:, k], weights=weights)
        assert one.num_classes == 1
        np.testing.assert_allclose(both(MANY)[:, k], one(MANY[:, k]), atol=1e-4)
    traced = jax.jit(lambda c, z: c(z))(both, MANY)
    np.testing.assert_allclose(traced, both(MANY), atol=2e-6)
    np.testing.assert_allclose(jax.vmap(both)(MANY), both(MANY), atol=2e-6)


def test_isotonic_of_a_label_is_scikit_learns() -> None:
    p = expit(SCORES.astype(np.float64)).astype(np.float32)
    want = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, LABELS).predict(p)
    np.testing.assert_allclose(posthoc.Isotonic.fit(SCORES, LABELS)(SCORES), want, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_weight_zero_change_nothing(name: str) -> None:
    fit = getattr(posthoc, name).fit
    weights = (np.arange(N) % 4 > 0).astype(float)
    broken = np.where(weights[:, None] == 0, np.nan, MANY)
    labels = np.where(weights[:, None] == 0, 7, MANY_LABELS)
    got = fit(broken, labels, weights=weights)(MANY)
    other = np.where(weights[:, None] == 0, 3.0, MANY)  # of the same shape: nothing to compile
    np.testing.assert_allclose(got, fit(other, MANY_LABELS, weights=weights)(MANY), atol=1e-6)
    alike = fit(MANY, MANY_LABELS)(MANY)
    assert np.max(np.abs(got - alike)) > 1e-3


@pytest.mark.parametrize("name", ["Platt", "Beta"])
def test_separated_and_extreme_and_one_sided_scores_are_finite(name: str) -> None:
    fit = getattr(posthoc, name).fit
    ordered = np.linspace(-3, 3, N)
    for scores, labels in (
        (ordered, ordered > 0),  # a threshold separates them
        (1e4 * np.sign(SCORES), LABELS),
        (SCORES, np.ones(N, bool)),
        (SCORES, np.zeros(N, bool)),
        (np.zeros(N), LABELS),
    ):
        calibrator = fit(scores.astype(np.float32), labels)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(calibrator)), calibrator
        assert np.isfinite(np.asarray(calibrator(SCORES))).all()
        slope = jax.grad(lambda z, c=calibrator: c(z).sum())(jnp.asarray(SCORES))
        assert np.isfinite(np.asarray(slope)).all()
    # All positive: the probability is that of Platt's target.
    np.testing.assert_allclose(fit(np.zeros(N), np.ones(N, int))(0.0), 401 / 402, rtol=1e-4)


@pytest.mark.parametrize("name", ["Platt", "Beta"])
def test_a_masked_class_of_two_keeps_0(name: str) -> None:
    fit = getattr(posthoc, name).fit
    logits = np.stack([np.zeros(N, np.float32), SCORES], axis=1)
    masked, labels, weights = logits.copy(), LABELS.copy(), np.ones(N)
    masked[-2:], labels[-2:], weights[-2:] = [[-np.inf, 0.0], [0.0, -np.inf]], [1, 0], 0.0
    calibrator = fit(masked, labels)
    want = fit(logits, LABELS, weights=weights)(logits)
    np.testing.assert_allclose(calibrator(logits), want, atol=1e-6)
    np.testing.assert_array_equal(calibrator(masked)[-2:], [[0, 1], [1, 0]])
    slope = jax.grad(lambda z: calibrator(z)[:, 1].sum())(jnp.asarray(masked))
    assert np.isfinite(np.asarray(slope)).all()
    nothing = fit(np.tile(masked[-2:], (N // 2, 1)), np.tile([1, 0], N // 2))
    # Leaves probabilities as they are.
    np.testing.assert_allclose(nothing(logits), jax.nn.softmax(logits), atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_errors(name: str) -> None:
    fit = getattr(posthoc, name).fit
    with pytest.raises(ValueError, match=r"labels: expected 0 or 1, found 2 \(1 of 400"):
        fit(SCORES, np.where(np.arange(N) == 5, 2, LABELS))
    with pytest.raises(ValueError, match="so these are probabilities"):
        fit(expit(SCORES), LABELS)
    fit(expit(SCORES), LABELS, check=False)
    with pytest.raises(ValueError, match="finite"):
        fit(np.where(np.arange(N) == 5, np.nan, SCORES), LABELS)
    with pytest.raises(ValueError, match=r"expected \[n\], the labels"):
        fit(SCORES, LABELS)(MANY)
    with pytest.raises(ValueError, match=r"expected \[n, 3\], the labels"):
        fit(MANY, MANY_LABELS)(MANY[:, :2])
    with pytest.raises(ValueError, match="so these are probabilities"):
        fit(SCORES, LABELS)(expit(SCORES))
    with pytest.raises(ValueError, match="labels"):
        fit(MANY, MANY_LABELS[:, :2])
    with pytest.raises(ValueError, match="no examples"):
        fit(SCORES[:0], LABELS[:0])
    if name != "Isotonic":
        with pytest.raises(ValueError, match=f"3 classes; {name} takes two, or independent labels"):
            fit(MANY, LABELS)


@pytest.mark.parametrize("name", ["Platt", "Beta"])
def test_invalid_labels_inside_jit_give_nan(name: str) -> None:
    fit = jax.jit(getattr(posthoc, name).fit)
    bad = fit(MANY, np.where(np.arange(N)[:, None] == [5, -1, -1], 2, MANY_LABELS))
    finite = np.isfinite(np.stack(jax.tree.leaves(bad)))
    assert finite.all(axis=0).tolist() == [False, True, True]
    assert np.isnan(fit(MANY, MANY_LABELS, weights=np.zeros(N))(MANY)).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("labels", [None, 3])
def test_files(name: str, labels: int | None, tmp_path) -> None:
    scores, y = make_data(5, labels)
    calibrator = getattr(posthoc, name).fit(scores, y)
    posthoc.save(tmp_path / "c.npz", calibrator)
    again = posthoc.load(tmp_path / "c.npz")
    assert again.independent
    np.testing.assert_array_equal(again(scores), calibrator(scores))


def test_log_odds_of_probabilities() -> None:
    got = posthoc.logits_from_binary_probs([0.0, 0.25, 1.0])
    np.testing.assert_allclose(got, [-69.08, -np.log(3), 69.08], rtol=1e-3)
    assert set(posthoc.LABEL_CALIBRATORS) == {"platt", "beta", "isotonic"}
