"""Temperature scaling: the NLL optimum against scipy, the papers' ECE grids against plain loops."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from calib_jax import posthoc

GRID_AUM = np.arange(1, 501) / 100  # [0.01, 5] step 0.01
GRID_ADAFOCAL = np.arange(1, 101) / 10  # (0, 10] step 0.1


def make_data(seed, n=300, k=4, scale=2.0, spread=2.0):
    """Labels drawn from softmax(u), logits = scale * u: the best temperature is near `scale`."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, k)) * spread
    labels = np.argmax(u + rng.gumbel(size=(n, k)), axis=1)
    return (scale * u).astype(np.float32), labels


def nll(logits, labels, temperature=1.0):
    logp = log_softmax(np.asarray(logits, np.float64) / temperature, axis=1)
    return -logp[np.arange(len(labels)), labels].mean()


def best_temperature(logits, labels):
    found = minimize_scalar(
        lambda t: nll(logits, labels, np.exp(t)),
        bounds=(-8, 8),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return np.exp(found.x)


def confidences(logits, temperature):
    """Top-1 probability in float32, the precision in which saturated values tie."""
    z = (logits / np.float32(temperature)).astype(np.float32)
    e = np.exp(z - z.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).max(1).astype(np.float64)


def ece_width_loop(conf, correct, bins, closed):
    total = 0.0
    for b in range(bins):
        lo, hi = b / bins, (b + 1) / bins
        gap, n = 0.0, 0
        for c, a in zip(conf, correct, strict=True):
            if closed == "right":
                inside = lo < c <= hi or (b == 0 and c == 0)
            else:
                inside = lo <= c < hi or (b == bins - 1 and c == 1)
            if inside:
                gap, n = gap + c - a, n + 1
        total += abs(gap) / len(conf) if n else 0.0
    return total


def ece_mass_loop(conf, correct, bins):
    n = len(conf)
    shared = [np.mean([a for d, a in zip(conf, correct, strict=True) if d == c]) for c in conf]
    gaps = [0.0] * bins
    for rank, i in enumerate(sorted(range(n), key=lambda i: conf[i])):
        gaps[rank * bins // n] += conf[i] - shared[i]
    return sum(abs(g) for g in gaps) / n


def criterion_on_grid(logits, labels, grid, criterion, bins=15, closed="right"):
    correct = (logits.argmax(1) == labels).astype(float)
    values = []
    for t in grid:
        conf = confidences(logits, t)
        if criterion == "ece":
            values.append(ece_width_loop(conf, correct, bins, closed))
        else:
            values.append(ece_mass_loop(conf, correct, bins))
    return np.array(values)


# ---------------------------------------------------------------- NLL


@pytest.mark.parametrize(("seed", "scale"), [(0, 2.0), (1, 0.3), (2, 1.0), (3, 7.0)])
def test_nll_temperature_is_the_scipy_optimum(seed, scale):
    logits, labels = make_data(seed, scale=scale)
    got = float(posthoc.Temperature.fit(logits, labels).temperature)
    # The curvature in log T is about 0.3, so a float32 derivative (1e-7) places log T to ~1e-6.
    np.testing.assert_allclose(got, best_temperature(logits, labels), rtol=1e-4)
    assert abs(np.log(got / scale)) < 0.35  # and it is the factor that the logits were scaled by


def test_first_order_condition_of_the_nll():
    """At the optimum the mean label logit equals the mean expected logit."""
    logits, labels = make_data(4)
    t = float(posthoc.Temperature.fit(logits, labels).temperature)
    z = logits.astype(np.float64)
    p = np.exp(log_softmax(z / t, axis=1))
    gap = z[np.arange(len(z)), labels].mean() - (p * z).sum(1).mean()
    assert abs(gap) < 1e-4


def test_call_is_softmax_of_the_divided_logits():
    logits, _ = make_data(5)
    got = posthoc.Temperature(temperature=jnp.float32(2.5))(logits)
    want = np.exp(log_softmax(logits.astype(np.float64) / 2.5, axis=1))
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert got.dtype == jnp.float32


BASE = make_data(6)
BASE_T = best_temperature(*BASE)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(exponent=st.floats(-2, 2))
def test_temperature_scales_with_the_logits(exponent):
    """Other libraries stall here: their optimisers start at 1 with a fixed step."""
    factor = 10.0**exponent
    logits, labels = BASE
    got = posthoc.Temperature.fit((logits * factor).astype(np.float32), labels).temperature
    np.testing.assert_allclose(float(got), BASE_T * factor, rtol=1e-3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    logits=hnp.arrays(np.float32, (12, 3), elements=st.floats(-60, 60, width=32)),
    labels=hnp.arrays(np.int32, (12,), elements=st.integers(0, 2)),
)
def test_any_data_gives_a_positive_finite_temperature_no_worse_than_one(logits, labels):
    logits[0] = [-1.0, 2.0, 0.5]  # one row that cannot be taken for a probability vector
    t = float(posthoc.Temperature.fit(logits, labels).temperature)
    assert np.isfinite(t)
    assert t > 0
    if np.all(logits.max(1) == logits[np.arange(12), labels]):
        return  # all right: the likelihood is a smoothed one, see below
    # Relative to the size of the loss: float32 log-sum-exp of logits of 60.
    before = nll(logits, labels)
    assert nll(logits, labels, t) <= before + 1e-5 * (1 + before)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
def test_all_predictions_right(size):
    """Of 40 right predictions one in 42 is taken to be wrong: with three equal runners-up
    `3 x / (1 + 3 x) = 1 / 42` for `x = exp(-2 size / T)`, so T = 2 size / log(123)."""
    labels = np.arange(40) % 4
    logits = np.where(np.eye(4)[labels] == 1, size, -size).astype(np.float32)
    calibrator = posthoc.Temperature.fit(logits, labels)
    np.testing.assert_allclose(calibrator.temperature, 2 * size / math.log(123), rtol=1e-5)
    np.testing.assert_allclose(calibrator(logits).max(1), 41 / 42, rtol=1e-5)


def smoothed_temperature(logits, labels, weights):
    """In float64: the least of the likelihood with 1 / (total weight + 2) on the runner-up."""
    logits = np.asarray(logits, np.float64)
    rows = np.arange(len(labels))
    runner_up = np.where(np.arange(logits.shape[1]) == labels[:, None], -np.inf, logits).argmax(1)
    wrong = 1 / (weights.sum() + 2)

    def loss(log_t):
        logp = log_softmax(logits / np.exp(log_t), axis=1)
        each = (1 - wrong) * logp[rows, labels] + wrong * logp[rows, runner_up]
        return -np.average(each, weights=weights)

    found = minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-10})
    return np.exp(found.x)


