"""What every calibrator promises: simplex, pytree, jit, frozen, errors, extreme logits."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import log_softmax, softmax

from calib_jax import posthoc
from calib_jax.posthoc._common import minimize

NAMES = [
    "Temperature",
    "EnsembleTemperature",
    "Spline",
    "VectorScaling",
    "Dirichlet",
    "Isotonic",
    "HistogramBinning",
    "FocalTemperature",
    "StructuredVectorScaling",
    "StructuredMatrixScaling",
]
ON_HOST = {"Isotonic"}  # fitted by scikit-learn
# A class more is another problem to them, even if it is masked.
DEPENDS_ON_K = {"Dirichlet"} | {n for n in NAMES if "Structured" in n}
KEEPS_CLASS = ["Temperature", "EnsembleTemperature", "Spline", "FocalTemperature"]
HOLDS_IDENTITY = ["Temperature", "VectorScaling", "Dirichlet", "FocalTemperature"]


def make_data(seed, n=300, k=4, scale=2.0):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, k)) * 1.5
    labels = np.argmax(u + rng.gumbel(size=(n, k)), axis=1)
    return (scale * u).astype(np.float32), labels


LOGITS, LABELS = make_data(0)
NEW, _ = make_data(1, scale=4.0)


def extreme(seed=0):
    """Logits of +-1e4, right in about a third of the rows."""
    rng = np.random.default_rng(seed)
    logits = rng.choice([-1e4, 1e4], size=(300, 4)).astype(np.float32)
    logits[::7] *= 1e-4
    return logits, np.where(rng.random(300) < 0.2, logits.argmax(1), rng.integers(0, 4, 300))


@pytest.fixture(scope="module")
def fitted():
    return {name: getattr(posthoc, name).fit(LOGITS, LABELS) for name in NAMES}


def nll(logp, labels):
    return -np.asarray(logp, np.float64)[np.arange(len(labels)), labels].mean()


def assert_simplex(probs):
    probs = np.asarray(probs)
    assert probs.shape == (300, 4)
    assert probs.dtype == np.float32
    assert np.all(np.isfinite(probs))
    assert probs.min() >= 0
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_distributions(name, fitted):
    for logits in (LOGITS, NEW):
        assert_simplex(fitted[name](logits))


@pytest.mark.parametrize("name", NAMES)
def test_pytree_round_trip(name, fitted):
    calibrator = fitted[name]
    leaves, treedef = jax.tree.flatten(calibrator)
    assert leaves  # the parameters are leaves, so they can be saved and sent to a device
    assert all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in leaves)
    again = jax.tree.unflatten(treedef, leaves)
    through_map = jax.tree.map(lambda leaf: leaf, calibrator)
    through_jit = jax.jit(lambda c: c)(calibrator)
    for copy in (again, through_map, through_jit):
        assert type(copy) is type(calibrator)
        np.testing.assert_array_equal(copy(NEW), calibrator(NEW))


@pytest.mark.parametrize("name", NAMES)
def test_call_under_jit_with_the_calibrator_as_argument(name, fitted):
    traced = jax.jit(lambda c, z: c(z))(fitted[name], NEW)
    np.testing.assert_allclose(traced, fitted[name](NEW), atol=2e-6)


@pytest.mark.parametrize("name", ["Temperature", "Spline", "VectorScaling", "HistogramBinning"])
def test_fit_under_jit(name, fitted):
    traced = jax.jit(getattr(posthoc, name).fit)(LOGITS, LABELS)
    assert type(traced) is type(fitted[name])
    np.testing.assert_allclose(traced(NEW), fitted[name](NEW), atol=2e-4)


@pytest.mark.parametrize("name", sorted(set(NAMES) - ON_HOST))
def test_fit_can_be_traced(name, fitted):
    """No value is looked at while tracing; without the seconds that compiling them all takes."""
    shapes = jax.eval_shape(getattr(posthoc, name).fit, LOGITS, LABELS)
    assert jax.tree.structure(shapes) == jax.tree.structure(fitted[name])
    for traced, leaf in zip(jax.tree.leaves(shapes), jax.tree.leaves(fitted[name]), strict=True):
        assert (traced.shape, traced.dtype) == (leaf.shape, leaf.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_frozen_dataclass(name, fitted):
    assert dataclasses.is_dataclass(fitted[name])
    field = dataclasses.fields(fitted[name])[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(fitted[name], field, jnp.zeros(()))


@pytest.mark.parametrize("name", KEEPS_CLASS)
def test_predicted_class_is_kept(name, fitted):
    """Whole-number logits tie often: the first of the largest has to stay the first."""
    whole = np.random.default_rng(2).integers(-3, 4, size=(300, 4)).astype(np.float32)
    for logits in (LOGITS, NEW, whole):
        top = np.asarray(fitted[name](logits)).argmax(1)
        np.testing.assert_array_equal(top, logits.argmax(1))


@pytest.mark.parametrize("name", NAMES)
def test_order_of_the_examples_does_not_matter(name, fitted):
    order = np.random.default_rng(0).permutation(300)
    again = getattr(posthoc, name).fit(LOGITS[order], LABELS[order])
    np.testing.assert_allclose(again(NEW), fitted[name](NEW), atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_renaming_the_classes_renames_the_columns(name, fitted):
    order = np.array([2, 0, 3, 1])
    again = getattr(posthoc, name).fit(LOGITS[:, order], np.argsort(order)[LABELS])
    np.testing.assert_allclose(again(NEW[:, order]), fitted[name](NEW)[:, order], atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_input_types(name, fitted):
    """Lists and float64 are as good as float32; bfloat16 is computed in float32."""
    fit = getattr(posthoc, name).fit
    again = fit(LOGITS.astype(np.float64).tolist(), LABELS.tolist())
    np.testing.assert_allclose(again(NEW.astype(np.float64)), fitted[name](NEW), atol=1e-6)
    half = jnp.asarray(LOGITS, jnp.bfloat16)
    assert_simplex(fit(half, jnp.asarray(LABELS))(half))


@pytest.mark.parametrize("name", HOLDS_IDENTITY)
@pytest.mark.parametrize("data", ["over", "under", "right", "extreme", "random"])
def test_nll_is_never_worse_than_before(name, data):
    logits, labels = {
        "over": lambda: make_data(2, scale=5.0),
        "under": lambda: make_data(3, scale=0.2),
        "right": lambda: make_data(4, scale=1.0),
        "extreme": extreme,
        "random": lambda: (make_data(5)[0], np.random.default_rng(5).integers(0, 4, 300)),
    }[data]()
    before = nll(log_softmax(logits.astype(np.float64), 1), labels)
    probs = np.asarray(getattr(posthoc, name).fit(logits, labels)(logits), np.float64)
    after = nll(np.log(probs.clip(1e-38)), labels)
    assert after <= before + 1e-5 * (1 + abs(before))
    if data == "extreme":  # before is of the order of 1e3 to 1e4; a fit must do better than that
        assert after < 2 * np.log(4)


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_ensemble_squared_error_is_never_worse_than_before(scale):
    logits, labels = make_data(6, scale=scale)
    y = np.eye(4)[labels]
    after = np.mean((np.asarray(posthoc.EnsembleTemperature.fit(logits, labels)(logits)) - y) ** 2)
    assert after <= np.mean((softmax(logits.astype(np.float64), 1) - y) ** 2) + 1e-7


@pytest.mark.parametrize("name", NAMES)
def test_extreme_logits_are_finite(name, fitted):
    logits, labels = extreme()
    assert_simplex(fitted[name](logits))
    refit = getattr(posthoc, name).fit(logits, labels)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(refit))
    assert_simplex(refit(logits))
    assert_simplex(refit(LOGITS))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"Isotonic", "HistogramBinning"}))
def test_gradient_of_the_call_is_finite(name, fitted):
    for logits in (jnp.asarray(NEW), jnp.asarray(extreme()[0])):
        grad = jax.jit(jax.grad(lambda z, c: c(z)[:, 0].sum()))(logits, fitted[name])
        assert np.all(np.isfinite(grad))


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"Spline"}))
def test_a_whole_weight_counts_as_that_many_examples(name):
    fit = getattr(posthoc, name).fit
    weights = np.random.default_rng(3).integers(0, 3, 300)
    again = np.repeat(np.arange(300), weights)
    broken = np.where(weights[:, None] == 0, np.nan, LOGITS)
    labels = np.where(weights == 0, -1, LABELS)
    got = fit(broken, labels, weights=weights)(NEW)
    chex.assert_trees_all_close(got, fit(LOGITS[again], LABELS[again])(NEW), atol=2e-3)
    # A fit to all alike is another one.
    assert float(jnp.max(jnp.abs(got - fit(LOGITS, LABELS)(NEW)))) > 5e-3


@pytest.mark.parametrize("criterion", ["nll", "ece", "ece_mass"])
def test_weights_reach_the_criterion_of_a_grid(criterion):
    weights = np.random.default_rng(3).integers(0, 3, 300)
    again = np.repeat(np.arange(300), weights)
    fit = functools.partial(
        posthoc.Temperature.fit, criterion=criterion, grid=np.linspace(0.5, 4, 30)
    )
    got = fit(LOGITS, LABELS, weights=weights)
    chex.assert_trees_all_close(got, fit(LOGITS[again], LABELS[again]), rtol=1e-6)


def test_spline_without_the_rows_of_weight_zero():
    """Equal weights on some rows are the fit to those alone; a weight is a share of the fit."""
    weights = np.where(np.arange(300) % 3 == 0, 0.0, 2.5)
    some = weights > 0
    broken = np.where(some[:, None], LOGITS, np.nan)
    got = posthoc.Spline.fit(broken, LABELS, weights=weights)(NEW)
    want = posthoc.Spline.fit(LOGITS[some], LABELS[some])(NEW)
    chex.assert_trees_all_close(got, want, atol=2e-5)
    # A hundredfold weight on the first half: about the fit to that half.
    weights = np.where(np.arange(300) < 150, 100.0, 1.0)
    got = posthoc.Spline.fit(LOGITS, LABELS, weights=weights).confidence(NEW)
    half = posthoc.Spline.fit(LOGITS[:150], LABELS[:150]).confidence(NEW)
    alike = posthoc.Spline.fit(LOGITS, LABELS).confidence(NEW)
    assert float(jnp.mean(jnp.abs(got - half))) < 0.3 * float(jnp.mean(jnp.abs(alike - half)))


@pytest.mark.parametrize("name", sorted(set(NAMES) - DEPENDS_ON_K))
def test_a_masked_class_is_as_good_as_none(name):
    """Fit and call with a fifth class at -inf: what comes out is that of four, and a 0."""
    fit = getattr(posthoc, name).fit
    masked, new = (np.pad(z, ((0, 0), (0, 1)), constant_values=-np.inf) for z in (LOGITS, NEW))
    got = fit(masked, LABELS)(new)
    chex.assert_tree_all_finite(got)
    chex.assert_trees_all_close(got[:, :4], fit(LOGITS, LABELS)(NEW), atol=1e-3)
    np.testing.assert_array_equal(got[:, 4], 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_is_masked_in_some_rows_keeps_0_there(name):
    """Fitted without masks; even the uniform row of a step function leaves a masked class out."""
    calibrator = getattr(posthoc, name).fit(LOGITS, LABELS)
    masked = np.where(np.arange(4) == np.argmin(NEW, axis=1)[:, None], -np.inf, NEW)
    masked[0] = [-np.inf, -np.inf, 0.0, -np.inf]
    probs = np.asarray(calibrator(masked))
    np.testing.assert_array_equal(probs[np.isneginf(masked)], 0.0)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(probs[0, 2], 1, atol=1e-6)


def test_dirichlet_of_a_masked_class_by_hand():
    """Of logits (log 3, 0, -inf): log p = log 3/4, log 1/4 and, for the mask, -69."""
    matrix = jnp.array([[2.0, 0.5, 0.01], [0.0, 1.0, -0.02], [1.0, 1.0, 1.0]])
    calibrator = posthoc.Dirichlet(matrix, jnp.array([0.1, -0.1, 5.0]))
    got = calibrator(jnp.array([[np.log(3.0), 0.0, -np.inf]]))
    first = 2 * np.log(0.75) + 0.5 * np.log(0.25) - 0.69 + 0.1
    second = np.log(0.25) + 1.38 - 0.1
    np.testing.assert_allclose(got, [[*softmax([first, second]), 0.0]], rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_label_that_is_masked_is_named(name):
    logits = LOGITS.copy()
    logits[7, LABELS[7]] = -np.inf
    with pytest.raises(ValueError, match=f"class {LABELS[7]} of row 7 is masked"):
        getattr(posthoc, name).fit(logits, LABELS)


def test_negative_weights_are_refused_and_nan_inside_jit():
    weights = np.where(np.arange(300) == 7, -1.0, 1.0)
    for fit, arrays in (
        (posthoc.Temperature.fit, (LOGITS, LABELS)),
        (posthoc.Platt.fit, (LOGITS[:, 0], LABELS % 2)),
        (functools.partial(posthoc.ConformalSets.fit, alpha=0.1), (jax.nn.softmax(LOGITS), LABELS)),
    ):
        with pytest.raises(ValueError, match="weights: expected numbers of at least 0"):
            fit(*arrays, weights=weights)
        traced = jax.jit(lambda w, fit=fit, arrays=arrays: fit(*arrays, weights=w))(weights)
        assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(traced))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers(value):
    logits = LOGITS.copy()
    logits[7, 1] = value
    with pytest.raises(ValueError, match="finite"):
        posthoc.Temperature.fit(logits, LABELS)
    logits[7] = -np.inf
    with pytest.raises(ValueError, match="all masked"):
        posthoc.Temperature.fit(logits, LABELS)


# ---------------------------------------------------------------- the solver


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_solver_takes_as_many_steps_as_it_may(steps):
    solver = optax.lbfgs(memory_size=20)
    start = jnp.full(6, -1.0)
    params, state = start, solver.init(start)
    for _ in range(steps):
        value, grad = optax.value_and_grad_from_state(rosenbrock)(params, state=state)
        update, state = solver.update(
            grad, state, params, value=value, grad=grad, value_fn=rosenbrock
        )
        params = optax.apply_updates(params, update)
    got = jax.jit(lambda x: minimize(rosenbrock, x, max_steps=steps))(start)
    chex.assert_trees_all_close(got, params, rtol=1e-4, atol=1e-4)


def test_solver_stops_after_five_hundred_steps_or_at_the_end():
    long_valley = jnp.full(1500, -1.0)  # takes a step and more for each coordinate
    default, last, one_less = (
        jax.jit(lambda x, steps=steps: minimize(rosenbrock, x, **steps))(long_valley)
        for steps in ({}, {"max_steps": 500}, {"max_steps": 499})
    )
    chex.assert_trees_all_equal(default, last)
    assert not np.array_equal(last, one_less)
    short_valley = jax.jit(lambda x: minimize(rosenbrock, x))(jnp.array([-1.2, 1.0]))
    np.testing.assert_allclose(short_valley, 1.0, atol=1e-3)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("name", NAMES)
def test_probabilities_in_place_of_logits(name):
    fit = getattr(posthoc, name).fit
    probs = softmax(LOGITS, 1)
    for given in (probs, probs.astype(np.float64), jnp.asarray(probs)):
        with pytest.raises(ValueError, match="probabilit"):
            fit(given, LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_logits_that_only_resemble_probabilities_are_taken(name):
    """Log-probabilities, non-negative logits, and rows that sum to one with negative entries."""
    fit = getattr(posthoc, name).fit
    centered = LOGITS - LOGITS.mean(1, keepdims=True) + 0.25
    for given in (log_softmax(LOGITS, 1), np.abs(LOGITS), centered):
        assert_simplex(fit(given, LABELS)(given))


def test_logits_from_probs():
    probs = softmax(LOGITS, 1)
    logits = posthoc.logits_from_probs(probs)
    np.testing.assert_allclose(jax.nn.softmax(logits), probs, atol=1e-6)
    direct = posthoc.Temperature.fit(LOGITS, LABELS).temperature
    np.testing.assert_allclose(
        float(posthoc.Temperature.fit(logits, LABELS).temperature), float(direct), rtol=1e-3
    )
    saturated = posthoc.logits_from_probs(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))
    assert np.all(np.isfinite(saturated))
    np.testing.assert_allclose(jax.nn.softmax(saturated), [[1, 0, 0], [0.5, 0.5, 0]], atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("label", [4, -1, 17])
def test_label_out_of_range_is_named(name, label):
    labels = LABELS.copy()
    labels[11] = label
    with pytest.raises(ValueError, match=str(label)):
        getattr(posthoc, name).fit(LOGITS, labels)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (LOGITS, LABELS[:-1]),
        (LOGITS, LABELS[0]),
        (LOGITS[0], LABELS),
        (LOGITS[None], LABELS),
        (LOGITS, np.zeros((300, 4, 1))),
        (LOGITS, np.zeros((300, 3))),
        (LOGITS[:0], LABELS[:0]),
    ],
    ids=["short", "scalar", "1d", "3d", "3d labels", "wrong soft width", "empty"],
)
def test_bad_shapes(name, logits, labels):
    with pytest.raises(ValueError, match=r"logits|labels"):
        getattr(posthoc, name).fit(logits, labels)
