"""Losses that couple the batch: MMCE, weighted MMCE, MDCA, and the MbLS penalty."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses


def softmax(z):
    e = np.exp(np.asarray(z, np.float64) - np.max(z, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def top_label(logits, labels):
    p = softmax(logits)
    return p.max(1), (p.argmax(1) == labels).astype(np.float64)


def mmce_oracle(logits, labels, width=0.4):
    r, c = top_label(logits, labels)
    n = len(r)
    total = sum(
        (c[i] - r[i]) * (c[j] - r[j]) * math.exp(-abs(r[i] - r[j]) / width)
        for i in range(n)
        for j in range(n)
    )
    return total / n**2


def mmce_weighted_oracle(logits, labels, width=0.4, double_normalized=False):
    r, c = top_label(logits, labels)
    right, wrong = (
        [v for v, t in zip(r, c, strict=True) if t],
        [v for v, t in zip(r, c, strict=True) if not t],
    )
    m, n = len(right), len(wrong)
    if m == 0 or n == 0:
        return 0.0

    def kernel(a, b):
        return math.exp(-abs(a - b) / width)

    a = sum((1 - s) * (1 - t) * kernel(s, t) for s in right for t in right) / m**2
    b = sum(s * t * kernel(s, t) for s in wrong for t in wrong) / n**2
    x = sum((1 - s) * t * kernel(s, t) for s in right for t in wrong) / (m * n)
    if double_normalized:
        a, b, x = a / (m**2 + 1e-5), b / (n**2 + 1e-5), x / (m * n + 1e-5)
    return math.sqrt(a + b - 2 * x + 1e-10)


def mdca_oracle(logits, targets):
    p = softmax(logits)
    return np.mean([abs(p[:, k].mean() - targets[:, k].mean()) for k in range(p.shape[1])])


def mbls_oracle(logits, margin):
    return np.mean([[max(0.0, max(row) - v - margin) for v in row] for row in logits])


def numeric_grad(fn, z, step=1e-6):
    z = np.asarray(z, np.float64)
    out = np.zeros_like(z)
    for i in np.ndindex(z.shape):
        up, down = z.copy(), z.copy()
        up[i] += step
        down[i] -= step
        out[i] = (fn(up) - fn(down)) / (2 * step)
    return out


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(4)
    logits = (2 * rng.normal(size=(9, 3))).astype(np.float32)
    labels = logits.argmax(1)
    labels[::2] = (labels[::2] + 1) % 3  # 5 wrong, 4 right
    soft = rng.dirichlet(np.ones(3), 9).astype(np.float32)
    return logits, labels, soft


# ------------------------------------------------------------------ hand-worked numbers

# two rows: p = (3/4, 1/4) label 0, right: r = .75; p = (2/5, 3/5) label 0, wrong: r = .6.
#  k_12 = exp(-.15/.4) = exp(-.375) = .68728928
TWO = np.log(np.array([[3.0, 1.0], [2.0, 3.0]], np.float32))
TWO_LABELS = np.array([0, 0])


def test_mmce_hand_number():
    # d = (.25, -.6): (.0625 + .36 + 2 * .25 * -.6 * .68728928) / 4
    #               = (.4225 - .20618678) / 4 = .05407830
    np.testing.assert_allclose(losses.mmce(TWO, TWO_LABELS), 0.05407830, rtol=1e-5)


def test_mmce_weighted_hand_number():
    # m = n = 1: A = .0625, B = .36, C = .25 * .6 * .68728928 = .10309339
    # sqrt(.0625 + .36 - .20618678 + 1e-10) = .46509485; with m = n = 1 the second
    # normalisation divides by 1.00001 only
    np.testing.assert_allclose(losses.mmce_weighted(TWO, TWO_LABELS), 0.46509485, rtol=1e-5)
    twice = losses.mmce_weighted(TWO, TWO_LABELS, double_normalized=True)
    np.testing.assert_allclose(twice, 0.46509485 / math.sqrt(1.00001), rtol=1e-5)


def test_mdca_hand_number():
    # mean p = (.575, .425), mean y = (1, 0): (.425 + .425) / 2 = .425
    np.testing.assert_allclose(losses.mdca(TWO, TWO_LABELS), 0.425, rtol=1e-6)


def test_mbls_hand_number():
    # margin 10: rows (0, 2, 0) and (15, 0, 5): 22 / 6; margin 3: (0, 9, 2) and (22, 0, 12): 45 / 6
    logits = np.array([[12.0, 0.0, 7.0], [-20.0, 5.0, -10.0]])
    labels = np.array([0, 1])
    np.testing.assert_allclose(losses.mbls(logits, labels), 22 / 6, rtol=1e-6)
    np.testing.assert_allclose(losses.mbls(logits, labels, margin=3.0), 45 / 6, rtol=1e-6)


# ------------------------------------------------------------------ oracles, jit, gradients

CASES = {
    "mmce": (losses.mmce, mmce_oracle, {}),
    "mmce-narrow": (losses.mmce, mmce_oracle, {"width": 0.1}),
    "mmce_weighted": (losses.mmce_weighted, mmce_weighted_oracle, {}),
    "mmce_weighted-narrow": (losses.mmce_weighted, mmce_weighted_oracle, {"width": 0.1}),
    "mmce_weighted-double": (
        losses.mmce_weighted,
        mmce_weighted_oracle,
        {"double_normalized": True},
    ),
    "mdca": (losses.mdca, lambda z, y: mdca_oracle(z, np.eye(3)[y]), {}),
    "mbls": (losses.mbls, lambda z, y, margin: mbls_oracle(z, margin), {"margin": 1.5}),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_value_jit_and_gradient_match_oracle(name, data):
    logits, labels, _ = data
    fn, oracle, options = CASES[name]

    def loss(z, y):
        return fn(z, y, **options)

    want = oracle(logits, labels, **options)
    value, grad = jax.jit(jax.value_and_grad(loss))(logits, labels)
    assert value.shape == ()
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-7)
    want_grad = numeric_grad(lambda z: oracle(z, labels, **options), logits)
    np.testing.assert_allclose(grad, want_grad, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["mmce", "mmce_weighted", "mdca", "mbls"])
def test_vmap_over_batches(name, data):
    # a stack of batches: vmap(grad) equals the gradient of each batch alone
    logits, labels, _ = data
    fn, _, options = CASES[name]
    stack = np.stack([logits, logits[::-1] * 0.5])
    stacked_labels = np.stack([labels, labels])
    slope = jax.jit(jax.grad(lambda z, y: fn(z, y, **options)))
    got = jax.jit(jax.vmap(slope))(stack, stacked_labels)
    for i in range(2):
        np.testing.assert_allclose(
            np.asarray(got)[i], slope(stack[i], stacked_labels[i]), rtol=1e-5, atol=1e-6
        )


def test_mdca_soft_labels(data):
    logits, _, soft = data
    np.testing.assert_allclose(losses.mdca(logits, soft), mdca_oracle(logits, soft), rtol=1e-5)


@pytest.mark.parametrize("name", ["mmce", "mmce_weighted"])
def test_mmce_counts_the_largest_class_of_soft_labels(name, data):
    logits, labels, soft = data
    run = jax.jit(jax.value_and_grad(getattr(losses, name)))
    smoothed = (0.4 * np.eye(3)[labels] + 0.2).astype(np.float32)
    for given, largest in ((smoothed, labels), (soft, soft.argmax(1))):
        for got, want in zip(run(logits, given), run(logits, largest), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["mmce", "mmce_weighted", "mdca", "mbls"])
def test_the_scale_of_the_weights_means_nothing(name, data):
    logits, labels, _ = data
    weights = np.random.default_rng(0).uniform(size=9).astype(np.float32)
    fn, _, options = CASES[name]
    run = jax.jit(jax.value_and_grad(lambda z, w: fn(z, labels, weights=w, **options)))
    want, want_grad = run(logits, weights)
    for scale in (1e-3, 0.1, 10.0):
        value, grad = run(logits, scale * weights)
        np.testing.assert_allclose(value, want, rtol=1e-5)
        np.testing.assert_allclose(grad, want_grad, rtol=1e-4, atol=1e-7)


def test_mmce_is_never_negative():
    # the Laplacian kernel is positive definite: the double sum cannot go below 0
    run = jax.jit(losses.mmce)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert run(rng.normal(size=(9, 3)).astype(np.float32), rng.integers(0, 3, 9)) >= 0


def test_mmce_weighted_scale_does_not_shrink_with_the_batch(data):
    # repeating every row leaves the means over pairs, hence the value, unchanged;
    # the published double normalisation halves it
    logits, labels, _ = data
    again, again_labels = np.tile(logits, (2, 1)), np.tile(labels, 2)
    run = jax.jit(losses.mmce_weighted, static_argnames="double_normalized")
    for double, factor in ((False, 1.0), (True, 0.5)):
        once = run(logits, labels, double_normalized=double)
        twice = run(again, again_labels, double_normalized=double)
        np.testing.assert_allclose(twice, factor * once, rtol=1e-4)


@pytest.mark.parametrize("double", [False, True])
def test_mmce_weighted_with_one_set_empty_is_zero_with_finite_gradient(double):
    logits = np.array([[2.0, 0.0, -1.0], [3.0, 1.0, 0.5]], np.float32)
    run = jax.jit(
        jax.value_and_grad(lambda z, y: losses.mmce_weighted(z, y, double_normalized=double))
    )
    for labels in (np.array([0, 0]), np.array([1, 2])):  # all right, all wrong
        value, grad = run(logits, labels)
        assert value == 0.0
        np.testing.assert_array_equal(grad, np.zeros((2, 3)))


def test_mmce_weighted_near_its_zero_is_finite():
    # K = 2 and r near 1/2: 1 - r of the right rows cancels r of the wrong ones, so the argument of
    # the root is ~1e-12 while float32 rounds each term to ~1e-8: it must not go negative (NaN)
    run = jax.jit(jax.value_and_grad(losses.mmce_weighted))
    for seed in range(8):
        logits = (1e-6 * np.random.default_rng(seed).normal(size=(37, 2))).astype(np.float32)
        labels = np.where(np.arange(37) < 13, logits.argmax(1), logits.argmin(1))
        value, grad = run(logits, labels)
        assert np.isfinite(grad).all()
        np.testing.assert_allclose(value, mmce_weighted_oracle(logits, labels), atol=1e-3)


@pytest.mark.parametrize("name", ["mmce", "mmce_weighted", "mdca", "mbls"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saturated_and_tied_rows_are_finite(name, dtype):
    fn, oracle, options = CASES[name]
    big = float(jnp.asarray(1e4, dtype))
    logits = jnp.asarray(
        [[big, -big, 0.0], [big, -big, 0.0], [-big, big, 0.0], [1.0, 2.0, 4.0]], dtype
    )
    labels = np.array([0, 1, 1, 0])  # the first two rows tie in confidence
    value, grad = jax.jit(jax.value_and_grad(lambda z: fn(z, labels, **options)))(logits)
    assert value.dtype == jnp.float32
    exact = np.asarray(logits.astype(jnp.float32))
    np.testing.assert_allclose(value, oracle(exact, labels, **options), rtol=1e-5, atol=1e-7)
    assert np.isfinite(grad.astype(jnp.float32)).all()


def test_labels_do_not_enter_mbls(data):
    logits, labels, _soft = data
    first = losses.mbls(logits, labels, margin=1.0)
    assert first == losses.mbls(logits, (labels + 1) % 3, margin=1.0)


@pytest.mark.parametrize("name", ["mmce", "mmce_weighted", "mdca", "mbls"])
def test_label_shape_errors(name):
    fn = getattr(losses, name)
    logits = np.zeros((3, 4), np.float32)
    bad = [np.zeros(2, np.int32), np.zeros((3, 5), np.float32)]
    for labels in bad:
        with pytest.raises(ValueError, match="labels"):
            fn(logits, labels)


@pytest.mark.parametrize(
    "loss", [losses.mmce, losses.mmce_weighted, losses.mdca, partial(losses.mbls, margin=1.0)]
)
def test_padding_of_weight_zero_does_not_exist(loss) -> None:
    rng = np.random.default_rng(5)
    logits, labels = 3 * rng.normal(size=(20, 4)), rng.integers(0, 4, 20)
    weights = np.arange(20) < 13

    def value_and_slope(z, y, w):
        return jax.value_and_grad(lambda z: loss(z, y, weights=w))(jnp.asarray(z, jnp.float32))

    short, slope = value_and_slope(logits[:13], labels[:13], None)
    padded, padded_slope = value_and_slope(logits, labels, weights)
    np.testing.assert_allclose(padded, short, rtol=1e-5)
    np.testing.assert_allclose(padded_slope[:13], slope, rtol=1e-4, atol=1e-7)
    np.testing.assert_array_equal(padded_slope[13:], 0)