@pytest.mark.parametrize("k", [2, 7])
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_all_predictions_right_against_a_smoothed_likelihood(k, scale):
    logits, _ = make_data(11, n=200, k=k, scale=scale)
    labels = logits.argmax(1)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 200).astype(np.float32)
    for w in (None, weights):
        got = posthoc.Temperature.fit(logits, labels, weights=w).temperature
        want = smoothed_temperature(logits, labels, np.ones(200) if w is None else w)
        np.testing.assert_allclose(got, want, rtol=1e-4)
    # One wrong prediction, and the plain likelihood has a least value of its own.
    labels[3] = logits[3].argmin()
    got = posthoc.Temperature.fit(logits, labels).temperature
    np.testing.assert_allclose(got, best_temperature(logits, labels), rtol=1e-4)


@pytest.mark.parametrize("name", ["EnsembleTemperature", "FocalTemperature"])
def test_others_take_that_temperature_where_all_predictions_are_right(name):
    logits, _ = make_data(12, scale=0.5)
    labels = logits.argmax(1)
    plain = posthoc.Temperature.fit(logits, labels)
    other = getattr(posthoc, name).fit(logits, labels)
    chex.assert_trees_all_close(other.temperature, plain.temperature, rtol=1e-6)
    chex.assert_trees_all_close(other(logits), plain(logits), atol=1e-5)


def test_logits_that_are_all_equal_have_temperature_one():
    calibrator = posthoc.Temperature.fit(np.full((5, 3), 2.0), np.arange(5) % 3)
    assert float(calibrator.temperature) == 1.0


