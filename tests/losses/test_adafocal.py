"""AdaFocal: the loss, and algorithm 1 of the paper against a plain Python loop."""

import itertools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses
from calib_jax.losses import AdaFocalState, adafocal, adafocal_init, adafocal_update

# ------------------------------------------------------------------ oracles


def bins_by_rank(confidence, correct, num_bins, weights=None):
    """[(weight, confidence, shared correctness)] per bin, and nothing for rows of weight 0."""
    n = len(confidence)
    w = [Fraction(1)] * n if weights is None else [Fraction(float(v)) for v in weights]
    rows = sorted((i for i in range(n) if w[i] > 0), key=lambda i: confidence[i])
    total = sum(w[i] for i in rows)
    members = [[] for _ in range(num_bins)]
    before = Fraction(0)
    for i in rows:
        tied = [j for j in rows if confidence[j] == confidence[i]]
        share = sum(float(w[j]) * float(correct[j]) for j in tied) / float(sum(w[j] for j in tied))
        members[math.floor(before * num_bins / total)].append(
            (float(w[i]), float(confidence[i]), share)
        )
        before += w[i]
    return members


def algorithm_1(gamma, members, lam=1.0, switch=0.2, gamma_max=20.0, gamma_min=-2.0):
    """Lines 14-23."""
    new = []
    for g, rows in zip(gamma, members, strict=True):
        error = 0.0
        if rows:
            mass = sum(w for w, _, _ in rows)
            error = sum(w * (c - a) for w, c, a in rows) / mass
        if g >= 0:
            g = min(gamma_max, g * math.exp(lam * error))
            if abs(g) < switch:
                g = -switch
        else:
            g = max(gamma_min, g * math.exp(-lam * error))
            if abs(g) < switch:
                g = switch
        new.append(g)
    return new


def midpoints(members):
    """Edges between neighbouring bins; only defined here when no bin is empty."""
    pairs = itertools.pairwise(members)
    return [(a[-1][1] + b[0][1]) / 2 for a, b in pairs]


def lookup(p, edges):
    """Left-closed bins: a probability on an edge belongs to the bin above it."""
    return sum(p >= e for e in edges)


def focal_term(p, g):
    return -((1 - p) ** g if g >= 0 else (1 + p) ** -g) * math.log(p)


def validation(seed, n, accuracy=0.6):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.1, 1.0, n).astype(np.float32)
    return confidence, (rng.uniform(size=n) < accuracy).astype(np.float32)


def state(gamma, edges=None):
    m = len(gamma)
    edges = np.arange(1, m) / m if edges is None else edges
    return AdaFocalState(*(jnp.asarray(np.float32(a)) for a in (edges, gamma)))


# ------------------------------------------------------------------ the loss


def test_init():
    s = adafocal_init()
    assert s.edges.shape == (14,)
    assert s.gamma.shape == (15,)
    assert s.edges.dtype == s.gamma.dtype == jnp.float32
    np.testing.assert_allclose(s.edges, [i / 15 for i in range(1, 15)], rtol=1e-6)
    np.testing.assert_array_equal(s.gamma, np.ones(15))
    s = adafocal_init(4, gamma=-0.5)
    np.testing.assert_array_equal(s.edges, [0.25, 0.5, 0.75])
    np.testing.assert_array_equal(s.gamma, [-0.5] * 4)


def test_loss_hand_numbers():
    # two bins at 1/2; p = (1/4, 3/4). label 0: gamma 2: (3/4)^2 * 1.3862944 = 0.77979057
    # label 1: gamma -1: (7/4) * 0.28768207 = 0.50344363
    logits = np.log(np.array([[1.0, 3.0], [1.0, 3.0]]))
    got = adafocal(logits, np.array([0, 1]), state([2.0, -1.0]))
    np.testing.assert_allclose(got, [0.77979057, 0.50344363], rtol=2e-6)
    # soft labels look each class up by its own probability
    got = adafocal(logits[:1], np.array([[0.5, 0.5]]), state([2.0, -1.0]))
    np.testing.assert_allclose(got, [0.5 * 0.77979057 + 0.5 * 0.50344363], rtol=2e-6)


