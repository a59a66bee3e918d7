"""Label-aware contrastive loss against a plain double loop."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses

lcl = jax.jit(losses.label_aware_contrastive)  # the hand-worked and the error tests run it eagerly


def oracle(features, labels, helper_logits, tau):
    f = np.asarray(features, np.float64)
    f = f / np.sqrt((f**2).sum(1, keepdims=True))
    h = np.asarray(helper_logits, np.float64)
    w = np.exp(h - h.max(1, keepdims=True))
    w = w / w.sum(1, keepdims=True)
    out = []
    for i in range(len(f)):
        others = [j for j in range(len(f)) if j != i]
        positives = [j for j in others if labels[j] == labels[i]]
        if not positives:
            out.append(0.0)
            continue
        norm = sum(w[i, labels[j]] * math.exp(f[i] @ f[j] / tau) for j in others)
        mean = np.mean([f[i] @ f[j] / tau - math.log(norm) for j in positives])
        out.append(-w[i, labels[i]] * mean)
    return np.array(out)


def numeric_grad(fn, x, step=1e-6):
    x = np.asarray(x, np.float64)
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        out[i] = (fn(up) - fn(down)) / (2 * step)
    return out


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(8)
    features = rng.normal(size=(7, 5)).astype(np.float32)
    labels = np.array([0, 1, 0, 2, 1, 0, 3])  # 2 and 3 occur once: no positive
    helper = rng.normal(size=(7, 4)).astype(np.float32)
    return features, labels, helper


def test_hand_number():
    # features e1, e1 (twice as long), e2; labels 0, 0, 1; tau = 1; helper (1/4, 3/4) for all.
    # anchor 0: s_01 = 1, s_02 = 0: norm = 1/4 e + 3/4 = 1.4295705, log = .35737408
    #           L_0 = -1/4 (1 - .35737408) = -.16065648; anchor 1 the same by symmetry
    # anchor 2 has no positive: 0
    features = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    helper = np.log(np.array([[1.0, 3.0]] * 3))
    got = losses.label_aware_contrastive(features, np.array([0, 0, 1]), helper, tau=1.0)
    np.testing.assert_allclose(got, [-0.16065648, -0.16065648, 0.0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("tau", [0.1, 0.3, 1.0])
def test_matches_oracle(tau, data):
    features, labels, helper = data
    want = oracle(features, labels, helper, tau)
    assert (want[[3, 6]] == 0).all()
    assert (want[[0, 1, 2, 4, 5]] != 0).all()
    got = lcl(features, labels, helper, tau=tau)
    assert got.shape == (7,)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("there", [[0, 2, 3, 4, 5], [4]])
def test_padding_is_compared_with_nobody(there, data):
    features, labels, helper = data
    weights = np.zeros(7, np.float32)
    weights[there] = 1

    def loss(f):
        return weights @ losses.label_aware_contrastive(f, labels, helper, tau=0.3, weights=weights)

    got = lcl(features, labels, helper, tau=0.3, weights=weights)
    want = oracle(features[there], labels[there], helper[there], 0.3) if len(there) > 1 else [0]
    np.testing.assert_allclose(got[np.array(there)], want, rtol=2e-5, atol=2e-6)
    slope = np.asarray(jax.grad(loss)(features))
    assert np.isfinite(slope).all()
    assert (slope[weights == 0] == 0).all()


def test_gradient_to_features_and_to_the_helper(data):
    features, labels, helper = data
    weights = np.arange(1.0, 8.0, dtype=np.float32)  # a different pull on each anchor

    def loss(f, h):
        return (weights * losses.label_aware_contrastive(f, labels, h, tau=0.3)).sum()

    to_features, to_helper = jax.jit(jax.grad(loss, (0, 1)))(features, helper)
    want_f = numeric_grad(lambda f: weights @ oracle(f, labels, helper, 0.3), features)
    want_h = numeric_grad(lambda h: weights @ oracle(features, labels, h, 0.3), helper)
    assert np.abs(want_h).max() > 0.1  # the helper is trained by this loss
    np.testing.assert_allclose(to_features, want_f, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(to_helper, want_h, rtol=2e-4, atol=2e-5)


def test_length_of_the_features_does_not_matter(data):
    features, labels, helper = data
    scale = np.array([1e-3, 1.0, 10.0, 5.0, 0.1, 1e3, 2.0], np.float32)[:, None]
    np.testing.assert_allclose(
        lcl(features * scale, labels, helper, tau=0.3),
        lcl(features, labels, helper, tau=0.3),
        rtol=1e-5,
        atol=1e-6,
    )


def test_uniform_helper_is_supervised_contrastive_shifted(data):
    # w = 1/K everywhere: L_i = (SupCon_i - log K) / K for anchors with a positive
    features, labels, _ = data
    got = np.asarray(lcl(features, labels, np.zeros((7, 4), np.float32), tau=0.5))
    f = features / np.linalg.norm(features, axis=1, keepdims=True)
    for i in (0, 1, 2, 4, 5):
        logits = np.delete(f @ f[i] / 0.5, i)
        same = np.delete(labels, i) == labels[i]
        supcon = np.log(np.exp(logits).sum()) - logits[same].mean()
        np.testing.assert_allclose(got[i], (supcon - math.log(4)) / 4, rtol=1e-4, atol=1e-6)


def test_vmap_over_batches(data):
    features, labels, helper = data
    slope = jax.jit(
        jax.grad(lambda f, y, h: losses.label_aware_contrastive(f, y, h, tau=0.3).sum(), (0, 2))
    )
    stacks = (
        np.stack([features, features[::-1]]),
        np.stack([labels, labels]),
        np.stack([helper] * 2),
    )
    got = jax.jit(jax.vmap(slope))(*stacks)
    for i in range(2):
        alone = slope(*(s[i] for s in stacks))
        np.testing.assert_allclose(np.asarray(got[0])[i], alone[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(got[1])[i], alone[1], rtol=1e-5, atol=1e-6)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
def sharp(features, helper, labels):
    value = losses.label_aware_contrastive(features, labels, helper, tau=0.01)
    return value.sum(), value


@pytest.mark.parametrize(
    ("labels", "helper"),
    [
        ([0, 1, 2], np.zeros((3, 3))),  # no positive at all
        ([0, 0, 0], np.zeros((3, 3))),  # no negative
        ([0, 0, 1], [[1e4, -1e4, 0.0]] * 3),  # the helper is sure and right
        ([0, 0, 1], [[-1e4, -1e4, 1e4]] * 3),  # every weight of the row is 0
    ],
)
def test_finite_values_and_gradients_at_the_edges(labels, helper):
    features = np.array([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8]], np.float32)
    labels, helper = np.array(labels), np.asarray(helper, np.float32)
    (_, value), grads = sharp(features, helper, labels)
    assert np.isfinite(value).all()
    for grad in grads:
        assert np.isfinite(grad).all()
    alone = np.array([list(labels).count(y) == 1 for y in labels])
    np.testing.assert_array_equal(np.asarray(value)[alone], np.zeros(alone.sum()))


def test_a_single_row_is_zero():
    labels, helper = np.array([1]), np.zeros((1, 3))
    loss_and_grad = jax.value_and_grad(
        lambda f: losses.label_aware_contrastive(f, labels, helper, tau=0.3).sum()
    )
    value, grad = jax.jit(loss_and_grad)(np.array([[0.3, -0.4]]))
    assert value == 0.0
    np.testing.assert_array_equal(grad, [[0.0, 0.0]])


def test_zero_feature_row_has_a_finite_gradient(data):
    features, labels, helper = data
    features = features.copy()
    features[0] = 0.0
    grad = jax.jit(
        jax.grad(lambda f: losses.label_aware_contrastive(f, labels, helper, tau=0.3).sum())
    )(features)
    assert np.isfinite(grad).all()


def test_bfloat16_is_computed_in_float32(data):
    features, labels, helper = data
    low_f, low_h = jnp.asarray(features, jnp.bfloat16), jnp.asarray(helper, jnp.bfloat16)
    got = lcl(low_f, labels, low_h, tau=0.3)
    assert got.dtype == jnp.float32
    want = oracle(
        np.asarray(low_f.astype(jnp.float32)), labels, np.asarray(low_h.astype(jnp.float32)), 0.3
    )
    np.testing.assert_allclose(got, want, rtol=5e-5, atol=5e-6)


def test_shape_errors(data):
    features, labels, helper = data
    bad = [
        (features, labels[:6], helper, "labels"),
        (features, labels, helper[:6], "labels"),
        (features, np.eye(4, dtype=np.float32)[labels], helper, "labels"),  # integers only
        (features[0], labels, helper, "features"),
        (features[:1], labels, helper, "features"),  # one row would broadcast to all
        (features[:6], labels, helper, "features"),
    ]
    for f, y, h, named in bad:
        with pytest.raises(ValueError, match=named):
            losses.label_aware_contrastive(f, y, h, tau=0.3)