@pytest.mark.parametrize("name", ["Temperature", "EnsembleTemperature", "FocalTemperature"])
@pytest.mark.parametrize("scale", [0.01, 5.0])
def test_shuffled_labels_give_a_bounded_temperature_that_moves_no_prediction(name, scale):
    rng = np.random.default_rng(0)
    logits = (scale * rng.normal(size=(4000, 10))).astype(np.float32)
    # Labels below what chance would give: no finite temperature is best.
    labels = np.where(rng.random(4000) < 0.3, logits.argmin(1), rng.integers(0, 10, 4000))
    calibrator = getattr(posthoc, name).fit(logits, labels)
    two = np.sort(logits.astype(np.float64), axis=1)[:, -2:]
    typical_gap = np.exp(np.mean(np.log(two[:, 1] - two[:, 0])))
    bound = 1000 * max(1.0, typical_gap)
    if name == "Temperature":
        np.testing.assert_allclose(calibrator.temperature, bound, rtol=1e-4)
    assert float(calibrator.temperature) <= 1001 * bound
    chex.assert_tree_all_finite(calibrator)
    probs = np.asarray(calibrator(logits))
    np.testing.assert_array_equal(probs.argmax(1), logits.argmax(1))
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("temperature", [1e4, 1e6, 1e8, 1e30])
def test_no_temperature_moves_a_prediction(temperature):
    """In float32 nearly all probabilities tie; the first of them would win."""
    logits, _ = make_data(13, n=2000, k=10)
    logits[::3] = np.round(logits[::3])  # ties between the logits themselves: the first wins
    for calibrator in (
        posthoc.Temperature(jnp.float32(temperature)),
        posthoc.FocalTemperature(jnp.float32(temperature), jnp.float32(2.0)),
        posthoc.EnsembleTemperature(jnp.float32(temperature), jnp.array([0.9, 0.0, 0.1])),
    ):
        probs = np.asarray(calibrator(logits))
        np.testing.assert_array_equal(probs.argmax(1), logits.argmax(1))
        np.testing.assert_allclose(probs, 0.1, rtol=2e-3)


def test_the_slope_of_a_probability_that_ties_is_that_of_the_softmax():
    logits = jnp.array([[0.1, 0.3, 0.2]])
    calibrator = posthoc.Temperature(jnp.float32(1e8))
    slope = jax.grad(lambda z: calibrator(z)[0, 0])(logits)
    np.testing.assert_allclose(slope, [[2 / 9e8, -1 / 9e8, -1 / 9e8]], rtol=1e-4)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
def test_data_worse_than_chance(size):
    """The best positive temperature is infinite: a finite one must come close to log K."""
    labels = np.arange(40) % 4
    logits = np.where(np.eye(4)[labels] == 1, -size, size).astype(np.float32)
    t = float(posthoc.Temperature.fit(logits, labels).temperature)
    assert np.isfinite(t)
    assert t > 0
    np.testing.assert_allclose(nll(logits, labels, t), np.log(4), atol=5e-3)


@pytest.mark.parametrize("rows", [1, 2])
def test_constant_logits_and_tiny_sets(rows):
    t = float(posthoc.Temperature.fit(np.zeros((rows, 3)), np.zeros(rows, int)).temperature)
    assert np.isfinite(t)
    assert t > 0


def test_a_constant_added_to_a_row_changes_nothing():
    logits, labels = make_data(7)
    shift = np.random.default_rng(0).integers(-64, 64, size=(len(logits), 1)).astype(np.float32)
    a = posthoc.Temperature.fit(logits, labels).temperature
    b = posthoc.Temperature.fit(logits + shift, labels).temperature
    # logits near 64 carry a rounding error of 4e-6
    np.testing.assert_allclose(float(a), float(b), rtol=1e-4)


def test_bfloat16_logits_are_fitted_in_float32():
    logits, labels = make_data(8)
    half = jnp.asarray(logits, jnp.bfloat16)
    got = posthoc.Temperature.fit(half, labels)
    want = best_temperature(np.asarray(half.astype(jnp.float32)), labels)
    np.testing.assert_allclose(float(got.temperature), want, rtol=1e-4)
    assert got(half).dtype == jnp.float32


def test_fit_under_vmap():
    logits, labels = make_data(9)
    stack = jnp.stack([logits, 3 * logits])
    both = jax.vmap(posthoc.Temperature.fit, in_axes=(0, None))(stack, jnp.asarray(labels))
    want = best_temperature(logits, labels)
    np.testing.assert_allclose(both.temperature, [want, 3 * want], rtol=1e-4)


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize("criterion", ["ece", "ece_mass"])
@pytest.mark.parametrize("grid", [None, GRID_ADAFOCAL], ids=["aum", "adafocal"])
@pytest.mark.parametrize("seed", [0, 1])
def test_grid_search_against_plain_loops(criterion, grid, seed):
    logits, labels = make_data(seed, n=60)
    values = GRID_AUM if grid is None else grid
    oracle = criterion_on_grid(logits, labels, values, criterion)
    got = float(posthoc.Temperature.fit(logits, labels, criterion=criterion, grid=grid).temperature)
    chosen = int(np.argmin(np.abs(values - got)))
    np.testing.assert_allclose(got, values[chosen], rtol=1e-6)  # a grid point, 0.01 step default
    assert oracle[chosen] <= oracle.min() + 1e-6
    second = np.delete(oracle, oracle.argmin()).min()
    if second > oracle.min() + 1e-5:  # clear of float32 rounding: the very same point
        assert chosen == oracle.argmin()