def test_lookup_on_an_edge_takes_the_upper_bin_and_skips_empty_widths():
    # two equal logits: p is exactly 1/2 in float32
    s = state([0.0, 1.0, 2.0, 3.0], edges=[0.2, 0.5, 0.5])
    half = adafocal(np.zeros((1, 2)), np.array([0]), s)
    np.testing.assert_allclose(half, [0.5**3 * math.log(2)], rtol=1e-6)  # past both edges at 1/2
    quarter = adafocal(np.zeros((1, 4)), np.array([0]), s)
    np.testing.assert_allclose(quarter, [0.75 * math.log(4)], rtol=1e-6)
    # p = 0 is in the first bin whatever the edges, p = 1 in the last one even with edges at 1
    s = state([5.0, 1.0, -1.0], edges=[0.25, 1.0])
    tail = adafocal(np.array([[1e4, -1e4], [1e4, -1e4]]), np.array([1, 0]), s)
    np.testing.assert_allclose(tail, [2e4, 0.0], rtol=1e-6)


@pytest.mark.parametrize("soft", [False, True])
def test_loss_matches_plain_loop(soft):
    rng = np.random.default_rng(2)
    logits = (2 * rng.normal(size=(12, 3))).astype(np.float32)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    hard = rng.integers(0, 3, 12)
    labels = rng.dirichlet(np.ones(3), 12).astype(np.float32) if soft else hard
    targets = labels if soft else np.eye(3)[hard]
    edges = [0.1, 0.3, 0.35, 0.8]
    gamma = [-2.0, 0.2, 1.0, 5.0, -0.2]
    want = [
        sum(t[k] * focal_term(q[k], gamma[lookup(q[k], edges)]) for k in range(3) if t[k])
        for t, q in zip(targets, p, strict=True)
    ]
    s = state(gamma, edges)
    np.testing.assert_allclose(jax.jit(adafocal)(logits, labels, s), want, rtol=2e-5, atol=1e-6)
    if not soft:  # the gradient is that of focal with the looked-up gamma held fixed
        fixed = np.array([gamma[lookup(p[i, y], edges)] for i, y in enumerate(hard)], np.float32)
        got = jax.jit(jax.grad(lambda z: adafocal(z, hard, s).sum()))(logits)
        want = jax.jit(jax.grad(lambda z: losses.focal(z, hard, fixed).sum()))(logits)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
        one = jax.grad(lambda z, y: adafocal(z[None], y[None], s)[0])
        rows = jax.jit(jax.vmap(one))(logits, hard)
        np.testing.assert_allclose(rows, got, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss_finite_in_the_tails(dtype):
    logits = jnp.array([[1e4, -1e4, 0.0]] * 3 + [[1e4] * 3, [20.0, 0.0, 0.0]], dtype)
    labels = np.array([0, 1, 2, 0, 0])
    value_and_grad = jax.jit(jax.value_and_grad(lambda z, s: adafocal(z, labels, s).sum()))
    for g in (-2.0, -0.2, 0.0, 0.2, 0.5, 1.0, 5.0, 20.0):
        s = state([g] * 15)
        value, grad = value_and_grad(logits, s)
        assert value.dtype == jnp.float32
        assert np.isfinite(value)
        assert np.isfinite(grad.astype(jnp.float32)).all()


def test_loss_shape_errors():
    s = adafocal_init(3)
    for labels in (np.zeros(2, np.int32), np.zeros((3, 5), np.float32)):
        with pytest.raises(ValueError, match="labels"):
            adafocal(np.zeros((3, 4), np.float32), labels, s)


# ------------------------------------------------------------------ the update

update = jax.jit(adafocal_update)  # one compilation per shape; the hand-worked test runs it eagerly


def test_update_hand_numbers():
    # M = 2, sorted confidences .2 .4 | .6 .8, edge (.4 + .6) / 2 = .5
    # bin 0: mean .3, accuracy 1/2: E = -.2, gamma 1 -> e^-.2 = .81873075
    # bin 1: mean .7, accuracy 0:   E = +.7, gamma -1 -> -e^-.7 = -.49658530
    confidence = np.array([0.8, 0.2, 0.6, 0.4])
    correct = np.array([0, 1, 0, 0])
    new = adafocal_update(state([1.0, -1.0], [0.9]), confidence, correct)
    np.testing.assert_allclose(new.edges, [0.5], rtol=1e-6)
    np.testing.assert_allclose(new.gamma, [0.81873075, -0.49658530], rtol=1e-6)


@pytest.mark.parametrize(("n", "m"), [(100, 15), (15, 15), (31, 4), (5, 1)])
def test_update_matches_algorithm_1(n, m):
    confidence, correct = validation(n, n)
    rng = np.random.default_rng(m)
    gamma = rng.choice([-2.0, -1.0, -0.3, 0.25, 1.0, 3.0, 19.0], m)
    members = bins_by_rank(confidence, correct, m)
    new = update(state(gamma), confidence, correct, lam=1.7)
    np.testing.assert_allclose(new.gamma, algorithm_1(gamma, members, lam=1.7), rtol=1e-5)
    np.testing.assert_allclose(new.edges, midpoints(members), rtol=1e-6)
    assert new.edges.dtype == new.gamma.dtype == jnp.float32
    # every example is looked up in the bin whose statistics it made
    for b, rows in enumerate(members):
        assert all(lookup(np.float32(c), np.asarray(new.edges)) == b for _, c, _ in rows)


def one_bin(error):
    """Two examples whose only bin has mean confidence - accuracy == error exactly."""
    accuracy = 1.0 if error < 0 else (0.5 if error == 0 else 0.0)
    confidence = accuracy + error
    return np.full(2, confidence), np.array([accuracy > 0, accuracy > 0.5], jnp.float32)


@pytest.mark.parametrize(
    ("gamma", "error", "want"),
    [
        (0.25, -0.5, -0.2),  # .25 e^-.5 = .1516 < .2: focal -> inverse focal
        (0.25, -0.125, 0.25 * math.exp(-0.125)),  # .2206: stays focal
        (-0.25, -0.5, -0.25 * math.exp(0.5)),  # inverse focal grows when under-confident
        (-0.25, 0.5, 0.2),  # -.25 e^-.5 = -.1516: inverse focal -> focal
        (-0.25, 0.125, -0.25 * math.exp(-0.125)),
        (0.2, 0.0, 0.2),  # |gamma| == switch is not below it
        (-0.2, 0.0, -0.2),
        (0.0, 0.0, -0.2),  # algorithm 1 tests gamma >= 0, so 0 goes to inverse focal
        (15.0, 0.5, 20.0),  # 15 e^.5 = 24.7: gamma_max
        (20.0, 0.0, 20.0),
        (-1.5, -0.5, -2.0),  # -1.5 e^.5 = -2.47: gamma_min
        (-2.0, 0.0, -2.0),
        (20.0, -0.75, 20.0 * math.exp(-0.75)),  # the clamp can be left again
    ],
)
def test_update_switch_and_clamps(gamma, error, want):
    new = update(state([gamma]), *one_bin(error))
    np.testing.assert_allclose(new.gamma, [want], rtol=1e-6)
    assert new.edges.shape == (0,)


def test_update_options_and_huge_lam():
    over = one_bin(0.5)
    new = update(state([1.0]), *over, lam=3.0, gamma_max=4.0)
    np.testing.assert_allclose(new.gamma, [4.0])  # e^1.5 = 4.48
    new = update(state([-1.0]), *one_bin(-0.5), lam=3.0, gamma_min=-4.0)
    np.testing.assert_allclose(new.gamma, [-4.0])
    new = update(state([1.0]), *one_bin(-0.5), switch=0.7)
    np.testing.assert_allclose(new.gamma, [-0.7], rtol=1e-6)  # e^-.5 = .607
    new = update(state([1.0]), *over, lam=1000.0)  # exp(500) is inf in float32
    np.testing.assert_allclose(new.gamma, [20.0])
    new = update(state([-1.0]), *over, lam=1000.0)  # -exp(-500) = -0 switches to focal
    np.testing.assert_allclose(new.gamma, [0.2], rtol=1e-6)
    new = update(state([0.0]), *over, lam=1000.0)  # 0 * inf must not be NaN
    np.testing.assert_allclose(new.gamma, [-0.2], rtol=1e-6)


@pytest.mark.parametrize(("n", "m"), [(1, 5), (4, 15)])
def test_update_with_fewer_examples_than_bins(n, m):
    confidence, correct = validation(7, n)
    gamma = np.linspace(0.3, 5.0, m)
    members = bins_by_rank(confidence, correct, m)
    assert any(not rows for rows in members)
    new = update(state(gamma), confidence, correct)
    want = algorithm_1(gamma, members)  # empty bins keep their gamma
    np.testing.assert_allclose(new.gamma, want, rtol=1e-5)
    edges = np.asarray(new.edges)
    assert np.isfinite(edges).all()
    assert (np.diff(edges) >= 0).all()
    assert (edges >= 0).all()
    assert (edges <= 1).all()
    for b, rows in enumerate(members):
        assert all(lookup(np.float32(c), edges) == b for _, c, _ in rows)


def test_update_ties_at_confidence_one_reach_the_bin_that_training_looks_up():
    # N = 20, M = 5: 8 rows below, 12 tied at exactly 1 (bins 2, 3, 4) of which 3 are correct.
    low = np.linspace(0.3, 0.9, 8, dtype=np.float32)
    confidence = np.concatenate([np.ones(12, np.float32), low])
    correct = np.array([1] * 3 + [0] * 9 + [1] * 8, np.float32)
    new = update(state([1.0] * 5), confidence, correct)
    # the three tied bins share accuracy 3/12: E = 3/4 in each
    np.testing.assert_allclose(np.asarray(new.gamma)[2:], [math.exp(0.75)] * 3, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(new.edges)[2:], [1.0, 1.0])
    assert lookup(1.0, np.asarray(new.edges)) == 4
    members = bins_by_rank(confidence, correct, 5)
    np.testing.assert_allclose(new.gamma, algorithm_1([1.0] * 5, members), rtol=1e-5)
    np.testing.assert_allclose(new.edges, midpoints(members), rtol=1e-6)


def test_update_all_confidences_equal():
    new = update(state([1.0] * 3), np.full(6, 0.75), np.array([1, 0, 0, 0, 0, 1]))
    np.testing.assert_allclose(new.gamma, [math.exp(0.75 - 1 / 3)] * 3, rtol=1e-6)


def test_update_does_not_depend_on_the_order_of_the_examples():
    rng = np.random.default_rng(5)
    confidence = rng.choice(np.array([0.3, 0.5, 0.7, 0.9, 1.0], np.float32), 40)  # heavy ties
    correct = (rng.uniform(size=40) < 0.6).astype(np.float32)
    first = update(state([1.0] * 6), confidence, correct)
    members = bins_by_rank(confidence, correct, 6)
    np.testing.assert_allclose(first.gamma, algorithm_1([1.0] * 6, members), rtol=1e-5)
    for _ in range(5):
        order = rng.permutation(40)
        again = update(state([1.0] * 6), confidence[order], correct[order] > 0)  # bool too
        np.testing.assert_array_equal(again.edges, first.edges)
        np.testing.assert_allclose(again.gamma, first.gamma, rtol=1e-6)


def test_update_ignores_padded_rows():
    confidence, correct = validation(11, 29)
    start = state([1.0, 0.3, -0.3, 2.0])
    want = update(start, confidence, correct)
    # padding with the extreme confidences, in front, between and behind, right and wrong
    pad = np.array([0.0, 1.0, 0.5, 1.0, 0.0, 0.55], np.float32)
    padded = np.concatenate([pad[:3], confidence[:10], pad[3:5], confidence[10:], pad[5:]])
    flags = np.concatenate([[1, 0, 1], correct[:10], [1, 0], correct[10:], [0]])
    weights = np.concatenate([[0] * 3, [1] * 10, [0] * 2, [1] * 19, [0]]).astype(np.float32)
    got = update(start, padded, flags, weights=weights)
    np.testing.assert_allclose(got.edges, want.edges, rtol=1e-6)
    np.testing.assert_allclose(got.gamma, want.gamma, rtol=1e-6)


def test_whole_weights_are_repeated_examples():
    confidence, correct = validation(13, 24)
    weights = np.random.default_rng(0).integers(0, 4, 24)
    start = state([1.0, 2.0, -1.0, 0.5])
    got = update(start, confidence, correct, weights=weights)
    want = update(start, np.repeat(confidence, weights), np.repeat(correct, weights))
    np.testing.assert_allclose(got.gamma, want.gamma, rtol=1e-5)
    np.testing.assert_allclose(got.edges, want.edges, rtol=1e-6)


def test_update_with_no_weight_at_all_keeps_gamma():
    confidence, correct = validation(17, 6)
    got = update(state([1.0, -1.0]), confidence, correct, weights=np.zeros(6))
    np.testing.assert_allclose(got.gamma, [1.0, -1.0])
    assert np.isfinite(got.edges).all()


def test_thirty_epochs_of_algorithm_1_under_scan():
    # Over-confident, then under-confident, then over-confident again: gammas rise to the upper clamp,
    # switch to inverse focal, fall to the lower clamp, and come back. Part of the confidences is
    # exactly 1 (tied bins); of the last epochs' rows all but 3 are padding (more bins than examples).
    epochs, n, m = 30, 40, 5
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.2, 1.0, (epochs, n)).astype(np.float32)
    confidence[:, : n // 3] = 1.0
    t = np.arange(epochs)
    accuracy = np.where(t < 8, 0.05, np.where(t < 20, 1.0, 0.05))[:, None]
    correct = (rng.uniform(size=(epochs, n)) < accuracy).astype(np.float32)
    confidence[8:20] *= np.where(rng.uniform(size=(12, n)) < 0.9, 0.5, 1.0)
    weights = np.ones((epochs, n), np.float32)
    weights[26:, 3:] = 0

    def step(s, data):
        *seen, w = data
        s = adafocal_update(s, *seen, lam=2.0, weights=w)
        return s, s

    run = jax.jit(lambda s: jax.lax.scan(step, s, (confidence, correct, weights)))
    last, path = run(state([1.0] * m))
    gamma, seen, some_empty, some_tied = [1.0] * m, [[1.0] * m], False, False
    for t in range(epochs):
        members = bins_by_rank(confidence[t], correct[t], m, weights[t])
        gamma = algorithm_1(gamma, members, lam=2.0)
        seen.append(gamma)
        np.testing.assert_allclose(np.asarray(path.gamma)[t], gamma, rtol=1e-4)
        if all(members):
            np.testing.assert_allclose(np.asarray(path.edges)[t], midpoints(members), rtol=1e-6)
            some_tied |= 1.0 in midpoints(members)
        some_empty |= not all(members)
    np.testing.assert_array_equal(last.gamma, np.asarray(path.gamma)[-1])
    # What the test is for has happened.
    before, after = np.array(seen[:-1]), np.array(seen[1:])
    assert ((before > 0) & (after == -0.2)).any(), "no switch to inverse focal"
    assert ((before < 0) & (after == 0.2)).any(), "no switch back"
    assert 20.0 in after
    assert -2.0 in after
    assert some_empty
    assert some_tied


def test_update_bad_shapes():
    for confidence, correct in [(np.zeros(3), np.zeros(4)), (np.zeros((3, 2)), np.zeros(3))]:
        with pytest.raises(ValueError, match=r"confidence|correct"):
            adafocal_update(adafocal_init(2), confidence, correct)
    with pytest.raises(ValueError, match="weights"):
        adafocal_update(adafocal_init(2), np.zeros(3), np.zeros(3), weights=np.ones(2))
