"""The focal family against float64 oracles in log space, also where p is 0 or 1 in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calib_jax import losses
from calib_jax.metrics import BinStats

GAMMAS = [-2.0, -0.2, 0.0, 0.2, 0.5, 1.0, 5.0, 20.0]


def log_p_log_q(z, y):
    """log p_y and log(1 - p_y), both exact in the tails."""
    z = np.asarray(z, np.float64)
    others = np.delete(z, y)
    gap = others.max() + np.log(np.exp(others - others.max()).sum()) - z[y]
    return -np.logaddexp(0, gap), -np.logaddexp(0, -gap)


def term(z, y, g):
    log_p, log_q = log_p_log_q(z, y)
    weight = np.exp(g * log_q) if g >= 0 else (1 + np.exp(log_p)) ** -g
    return -weight * log_p


def term_grad(z, y, g):
    """d term / dz with g constant: (dL/dp)(dp/dz), dp/dz_j = p (1-p) r_j, r_y = 1, else -q_j."""
    z = np.asarray(z, np.float64)
    log_p, log_q = log_p_log_q(z, y)
    p, q = np.exp(log_p), np.exp(log_q)
    others = np.where(np.arange(len(z)) == y, -np.inf, z)
    r = -np.exp(others - others.max()) / np.exp(others - others.max()).sum()
    r[y] = 1.0
    if g >= 0:
        return (-np.exp((g + 1) * log_q) + g * np.exp(g * log_q) * p * log_p) * r
    a = -g
    return (-((1 + p) ** a) * q - a * (1 + p) ** (a - 1) * p * q * log_p) * r


def focal_rows(fn, logits, labels, gamma):
    """fn over the rows; soft labels: sum_k y_k fn(k). gamma(row, class) -> float."""
    out = []
    for i, (z, y) in enumerate(zip(logits, labels, strict=True)):
        if np.ndim(y):
            out.append(sum(y[k] * fn(z, k, gamma(i, k)) for k in range(len(z))))
        else:
            out.append(fn(z, int(y), gamma(i, int(y))))
    return np.stack(out)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    logits = (2 * rng.normal(size=(16, 4))).astype(np.float32)
    hard = rng.integers(0, 4, 16)
    soft = rng.dirichlet(np.ones(4), 16).astype(np.float32)
    return logits, hard, soft


def prob(z, k):
    return np.exp(log_p_log_q(z, k)[0])


# ------------------------------------------------------------------ focal


def test_focal_hand_numbers():
    # p_y = 3/4, log p = -0.28768207.  gamma 2: (1/4)^2 * 0.28768207 = 0.01798013
    # gamma 0: 0.28768207.  gamma 0.5: (1/4)^0.5 = 1/2 -> 0.14384104
    # gamma -2: (7/4)^2 * 0.28768207 = 3.0625 * 0.28768207 = 0.88102634
    logits = jnp.log(jnp.array([[1.0, 3.0]] * 4))
    got = losses.focal(logits, jnp.ones(4, jnp.int32), jnp.array([2.0, 0.0, 0.5, -2.0]))
    np.testing.assert_allclose(got, [0.01798013, 0.28768207, 0.14384104, 0.88102634], rtol=2e-6)
    # soft y = (1/2, 1/2), gamma 1: 1/2 * (3/4) * 1.3862944 + 1/2 * (1/4) * 0.28768207 = 0.55582066
    soft = losses.focal(logits[:1], jnp.full((1, 2), 0.5), 1)
    np.testing.assert_allclose(soft, [0.55582066], rtol=2e-6)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_focal_value_and_gradient_match_oracle(kind, data):
    logits, hard, soft = data
    labels = hard if kind == "hard" else soft
    run = jax.jit(lambda z, g: losses.focal(z, labels, g))
    slope = jax.jit(jax.grad(lambda z, g: losses.focal(z, labels, g).sum()))
    for g in GAMMAS + [-0.7, 0.05, 3.3]:
        want = focal_rows(term, logits, labels, lambda i, k, g=g: g)
        want_grad = focal_rows(term_grad, logits, labels, lambda i, k, g=g: g)
        np.testing.assert_allclose(run(logits, g), want, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(slope(logits, g), want_grad, rtol=5e-5, atol=2e-6)


def test_focal_gamma_per_example(data):
    logits, hard, _ = data
    gamma = np.tile(np.array(GAMMAS, np.float32), 2)
    want = focal_rows(term, logits, hard, lambda i, k: float(gamma[i]))
    np.testing.assert_allclose(losses.focal(logits, hard, gamma), want, rtol=2e-5, atol=1e-6)
    soft_rows = np.eye(4, dtype=np.float32)[hard]
    np.testing.assert_allclose(losses.focal(logits, soft_rows, gamma), want, rtol=2e-5, atol=1e-6)


def test_focal_zero_gamma_is_cross_entropy(data):
    logits, hard, soft = data
    for labels in (hard, soft):
        np.testing.assert_allclose(
            losses.focal(logits, labels, 0.0), losses.cross_entropy(logits, labels), rtol=1e-6
        )


def test_gamma_is_a_constant_for_the_gradient(data):
    logits, hard, _ = data
    for g in (2.0, -1.0):
        assert jax.grad(lambda g: losses.focal(logits, hard, g).sum())(g) == 0.0


def test_vmap_of_grad_equals_batch_gradient(data):
    logits, hard, _ = data
    gamma = jnp.tile(jnp.array(GAMMAS), 2)
    whole = jax.grad(lambda z: losses.focal(z, hard, gamma).sum())(logits)
    one = jax.grad(lambda z, y, g: losses.focal(z[None], y[None], g)[0])
    np.testing.assert_allclose(jax.vmap(one)(logits, hard, gamma), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gamma", [2.0, 0.5, -1.5])
def test_focal_check_grads_to_second_order(gamma, data):
    logits, hard, _ = data
    # float32 central differences resolve a few per cent
    check_grads(
        lambda z: losses.focal(z, hard[:2], gamma), (logits[:2] / 2,), 2, atol=3e-2, rtol=3e-2
    )


def extreme_rows():
    """Rows with p_y in {0, 1e-43, tiny, 1/2, 1/3, 1 - 1e-7, 1 - 1e-13, 1} in exact arithmetic."""
    big = 1e4
    rows = [
        ([big, -big, 0.0], 0),
        ([big, -big, 0.0], 1),
        ([big, -big, 0.0], 2),
        ([big, big, -big], 0),
        ([big, big, -big], 2),
        ([big] * 3, 1),
        ([-big] * 3, 1),
        ([-big, -big, big], 2),
        ([16.0, 0.0, 0.0], 0),
        ([16.0, 0.0, 0.0], 1),
        ([30.0, 0.0, 0.0], 0),
        ([100.0, 0.0, 0.0], 0),
        ([-100.0, 0.0, 0.0], 0),
    ]
    return [z for z, _ in rows], [y for _, y in rows]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_focal_finite_and_right_in_the_tails(dtype):
    rows, labels = extreme_rows()
    logits = jnp.asarray(rows, dtype)
    exact = np.asarray(logits.astype(jnp.float32))
    labels = np.array(labels)
    soft = 0.9 * np.eye(3, dtype=np.float32)[labels] + np.float32(0.1 / 3)
    run = jax.jit(losses.focal)
    slope = jax.jit(jax.grad(lambda z, y, g: losses.focal(z, y, g).sum()))
    rtol = 2e-5 if dtype == "float32" else 4e-3  # bfloat16 gradients are rounded to 2^-9
    for g in GAMMAS:
        for y in (labels, soft):
            value, grad = run(logits, y, g), slope(logits, y, g)
            assert value.dtype == jnp.float32
            assert grad.dtype == logits.dtype
            want = focal_rows(term, exact, y, lambda i, k, g=g: g)
            want_grad = focal_rows(term_grad, exact, y, lambda i, k, g=g: g)
            np.testing.assert_allclose(value, want, rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(grad.astype(jnp.float32), want_grad, rtol=rtol, atol=2e-6)


# ------------------------------------------------------------------ inverse focal, FLSD-53


def test_inverse_focal_is_focal_with_negative_gamma(data):
    logits, hard, soft = data
    # p_y = 3/4, gamma 1: (7/4) * 0.28768207 = 0.50344363
    hand = losses.inverse_focal(jnp.log(jnp.array([[1.0, 3.0]])), jnp.array([1]), 1.0)
    np.testing.assert_allclose(hand, [0.50344363], rtol=2e-6)
    for labels in (hard, soft):
        got = losses.inverse_focal(logits, labels, 1.5)
        np.testing.assert_allclose(got, losses.focal(logits, labels, -1.5), rtol=1e-6)
    gamma = np.linspace(0, 2, 16, dtype=np.float32)
    got = losses.inverse_focal(logits, hard, gamma)
    np.testing.assert_allclose(
        got, focal_rows(term, logits, hard, lambda i, k: -float(gamma[i])), rtol=2e-5, atol=1e-6
    )


def test_flsd53_hand_numbers():
    # p = (1/10, 9/10): label 0: gamma 5: (9/10)^5 * 2.3025851 = 0.59049 * 2.3025851 = 1.3596535
    #                   label 1: gamma 3: (1/10)^3 * 0.10536052 = 0.00010536052
    logits = jnp.log(jnp.array([[1.0, 9.0], [1.0, 9.0]]))
    got = losses.flsd53(logits, jnp.array([0, 1]))
    np.testing.assert_allclose(got, [1.3596535, 0.00010536052], rtol=1e-5)
    # soft labels: each class with the gamma of its own probability
    soft = losses.flsd53(logits[:1], jnp.array([[0.25, 0.75]]))
    np.testing.assert_allclose(soft, [0.25 * 1.3596535 + 0.75 * 0.00010536052], rtol=1e-5)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_flsd53_matches_oracle(kind, data):
    logits, hard, soft = data
    labels = hard if kind == "hard" else soft

    def gamma(i, k):
        return 5.0 if prob(logits[i], k) < 0.2 else 3.0

    assert {gamma(i, int(y)) for i, y in enumerate(hard)} == {3.0, 5.0}  # both branches are met
    value = jax.jit(losses.flsd53)(logits, labels)
    grad = jax.grad(lambda z: losses.flsd53(z, labels).sum())(logits)
    np.testing.assert_allclose(value, focal_rows(term, logits, labels, gamma), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(
        grad, focal_rows(term_grad, logits, labels, gamma), rtol=5e-5, atol=2e-6
    )


# ------------------------------------------------------------------ dual focal


def dual_row(z, y, g):
    p = np.array([prob(z, k) for k in range(len(z))])
    below = [v for v in p if v < p[y]]
    return -((1 - p[y] + (max(below) if below else 0.0)) ** g) * np.log(p[y])


def test_dual_focal_hand_numbers():
    # p = (1/2, 3/10, 1/5), gamma 2, unit in log: ln 2 = 0.69314718, ln(10/3) = 1.2039728,
    # ln 5 = 1.6094379. label 0: (1 - 1/2 + 3/10)^2 = 0.64 -> 0.44361420
    # label 1: (1 - 3/10 + 1/5)^2 = 0.81 -> 0.97521797; label 2: none below: 0.8^2 = 0.64 -> 1.0300403
    logits = jnp.log(jnp.array([[5.0, 3.0, 2.0]] * 3))
    got = losses.dual_focal(logits, jnp.array([0, 1, 2]), 2.0)
    np.testing.assert_allclose(got, [0.44361420, 0.97521797, 1.0300403], rtol=2e-6)


def test_dual_focal_strictly_below_ignores_ties():
    # p = (2/5, 2/5, 1/5), label 0: the tie at 2/5 is not below; p_j = 1/5:
    # (1 - 2/5 + 1/5)^1 * ln(5/2) = 0.8 * 0.91629073 = 0.73303258; all equal: (2/3) ln 3 = 0.73240819
    logits = jnp.array([[2.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    got = losses.dual_focal(jnp.log(logits), jnp.array([0, 1]), 1.0)
    np.testing.assert_allclose(got, [0.73303258, 0.73240819], rtol=2e-6)


def test_dual_focal_matches_oracle_value_and_finite_differences(data):
    logits, hard, _ = data
    z64 = logits.astype(np.float64)
    run = jax.jit(losses.dual_focal)
    slope = jax.jit(jax.grad(lambda z, y, g: losses.dual_focal(z, y, g).sum()))
    for g in (0.0, 0.5, 1.0, 5.0):
        want = np.array([dual_row(z, y, g) for z, y in zip(z64, hard, strict=True)])
        np.testing.assert_allclose(run(logits, hard, g), want, rtol=2e-5, atol=1e-6)
        steps = 1e-6 * np.eye(4)
        want_grad = [
            [(dual_row(z + e, y, g) - dual_row(z - e, y, g)) / 2e-6 for e in steps]
            for z, y in zip(z64, hard, strict=True)
        ]
        np.testing.assert_allclose(slope(logits, hard, g), want_grad, rtol=1e-4, atol=5e-6)
    np.testing.assert_allclose(losses.dual_focal(logits, hard), run(logits, hard, 5.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dual_focal_finite_in_the_tails(dtype):
    rows, labels = extreme_rows()
    logits, labels = jnp.asarray(rows, dtype), jnp.array(labels)
    run = jax.jit(losses.dual_focal)
    slope = jax.jit(jax.grad(lambda z, y, g: losses.dual_focal(z, y, g).sum()))
    for g in (0.0, 0.2, 0.5, 1.0, 5.0, 20.0):
        value = run(logits, labels, g)
        assert value.dtype == jnp.float32
        exact = np.asarray(logits.astype(jnp.float32), np.float64)
        saturated = np.array([0, 1, 7])  # p_y = 1, 0, 1: loss 0, z_max - z_y, 0 for every gamma
        want = [0.0, exact[1].max() - exact[1].min(), 0.0]
        np.testing.assert_allclose(value[saturated], want, rtol=1e-6, atol=1e-6)
        assert np.isfinite(value).all()
        assert np.isfinite(slope(logits, labels, g).astype(jnp.float32)).all()


# ------------------------------------------------------------------ CalFocal


def make_bins():
    """Four bins with uneven edges; bin 2 is empty. Confidence means .1 .4 - .9, accuracy .3 .2 - .5"""
    count = np.array([10.0, 20.0, 0.0, 30.0], np.float32)
    return BinStats(
        count=jnp.asarray(count),
        confidence=jnp.asarray(count * np.array([0.1, 0.4, 0.0, 0.9], np.float32)),
        correct=jnp.asarray(count * np.array([0.3, 0.2, 0.0, 0.5], np.float32)),
        edges=jnp.array([0.0, 0.2, 0.5, 0.6, 1.0]),
    )


def calfocal_gamma(p, lam, per_sample):
    b = sum(p >= e for e in (0.2, 0.5, 0.6))  # left-closed bins: an edge belongs to the upper bin
    if b == 2:
        return 1.0
    conf, acc = [(0.1, 0.3), (0.4, 0.2), None, (0.9, 0.5)][b]
    return np.exp(lam * ((p if per_sample else conf) - acc))


def test_calfocal_hand_numbers():
    # p_y = 3/4 falls in bin 3 (C = 0.9, A = 0.5), lam = 2, log p = -0.28768207
    # eq. 2: gamma = exp(2 * 0.25) = 1.6487213; (1/4)^gamma = 0.10171302 -> 0.029261
    # eq. 3: gamma = exp(2 * 0.4) = 2.2255409; (1/4)^gamma = 0.04572 -> 0.013153
    logits, label = jnp.log(jnp.array([[1.0, 3.0]])), jnp.array([1])
    for per_sample, exponent in ((True, 0.5), (False, 0.8)):
        got = losses.calfocal(logits, label, make_bins(), lam=2.0, per_sample=per_sample)
        np.testing.assert_allclose(got, [0.25 ** np.exp(exponent) * 0.28768207], rtol=1e-5)


@pytest.mark.parametrize("per_sample", [True, False])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_calfocal_matches_oracle_gamma_held_constant(per_sample, kind, data):
    logits, hard, soft = data
    labels = hard if kind == "hard" else soft

    def gamma(i, k):
        return calfocal_gamma(prob(logits[i], k), 3.0, per_sample)

    def loss(z):
        return losses.calfocal(z, labels, make_bins(), lam=3.0, per_sample=per_sample)

    want = focal_rows(term, logits, labels, gamma)
    want_grad = focal_rows(term_grad, logits, labels, gamma)
    np.testing.assert_allclose(jax.jit(loss)(logits), want, rtol=5e-5, atol=1e-6)
    np.testing.assert_allclose(
        jax.grad(lambda z: loss(z).sum())(logits), want_grad, rtol=1e-4, atol=5e-6
    )


@pytest.mark.parametrize("per_sample", [True, False])
def test_calfocal_finite_at_lam_100(per_sample):
    rows, labels = extreme_rows()
    logits, labels = jnp.asarray(rows), jnp.array(labels)
    # C - A = 1 and -1: gamma = exp(+-100), past float32 on both sides
    bins = BinStats(
        count=jnp.ones(2),
        confidence=jnp.array([0.0, 1.0]),
        correct=jnp.array([1.0, 0.0]),
        edges=jnp.array([0.0, 0.5, 1.0]),
    )

    def loss(z):
        return losses.calfocal(z, labels, bins, lam=100.0, per_sample=per_sample)

    value, grad = loss(logits), jax.grad(lambda z: loss(z).sum())(logits)
    assert np.isfinite(value).all()
    assert np.isfinite(grad).all()
    np.testing.assert_allclose(value[1], 2e4, rtol=1e-5)  # p_y = 0: the weight is 1


# ------------------------------------------------------------------ errors


CALLS = {
    "focal": lambda z, y: losses.focal(z, y, 2.0),
    "inverse_focal": lambda z, y: losses.inverse_focal(z, y, 2.0),
    "flsd53": losses.flsd53,
    "dual_focal": losses.dual_focal,
    "calfocal": lambda z, y: losses.calfocal(z, y, make_bins(), lam=1.0, per_sample=True),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_label_shape_errors(name):
    logits = np.zeros((3, 4), np.float32)
    bad = [np.zeros(2, np.int32), np.zeros((3, 5), np.float32), np.zeros((2, 4), np.float32)]
    if name == "dual_focal":  # integer labels only
        bad.append(np.full((3, 4), 0.25, np.float32))
    for labels in bad:
        with pytest.raises(ValueError):
            CALLS[name](logits, labels)


@pytest.mark.parametrize("gamma", [np.ones(2, np.float32), np.ones((3, 4), np.float32)])
def test_gamma_shape_errors(gamma):
    with pytest.raises(ValueError):
        losses.focal(np.zeros((3, 4), np.float32), np.zeros(3, np.int32), gamma)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_bfloat16_is_computed_in_float32(name, data):
    logits, hard, _ = data
    low = jnp.asarray(logits, jnp.bfloat16)
    got = CALLS[name](low, hard)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, CALLS[name](low.astype(jnp.float32), hard), rtol=1e-6)
