"""AdaFocal's updates over a stack of snapshots, and gammas without an upper bound."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses

T, N, BINS = 6, 40, 5


def snapshots(seed=0):
    """Ties, over- and under-confidence: every branch of the update is taken."""
    rng = np.random.default_rng(seed)
    # In steps of .01, so that some are tied; moved a bit, so that no gap is 0 but for rounding.
    confidence = np.round(rng.uniform(0.2, 0.99, (T, N)), 2).astype(np.float32) + np.float32(3e-3)
    accuracy = np.linspace(0.2, 1.0, T)[:, None] * np.ones(N)
    return confidence, (rng.uniform(size=(T, N)) < accuracy).astype(np.float32)


def start():
    return losses.AdaFocalState(
        edges=jnp.linspace(0.2, 0.8, BINS - 1), gamma=jnp.array([1.0, -1.0, 19.0, 0.25, -1.9])
    )


def oracle(gamma, confidences, corrects, weights, lam, switch, gamma_max, gamma_min):
    """Algorithm 1 in float64: bins by rank, ties share their correctness."""
    trajectory = []
    for confidence, correct, weight in zip(confidences, corrects, weights, strict=True):
        rows = [i for i in np.argsort(confidence, kind="stable") if weight[i]]
        c = confidence[rows].astype(np.float64)
        right = np.array([correct[rows][c == x].mean(dtype=np.float64) for x in c])
        bins = np.arange(len(rows)) * BINS // len(rows)
        new = []
        for b, g in enumerate(gamma):
            error = c[bins == b].mean() - right[bins == b].mean()
            g *= math.exp(lam * error if g >= 0 else -lam * error)
            if g >= 0:
                g = min(gamma_max, g)
                new.append(-switch if abs(g) < switch else g)
            else:
                g = max(gamma_min, g)
                new.append(switch if abs(g) < switch else g)
        gamma = new
        trajectory.append(gamma)
    return np.array(trajectory)


SETTINGS = [
    {"lam": 1.0, "switch": 0.2, "gamma_max": 20.0, "gamma_min": -2.0},
    {"lam": 5.0, "switch": 0.5, "gamma_max": 7.0, "gamma_min": -1.5},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("padding", [None, "all", "each"])
def test_equals_a_loop_of_updates_and_algorithm_1(settings, padding):
    confidences, corrects = snapshots()
    weights = np.ones((T, N), np.float32)
    if padding == "all":
        weights[:, ::7] = 0
    elif padding == "each":
        for t in range(T):
            weights[t, t::5] = 0
    argument = {None: None, "all": weights[0], "each": weights}[padding]
    got = losses.adafocal_trajectory(start(), confidences, corrects, weights=argument, **settings)
    chex.assert_shape(got.gamma, (T, BINS))
    chex.assert_shape(got.edges, (T, BINS - 1))

    update = jax.jit(losses.adafocal_update)
    state, states = start(), []
    for t in range(T):
        w = None if padding is None else weights[t]
        state = update(state, confidences[t], corrects[t], weights=w, **settings)
        states.append(state)
    chex.assert_trees_all_equal(got, jax.tree.map(lambda *x: jnp.stack(x), *states))

    gammas = [float(g) for g in start().gamma]
    want = oracle(gammas, confidences, corrects, weights, **settings)
    np.testing.assert_allclose(got.gamma, want, rtol=2e-5)
    # The comparison means something: gammas change sides and reach both bounds.
    assert (np.sign(want[-1]) != np.sign(gammas)).any()


def test_defaults_are_those_of_the_update():
    confidences, corrects = snapshots(3)
    default = losses.adafocal_trajectory(start(), confidences, corrects)
    spelled = losses.adafocal_trajectory(start(), confidences, corrects, **SETTINGS[0])
    chex.assert_trees_all_equal(default, spelled)
    # One example: E = 1/2 or -1/2, by hand. 15 e^.5 = 24.7, -1.5 e^.5 = -2.47, .25 e^-.5 = .15.
    for gamma, confidence, correct, want in (
        (1.0, 0.5, 0.0, math.exp(0.5)),
        (15.0, 0.5, 0.0, 20.0),
        (-1.5, 0.5, 1.0, -2.0),
        (0.25, 0.5, 1.0, -0.2),
    ):
        state = losses.adafocal_init(1, gamma)
        got = losses.adafocal_trajectory(state, np.array([[confidence]]), np.array([[correct]]))
        np.testing.assert_allclose(got.gamma, [[want]], rtol=1e-6)


def test_a_study_of_lam_is_a_vmap():
    confidences, corrects = snapshots(1)
    lams = jnp.array([0.5, 1.0, 4.0])
    study = jax.jit(
        jax.vmap(lambda lam: losses.adafocal_trajectory(start(), confidences, corrects, lam=lam))
    )(lams)
    chex.assert_shape(study.gamma, (3, T, BINS))
    for i, lam in enumerate(lams):
        one = losses.adafocal_trajectory(start(), confidences, corrects, lam=lam)
        chex.assert_trees_all_close(jax.tree.map(lambda x, i=i: x[i], study), one, rtol=1e-5)
    assert not np.allclose(study.gamma[0], study.gamma[2])


def test_a_state_keeps_its_types_under_x64():
    with jax.enable_x64(True):
        confidences, corrects = (np.asarray(x, np.float64) for x in snapshots(2))
        state = losses.adafocal_init(BINS)
        chex.assert_type([state.edges, state.gamma], jnp.float32)
        got = losses.adafocal_trajectory(state, confidences, corrects)
        chex.assert_type([got.edges, got.gamma], jnp.float32)
        step = jax.lax.scan(
            lambda s, v: (losses.adafocal_update(s, *v), s.gamma), state, (confidences, corrects)
        )[0]
        np.testing.assert_allclose(step.gamma, got.gamma[-1], rtol=1e-6)
        wide = losses.AdaFocalState(*(x.astype(jnp.float64) for x in state))
        got = losses.adafocal_trajectory(wide, confidences, corrects)
        chex.assert_type([got.edges, got.gamma], jnp.float64)
        want = oracle([1.0] * BINS, confidences, corrects, np.ones((T, N)), **SETTINGS[0])
        np.testing.assert_allclose(got.gamma, want, rtol=1e-12)


def test_shape_errors():
    confidences, corrects = snapshots()
    for a, b in ((confidences[0], corrects[0]), (confidences, corrects[:, 1:])):
        with pytest.raises(ValueError, match=r"confidences and corrects: expected \[T, n\] both"):
            losses.adafocal_trajectory(start(), a, b)
    with pytest.raises(ValueError, match=r"weights: expected \(40,\) or \(6, 40\), got \(6,\)"):
        losses.adafocal_trajectory(start(), confidences, corrects, weights=np.ones(T))


# ------------------------------------------------------------------ gammas without a bound


def test_gamma_max_of_infinity_is_1e30():
    # Ever over-confident by 1/2 with lam = 40: gamma grows by e^20 an epoch, 10^30 after four.
    confidences, corrects = np.full((6, 1), 0.5, np.float32), np.zeros((6, 1), np.float32)
    got = losses.adafocal_trajectory(
        losses.adafocal_init(1), confidences, corrects, lam=40.0, gamma_max=math.inf
    )
    want = [math.exp(20), math.exp(40), math.exp(60), 1e30, 1e30, 1e30]
    np.testing.assert_allclose(got.gamma[:, 0], want, rtol=1e-4)
    state = jax.tree.map(lambda x: x[-1], got)
    logits = np.array([[0, 0], [9, 0], [0, 9], [0, 100], [-1e4, 1e4], [70, 0], [0, 69]], np.float32)
    labels = np.zeros(7, np.int32)
    # (1 - p)^1e30 log p: 0 wherever p > 0 in float32; at p = e^-100 a plain 100, at e^-69, where
    # 1e30 p = 1.0812, 69 e^-1.0812.
    value, slope = jax.value_and_grad(
        lambda z: jnp.sum(losses.adafocal(z, labels, state)), argnums=0
    )(logits)
    chex.assert_tree_all_finite((value, slope))
    rows = losses.adafocal(logits, labels, state)
    np.testing.assert_allclose(rows[:3], 0, atol=1e-30)
    np.testing.assert_allclose(rows[3:5], [100, 2e4], rtol=1e-5)
    np.testing.assert_allclose(rows[6], 69 * math.exp(-1e30 * math.exp(-69)), rtol=1e-3)


def test_growth_is_bounded_by_exp_80():
    # lam E = 500 and -500: gamma is multiplied by e^80 and e^-80.
    over, under = (np.array([0.5]), np.array([0.0])), (np.array([0.5]), np.array([1.0]))
    bounds = {"lam": 1000.0, "switch": 0.0, "gamma_max": math.inf, "gamma_min": -1e30}
    for gamma, example, want in (
        (1e-20, over, 1e-20 * math.exp(80)),
        (1e20, under, 1e20 * math.exp(-80)),
        (-1e-20, under, -1e-20 * math.exp(80)),
        (-1e20, over, -1e20 * math.exp(-80)),
    ):
        state = losses.adafocal_init(1, gamma)
        got = losses.adafocal_update(state, *example, **bounds)
        np.testing.assert_allclose(got.gamma, [want], rtol=1e-4)


def test_init_needs_a_bin():
    with pytest.raises(ValueError, match="num_bins=0: expected at least 1"):
        losses.adafocal_init(0)
    chex.assert_shape(losses.adafocal_init(1).edges, (0,))
