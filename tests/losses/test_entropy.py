"""Cross-entropy and Brier: hand-worked numbers, numpy oracles, gradients, saturation, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calib_jax import losses

LOSSES = {"cross_entropy": losses.cross_entropy, "brier": losses.brier}
each_loss = pytest.mark.parametrize("name", sorted(LOSSES))


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def one_hot(y, k):
    return np.array([1.0 if j == y else 0.0 for j in range(k)])


def oracle(name, z, target):
    """One row in float64."""
    z = np.asarray(z, np.float64)
    if name == "cross_entropy":
        log_norm = z.max() + np.log(np.exp(z - z.max()).sum())
        return sum(t * (log_norm - v) for t, v in zip(target, z, strict=True))
    return sum((p - t) ** 2 for p, t in zip(softmax(z), target, strict=True))


def oracle_grad(name, z, target):
    """d(row)/dz: CE gives sum(y) p - y; Brier gives 2 p_j (d_j - sum_k d_k p_k) with d = p - y."""
    p = softmax(np.asarray(z, np.float64))
    if name == "cross_entropy":
        return np.sum(target) * p - target
    d = p - target
    return 2 * p * (d - np.dot(d, p))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(7, 4))).astype(np.float32)
    hard = rng.integers(0, 4, 7)
    soft = rng.dirichlet(np.ones(4), 7).astype(np.float32)
    return logits, hard, soft


def test_hand_numbers():
    # p = (1/4, 3/4). CE: -ln(1/4) = 1.3862944, -ln(3/4) = 0.2876821; with y = (1/2, 1/2) their
    # mean, 0.8369882. Brier: class 0: (3/4)^2 + (3/4)^2 = 9/8; class 1: 1/16 + 1/16 = 1/8;
    # y = (1/2, 1/2): 1/16 + 1/16 = 1/8.
    logits = np.log(np.array([[1.0, 3.0], [1.0, 3.0]]))
    labels = np.array([0, 1])
    half = np.full((2, 2), 0.5)
    np.testing.assert_allclose(
        losses.cross_entropy(logits, labels), [1.3862944, 0.2876821], rtol=1e-6
    )
    np.testing.assert_allclose(losses.cross_entropy(logits, half), [0.8369882] * 2, rtol=1e-6)
    np.testing.assert_allclose(losses.brier(logits, labels), [1.125, 0.125], rtol=1e-6)
    np.testing.assert_allclose(losses.brier(logits, half), [0.125, 0.125], rtol=1e-6)


@each_loss
def test_matches_oracle_hard_and_soft(name, data):
    logits, hard, soft = data
    want_hard = [oracle(name, z, one_hot(y, 4)) for z, y in zip(logits, hard, strict=True)]
    want_soft = [oracle(name, z, t) for z, t in zip(logits, soft, strict=True)]
    got_hard, got_soft = LOSSES[name](logits, hard), LOSSES[name](logits, soft)
    run = jax.jit(LOSSES[name])
    np.testing.assert_allclose(run(logits, hard), got_hard, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(run(logits, soft), got_soft, rtol=1e-6, atol=1e-7)
    assert got_hard.shape == got_soft.shape == (7,)
    np.testing.assert_allclose(got_hard, want_hard, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got_soft, want_soft, rtol=1e-5, atol=1e-6)


@each_loss
def test_one_hot_labels_equal_integer_labels(name, data):
    logits, hard, _ = data
    rows = np.stack([one_hot(y, 4) for y in hard]).astype(np.float32)
    np.testing.assert_allclose(
        LOSSES[name](logits, rows), LOSSES[name](logits, hard), rtol=1e-6, atol=1e-7
    )


@each_loss
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_integer_label_types(name, dtype, data):
    logits, hard, _ = data
    got = LOSSES[name](logits, hard.astype(dtype))
    np.testing.assert_array_equal(got, LOSSES[name](logits, hard))


@each_loss
def test_gradient_closed_form_jit_and_vmap(name, data):
    logits, hard, soft = data
    for labels in (hard, soft):
        targets = labels if labels.ndim == 2 else np.stack([one_hot(y, 4) for y in labels])
        want = np.stack([oracle_grad(name, z, t) for z, t in zip(logits, targets, strict=True)])
        whole = jax.jit(jax.grad(lambda z, y: LOSSES[name](z, y).sum()))(logits, labels)
        one = jax.grad(lambda z, y: LOSSES[name](z[None], y[None])[0])
        rows = jax.jit(jax.vmap(one))(logits, labels)
        np.testing.assert_allclose(whole, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rows, whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("name", "order"), [("cross_entropy", 2), ("brier", 1)])
def test_check_grads(name, order, data):
    logits, hard, _ = data
    # float32 central differences: a few per cent is what they can resolve
    fn = jax.jit(lambda z: LOSSES[name](z, hard[:2]))
    check_grads(fn, (logits[:2] / 3,), order, modes=["rev"], atol=3e-2, rtol=3e-2)


@each_loss
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saturated_logits(name, dtype):
    big = float(jnp.asarray(1e4, dtype))  # 1e4 is 9984 in bfloat16
    logits = jnp.asarray([[big, -big, 0.0]] * 3 + [[big] * 3, [-big] * 3], dtype)
    labels = np.array([0, 1, 2, 1, 2])
    targets = np.stack([one_hot(int(y), 3) for y in labels])
    rows = np.asarray(logits.astype(jnp.float32))
    value = jax.jit(LOSSES[name])(logits, labels)
    grad = jax.jit(jax.grad(lambda z: LOSSES[name](z, labels).sum()))(logits)
    assert value.dtype == jnp.float32
    assert grad.dtype == logits.dtype
    want = [oracle(name, z, t) for z, t in zip(rows, targets, strict=True)]
    want_grad = [oracle_grad(name, z, t) for z, t in zip(rows, targets, strict=True)]
    np.testing.assert_allclose(value, want, rtol=1e-6, atol=1e-6)
    # the gradient is handed back in the input's type: half a bfloat16 step is 2^-9
    rtol = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(grad.astype(jnp.float32), want_grad, rtol=rtol, atol=1e-6)


@each_loss
def test_adding_a_constant_to_the_logits_changes_nothing(name):
    # eighths + 8192 are exact in float32, so both inputs describe the very same distribution
    logits = np.random.default_rng(3).integers(-16, 16, (6, 3)).astype(np.float32) / 8
    hard = np.array([0, 1, 2, 0, 1, 2])
    soft = np.full((6, 3), 1 / 3, np.float32)
    for labels in (hard, soft):
        near, far = LOSSES[name](logits, labels), LOSSES[name](logits + 8192, labels)
        np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-6)


@each_loss
def test_masked_class_is_as_if_absent(name):
    logits = np.array([[1.0, 2.0, -np.inf], [0.5, -1.0, -np.inf]])
    labels = np.array([0, 1])
    soft = np.array([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    slope = jax.jit(jax.grad(lambda z: LOSSES[name](z, labels).sum()))
    np.testing.assert_allclose(slope(logits)[:, :2], slope(logits[:, :2]), rtol=1e-6)
    np.testing.assert_array_equal(slope(logits)[:, 2], [0.0, 0.0])
    np.testing.assert_allclose(
        LOSSES[name](logits, soft), LOSSES[name](logits[:, :2], soft[:, :2]), rtol=1e-6
    )


@each_loss
def test_bfloat16_is_computed_in_float32(name, data):
    logits, hard, soft = data
    low = jnp.asarray(logits, jnp.bfloat16)
    for labels in (hard, soft):
        got = LOSSES[name](low, labels)
        assert got.dtype == jnp.float32
        want = LOSSES[name](low.astype(jnp.float32), labels)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


@each_loss
def test_zero_target_mass_on_an_impossible_class_costs_nothing(name):
    # 0 * log 0 must be 0: all the target sits on the class with all the probability
    value = LOSSES[name](np.array([[1e4, -1e4]]), np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(value, [0.0], atol=1e-7)


@each_loss
@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (np.zeros((3, 4), np.float32), np.zeros(2, np.int32)),
        (np.zeros((3, 4), np.float32), np.zeros((3, 5), np.float32)),
        (np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32)),
        (np.zeros((3, 4), np.float32), np.zeros((3, 1), np.float32)),
        (np.zeros((3, 4), np.float32), np.zeros((3, 4, 1), np.float32)),
        (np.zeros((3, 4), np.float32), np.zeros(3, np.float32)),
        (np.zeros(4, np.float32), np.zeros(1, np.int32)),
    ],
    ids=["length", "classes", "rows", "column", "rank", "float-1d", "row-of-logits"],
)
def test_label_shape_errors(name, logits, labels):
    with pytest.raises(ValueError, match="labels"):
        LOSSES[name](logits, labels)
    with pytest.raises(ValueError, match="labels"):  # the same under jit: shapes are static
        jax.jit(LOSSES[name])(logits, labels)


def test_bsce_gra_scales_the_gradient_of_cross_entropy_by_the_brier_score() -> None:
    rng = np.random.default_rng(8)
    z, y = 2 * rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    target = np.eye(4)[y]
    weight = ((p - target) ** 2).sum(1)
    found = losses.bsce_gra(z, y)
    np.testing.assert_allclose(found, -weight * np.log(p[np.arange(6), y]), rtol=1e-5)
    slope = jax.grad(lambda z: losses.bsce_gra(z, y).sum())(jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(slope, weight[:, None] * (p - target), rtol=1e-4, atol=1e-6)
    soft = losses.bsce_gra(z, jnp.asarray(target, jnp.float32), norm=3.0)
    weight = (np.abs(p - target) ** 3).sum(1)
    np.testing.assert_allclose(soft, -weight * np.log(p[np.arange(6), y]), rtol=1e-5)


def test_logit_norm_sees_only_the_direction() -> None:
    rng = np.random.default_rng(9)
    z, y = rng.normal(size=(5, 3)), rng.integers(0, 3, 5)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True) / 0.1
    expected = np.log(np.exp(unit).sum(1)) - unit[np.arange(5), y]
    for scale in (1.0, 1e-3, 1e4):
        np.testing.assert_allclose(losses.logit_norm(scale * z, y, tau=0.1), expected, rtol=1e-4)
    slope = jax.grad(lambda z: losses.logit_norm(z, y).sum())(jnp.asarray(1e4 * z, jnp.float32))
    # Along the logits themselves nothing changes.
    np.testing.assert_allclose(np.sum(slope * z, axis=1), 0, atol=1e-5)
    zero = jax.value_and_grad(lambda z: losses.logit_norm(z, y).sum())(jnp.zeros((5, 3)))
    assert np.isfinite(zero[0])
    assert np.isfinite(zero[1]).all()
