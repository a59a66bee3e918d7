"""The focal family against float64 oracles in log space, also where p is 0 or 1 in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calib_jax import losses
from calib_jax.metrics import BinStats, bin_stats

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
    logits = np.log(np.array([[1.0, 3.0]] * 4))
    got = losses.focal(logits, np.ones(4, np.int32), np.array([2.0, 0.0, 0.5, -2.0]))
    np.testing.assert_allclose(got, [0.01798013, 0.28768207, 0.14384104, 0.88102634], rtol=2e-6)
    # soft y = (1/2, 1/2), gamma 1: 1/2 * (3/4) * 1.3862944 + 1/2 * (1/4) * 0.28768207 = 0.55582066
    soft = losses.focal(logits[:1], np.full((1, 2), 0.5), 1)
    np.testing.assert_allclose(soft, [0.55582066], rtol=2e-6)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_focal_value_and_gradient_match_oracle(kind, data):
    logits, hard, soft = data
    labels = hard if kind == "hard" else soft
    run = jax.jit(lambda z, g: losses.focal(z, labels, g))
    slope = jax.jit(jax.grad(lambda z, g: losses.focal(z, labels, g).sum()))
    for g in [*GAMMAS, -0.7, 0.05, 3.3]:
        want = focal_rows(term, logits, labels, lambda i, k, g=g: g)
        want_grad = focal_rows(term_grad, logits, labels, lambda i, k, g=g: g)
        np.testing.assert_allclose(run(logits, g), want, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(slope(logits, g), want_grad, rtol=5e-5, atol=2e-6)


def test_focal_gamma_per_example(data):
    logits, hard, _ = data
    gamma = np.tile(np.array(GAMMAS, np.float32), 2)
    want = focal_rows(term, logits, hard, lambda i, k: float(gamma[i]))
    run = jax.jit(losses.focal)
    np.testing.assert_allclose(run(logits, hard, gamma), want, rtol=2e-5, atol=1e-6)
    soft_rows = np.eye(4, dtype=np.float32)[hard]
    np.testing.assert_allclose(run(logits, soft_rows, gamma), want, rtol=2e-5, atol=1e-6)
    whole = jax.jit(jax.grad(lambda z, g: losses.focal(z, hard, g).sum()))(logits, gamma)
    one = jax.grad(lambda z, y, g: losses.focal(z[None], y[None], g)[0])
    rows = jax.jit(jax.vmap(one))(logits, hard, gamma)
    np.testing.assert_allclose(rows, whole, rtol=1e-5, atol=1e-6)


def test_gamma_is_a_constant_for_the_gradient(data):
    logits, hard, _ = data
    slope = jax.jit(jax.grad(lambda g: losses.focal(logits, hard, g).sum()))
    assert slope(2.0) == 0.0
    assert slope(-1.0) == 0.0


def test_focal_check_grads_to_second_order(data):
    logits, hard, _ = data
    gamma = np.array([0.5, -1.5], np.float32)
    fn = jax.jit(lambda z: losses.focal(z, hard[:2], gamma))
    # float32 central differences resolve a few per cent
    check_grads(fn, (logits[:2] / 2,), 2, modes=["rev"], atol=3e-2, rtol=3e-2)


def extreme_rows():
    """Logits [13, 3] and labels: p_y is 0, tiny, 1/3, 1/2, 1 - 1e-7, 1 - 1e-13 or 1."""
    big = 1e4
    rows = [([big, -big, 0.0], y) for y in range(3)]
    rows += [([big, big, -big], 0), ([big, big, -big], 2), ([-big, -big, big], 2)]
    rows += [([big] * 3, 1), ([-big] * 3, 1)]
    rows += [([gap, 0.0, 0.0], 0) for gap in (16.0, 30.0, 100.0, -100.0)] + [([16.0, 0.0, 0.0], 1)]
    return np.array([z for z, _ in rows], np.float32), np.array([y for _, y in rows])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_focal_finite_and_right_in_the_tails(dtype):
    rows, labels = extreme_rows()
    logits = jnp.asarray(rows, dtype)
    exact = np.asarray(logits.astype(jnp.float32))
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
    # p_y = 3/4, gamma 1: (7/4) * 0.28768207 = 0.50344363
    hand = losses.inverse_focal(np.log([[1.0, 3.0]]), np.array([1]), 1.0)
    np.testing.assert_allclose(hand, [0.50344363], rtol=2e-6)
    logits, hard, soft = data
    gamma = np.linspace(0, 2, 16, dtype=np.float32)
    for labels in (hard, soft):
        got = jax.jit(losses.inverse_focal)(logits, labels, gamma)
        want = focal_rows(term, logits, labels, lambda i, k: -float(gamma[i]))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_flsd53_hand_numbers():
    # p = (1/10, 9/10): label 0: gamma 5: (9/10)^5 * 2.3025851 = 0.59049 * 2.3025851 = 1.3596535
    #                   label 1: gamma 3: (1/10)^3 * 0.10536052 = 0.00010536052
    logits = np.log(np.array([[1.0, 9.0], [1.0, 9.0]]))
    got = losses.flsd53(logits, np.array([0, 1]))
    np.testing.assert_allclose(got, [1.3596535, 0.00010536052], rtol=1e-5)
    # soft labels: each class with the gamma of its own probability
    soft = losses.flsd53(logits[:1], np.array([[0.25, 0.75]]))
    np.testing.assert_allclose(soft, [0.25 * 1.3596535 + 0.75 * 0.00010536052], rtol=1e-5)


# ------------------------------------------------------------------ dual focal


def dual_row(z, y, g):
    p = np.array([prob(z, k) for k in range(len(z))])
    below = [v for v in p if v < p[y]]
    return -((1 - p[y] + (max(below) if below else 0.0)) ** g) * np.log(p[y])


def test_dual_focal_hand_numbers():
    # p = (1/2, 3/10, 1/5), gamma 2: ln 2 = 0.69314718, ln(10/3) = 1.2039728, ln 5 = 1.6094379
    # label 0: (1 - 1/2 + 3/10)^2 = 0.64 -> 0.44361420
    # label 1: (1 - 3/10 + 1/5)^2 = 0.81 -> 0.97521797
    # label 2: none below: 0.8^2 = 0.64 -> 1.0300403
    # p = (2/5, 2/5, 1/5), label 0: the tie is not below, p_j = 1/5: 0.8^2 ln(5/2) = 0.58642607
    # p = 1/3 each: none below: (2/3)^2 ln 3 = 0.48827213
    logits = np.log([[5.0, 3.0, 2.0]] * 3 + [[2.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    got = losses.dual_focal(logits, np.array([0, 1, 2, 0, 1]), 2.0)
    want = [0.44361420, 0.97521797, 1.0300403, 0.58642607, 0.48827213]
    np.testing.assert_allclose(got, want, rtol=2e-6)


def check_dual_focal(logits, labels, oracle):
    """Values against an oracle of one row, and gradients against its finite differences."""
    pairs = list(zip(logits.astype(np.float64), labels, strict=True))
    slope = jax.jit(jax.grad(lambda z, y, g: losses.dual_focal(z, y, g).sum()))
    steps = 1e-6 * np.eye(4)
    for g in (0.0, 0.5, 1.0, 5.0):
        want = [oracle(z, y, g) for z, y in pairs]
        got = jax.jit(losses.dual_focal)(logits, labels, g)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)
        want = [
            [(oracle(z + e, y, g) - oracle(z - e, y, g)) / 2e-6 for e in steps] for z, y in pairs
        ]
        np.testing.assert_allclose(slope(logits, labels, g), want, rtol=1e-4, atol=5e-6)


def test_dual_focal_matches_oracle_value_and_finite_differences(data):
    logits, hard, _ = data
    check_dual_focal(logits, hard, dual_row)
    # gamma = 5 is the default
    got, want = losses.dual_focal(logits, hard), losses.dual_focal(logits, hard, 5.0)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dual_focal_finite_in_the_tails(dtype):
    rows, labels = extreme_rows()
    logits = jnp.asarray(rows, dtype)
    run = jax.jit(losses.dual_focal)
    slope = jax.jit(jax.grad(lambda z, y, g: losses.dual_focal(z, y, g).sum()))
    for g in (0.0, 0.2, 0.5, 1.0, 5.0, 20.0):
        value = run(logits, labels, g)
        assert value.dtype == jnp.float32
        exact = np.asarray(logits.astype(jnp.float32), np.float64)
        saturated = np.array([0, 1, 5])  # p_y = 1, 0, 1: loss 0, z_max - z_y, 0 for every gamma
        want = [0.0, exact[1].max() - exact[1].min(), 0.0]
        np.testing.assert_allclose(np.asarray(value)[saturated], want, rtol=1e-6, atol=1e-6)
        assert np.isfinite(value).all()
        assert np.isfinite(slope(logits, labels, g).astype(jnp.float32)).all()


def dual_soft(z, y, g):
    return sum(y[k] * dual_row(z, k, g) for k in range(len(z)) if y[k])


def test_dual_focal_soft_hand_number():
    # the first three rows of the hand numbers: 0.5 * 0.44361420 + 0.2 * 0.97521797 + 0.3 * 1.0300403
    got = losses.dual_focal(np.log([[5.0, 3.0, 2.0]]), np.array([[0.5, 0.2, 0.3]]), 2.0)
    np.testing.assert_allclose(got, [0.72586278], rtol=2e-6)


def test_dual_focal_soft_labels_match_oracle_value_and_finite_differences(data):
    logits, _, soft = data
    check_dual_focal(logits, soft, dual_soft)


def test_dual_focal_one_hot_rows_are_integers():
    # ties, saturation and more than one batch axis
    rows, labels = extreme_rows()
    rows = np.concatenate([rows, np.log([[2.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 2.0]])])
    labels = np.concatenate([labels, [0, 1, 0]])
    rows, labels = rows.astype(np.float32).reshape(4, 4, 3), labels.reshape(4, 4)
    value_and_grad = jax.jit(jax.value_and_grad(lambda z, y: losses.dual_focal(z, y, 2.0).sum()))
    got, got_grad = value_and_grad(rows, np.eye(3, dtype=np.float32)[labels])
    want, want_grad = value_and_grad(rows, labels)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    np.testing.assert_allclose(got_grad, want_grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dual_focal_soft_labels_finite_in_the_tails(dtype):
    rows, labels = extreme_rows()
    soft = 0.9 * np.eye(3, dtype=np.float32)[labels] + np.float32(0.1 / 3)
    value_and_grad = jax.jit(jax.value_and_grad(lambda z, g: losses.dual_focal(z, soft, g).sum()))
    for g in (0.0, 0.2, 1.0, 5.0):
        value, grad = value_and_grad(jnp.asarray(rows, dtype), g)
        assert np.isfinite(value)
        assert np.isfinite(grad.astype(jnp.float32)).all()


def test_dual_focal_of_a_masked_class_without_label_mass_is_that_of_the_others(data):
    logits, _, soft = data
    masked = np.concatenate([np.full((16, 1), -np.inf, np.float32), logits], axis=1)
    padded = np.concatenate([np.zeros((16, 1), np.float32), soft], axis=1)
    value_and_grad = jax.jit(jax.value_and_grad(lambda z, y: losses.dual_focal(z, y).sum()))
    value, grad = value_and_grad(masked, padded)
    want, want_grad = value_and_grad(logits, soft)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(grad[:, 1:], want_grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(grad[:, 0], 0)


# ------------------------------------------------------------------ CalFocal


def make_bins():
    """Four uneven bins, bin 2 empty. Mean confidence .1 .4 - .9, accuracy .3 .2 - .5"""
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
    # eq. 2: gamma = exp(2 * (0.75 - 0.5)) = exp(0.5)
    # eq. 3: gamma = exp(2 * (0.9 - 0.5)) = exp(0.8)
    logits, label = np.log(np.array([[1.0, 3.0]])), np.array([1])
    for per_sample, exponent in ((True, 0.5), (False, 0.8)):
        got = losses.calfocal(logits, label, make_bins(), lam=2.0, per_sample=per_sample)
        np.testing.assert_allclose(got, [0.25 ** np.exp(exponent) * 0.28768207], rtol=1e-5)


def flsd_gamma(p):
    return 5.0 if p < 0.2 else 3.0


LOOKUPS = {
    "flsd53": (losses.flsd53, flsd_gamma),
    "eq2": (
        lambda z, y: losses.calfocal(z, y, make_bins(), lam=3.0, per_sample=True),
        lambda p: calfocal_gamma(p, 3.0, True),
    ),
    "eq3": (
        lambda z, y: losses.calfocal(z, y, make_bins(), lam=3.0, per_sample=False),
        lambda p: calfocal_gamma(p, 3.0, False),
    ),
}


@pytest.mark.parametrize("name", sorted(LOOKUPS))
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_gamma_from_p_matches_oracle_and_is_held_constant(name, kind, data):
    logits, labels = data[0], data[1 if kind == "hard" else 2]
    loss, gamma_of = LOOKUPS[name]

    def gamma(i, k):
        return gamma_of(prob(logits[i], k))

    want = focal_rows(term, logits, labels, gamma)
    want_grad = focal_rows(term_grad, logits, labels, gamma)
    grad = jax.jit(jax.grad(lambda z: loss(z, labels).sum()))(logits)
    np.testing.assert_allclose(jax.jit(loss)(logits, labels), want, rtol=5e-5, atol=1e-6)
    np.testing.assert_allclose(grad, want_grad, rtol=1e-4, atol=5e-6)


@pytest.mark.parametrize("per_sample", [True, False])
def test_calfocal_finite_at_lam_100(per_sample):
    logits, labels = extreme_rows()

    def loss(z, bins):
        value = losses.calfocal(z, labels, bins, lam=100.0, per_sample=per_sample)
        return value.sum(), value

    value_and_grad = jax.jit(jax.value_and_grad(loss, has_aux=True))
    # C - A = -1 and +1 in the lower and upper bin, then the reverse: gamma = exp(+-100), past
    # float32 on both sides, meets p = 0 and p = 1
    for confidence in ([0.0, 1.0], [1.0, 0.0]):
        bins = BinStats(
            count=jnp.ones(2),
            confidence=jnp.array(confidence),
            correct=1 - jnp.array(confidence),
            edges=jnp.array([0.0, 0.5, 1.0]),
        )
        (_, value), grad = value_and_grad(logits, bins)
        assert np.isfinite(value).all()
        assert np.isfinite(grad).all()
        np.testing.assert_allclose(np.asarray(value)[1], 2e4, rtol=1e-5)  # p_y = 0: weight 1


# ------------------------------------------------------------------ all of them


CALLS = {
    "focal": lambda z, y: losses.focal(z, y, 0.5),
    "inverse_focal": lambda z, y: losses.inverse_focal(z, y, 2.0),
    "flsd53": losses.flsd53,
    "dual_focal": losses.dual_focal,
    "calfocal": lambda z, y: losses.calfocal(z, y, make_bins(), lam=1.0, per_sample=True),
}


@pytest.mark.parametrize("name", ["flsd53", "dual_focal", "calfocal"])
def test_vmap_of_grad_equals_batch_gradient(name, data):
    logits, hard, _ = data
    whole = jax.jit(jax.grad(lambda z: CALLS[name](z, hard).sum()))(logits)
    one = jax.grad(lambda z, y: CALLS[name](z[None], y[None])[0])
    rows = jax.jit(jax.vmap(one))(logits, hard)
    np.testing.assert_allclose(rows, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_label_shape_errors(name):
    logits = np.zeros((3, 4), np.float32)
    bad = [np.zeros(2, np.int32), np.zeros((3, 5), np.float32), np.zeros((2, 4), np.float32)]
    for labels in bad:
        with pytest.raises(ValueError, match="labels"):
            CALLS[name](logits, labels)


@pytest.mark.parametrize("shape", [(2,), (3, 1), (1, 3), (3, 3), (3, 4)])
def test_gamma_shape_errors(shape):
    # [3, 1] and [3, 3] broadcast against [3]: without a check the result is [3, 3]
    with pytest.raises(ValueError, match="gamma"):
        losses.focal(np.zeros((3, 4), np.float32), np.zeros(3, np.int32), np.ones(shape))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_bfloat16_and_large_offsets_in_float32(name, data):
    hard = data[1]
    low = jnp.asarray(data[0], jnp.bfloat16)
    run = jax.jit(CALLS[name])
    want = run(low.astype(jnp.float32), hard)
    got = run(low, hard)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=1e-6)
    # eighths + 8192 are exact in float32: softmax is the same, so the loss is
    eighths = np.round(8 * data[0]) / 8
    near, far = run(eighths, hard), run(eighths + 8192, hard)
    np.testing.assert_allclose(far, near, rtol=1e-5, atol=1e-6)


def test_calfocal_counts_a_bin_of_one_example() -> None:
    bins = bin_stats([0.9], [0], num_bins=1)
    for per_sample, confidence in ((False, 0.9), (True, 0.5)):  # less an accuracy of 0
        found = losses.calfocal([[0.0, 0.0]], [0], bins, lam=1.0, per_sample=per_sample)
        expected = 0.5 ** np.exp(confidence) * np.log(2)
        assert float(found[0]) == pytest.approx(expected, rel=1e-5)