@pytest.mark.parametrize(("bins", "closed"), [(5, "left"), (30, "right")])
def test_num_bins_and_closed_reach_the_criterion(bins, closed):
    logits, labels = make_data(3, n=60)
    oracle = criterion_on_grid(logits, labels, GRID_ADAFOCAL, "ece", bins, closed)
    got = posthoc.Temperature.fit(
        logits, labels, criterion="ece", grid=GRID_ADAFOCAL, num_bins=bins, closed=closed
    )
    np.testing.assert_allclose(got.temperature, GRID_ADAFOCAL[oracle.argmin()], rtol=1e-6)


def test_closed_side_decides_where_confidence_one_half_goes():
    """40 undecided rows (confidence 1/2 at every T) with no correct one, 60 decided, 45 correct.

    Closed right: the undecided ones have a bin of their own, T makes sigmoid(2/T) = 45/60.
    Closed left: one bin for all, T makes the overall mean confidence 45/100, as low as it goes.
    """
    logits = np.array([[0, 0]] * 40 + [[2, 0]] * 60, np.float32)
    labels = np.array([1] * 40 + [0] * 45 + [1] * 15)
    fit = {
        side: float(
            posthoc.Temperature.fit(
                logits, labels, criterion="ece", num_bins=2, closed=side
            ).temperature
        )
        for side in ("right", "left")
    }
    np.testing.assert_allclose(fit["right"], 1.82, rtol=1e-6)  # 2 / log(3) = 1.8205
    np.testing.assert_allclose(fit["left"], 5.0, rtol=1e-6)  # the end of the grid


@pytest.mark.parametrize("criterion", ["nll", "ece", "ece_mass"])
@pytest.mark.parametrize("grid", [[0.02, 0.01, 0.03], [0.03, 0.02, 0.01]])
def test_the_first_minimum_wins(criterion, grid):
    """Saturated right answers have loss 0 and gap 0 at each of these temperatures."""
    labels = np.arange(20) % 4
    logits = np.where(np.eye(4)[labels] == 1, 50.0, -50.0).astype(np.float32)
    got = posthoc.Temperature.fit(logits, labels, criterion=criterion, grid=grid)
    np.testing.assert_allclose(got.temperature, grid[0], rtol=1e-6)


def test_nll_on_a_grid():
    logits, labels = make_data(1, n=60)
    oracle = [nll(logits, labels, t) for t in GRID_ADAFOCAL]
    got = posthoc.Temperature.fit(logits, labels, grid=GRID_ADAFOCAL).temperature
    np.testing.assert_allclose(got, GRID_ADAFOCAL[int(np.argmin(oracle))], rtol=1e-6)


def test_grid_search_under_jit_is_the_same():
    logits, labels = make_data(2, n=60)

    def fit(z, y):
        return posthoc.Temperature.fit(z, y, criterion="ece_mass", grid=GRID_ADAFOCAL)

    assert float(jax.jit(fit)(logits, labels).temperature) == float(fit(logits, labels).temperature)


def test_ece_fit_is_no_worse_than_no_temperature():
    logits, labels = make_data(5, n=60)
    t = float(posthoc.Temperature.fit(logits, labels, criterion="ece").temperature)
    before, after = criterion_on_grid(logits, labels, [1.0, t], "ece")
    assert after <= before


@pytest.mark.parametrize("option", [{"criterion": "ecee"}, {"criterion": "ece", "closed": "both"}])
def test_unknown_options_are_refused_by_name(option):
    logits, labels = make_data(0, n=60)
    with pytest.raises(ValueError, match=list(option.values())[-1]):
        posthoc.Temperature.fit(logits, labels, **option)


def test_live_probmetrics_agrees():
    """Live peer check; skipped where probmetrics is not installed."""
    torch = pytest.importorskip("torch")
    calibrators = pytest.importorskip("probmetrics.calibrators")
    logits, labels = make_data(10)
    peer = calibrators.get_calibrator("temp-scaling")
    probs = np.exp(log_softmax(logits.astype(np.float64), axis=1))
    peer.fit(probs, labels)
    want = np.asarray(torch.as_tensor(peer.predict_proba(probs)))
    got = posthoc.Temperature.fit(logits, labels)(logits)
    np.testing.assert_allclose(got, want, atol=1e-5)
