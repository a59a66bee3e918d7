"""Jensen-Shannon divergence between views."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses


def oracle(logits):
    """The mean over the views v of KL(p_v || mean p), in float64."""
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    mean = p.mean(1, keepdims=True)
    return (p * np.log(p / mean)).sum(-1).mean(1)


def test_hand_numbers():
    # p = (1/2, 1/2) and (3/4, 1/4), their mean (5/8, 3/8):
    # KL_1 = 1/2 ln(4/5) + 1/2 ln(4/3) = .03226926, KL_2 = 3/4 ln(6/5) + 1/4 ln(2/3) = .03537489
    logits = np.log(np.array([[[1.0, 1.0], [3.0, 1.0]]]))
    got = losses.jensen_shannon(logits)
    np.testing.assert_allclose(got, [(0.03226926 + 0.03537489) / 2], rtol=2e-6)
    # Three views, two of them alike: p = (1/2, 1/2) twice and (1, 0); their mean is (2/3, 1/3).
    # KL of the first two: 1/2 ln(3/4) + 1/2 ln(3/2) = .05889152, of the third: ln(3/2) = .40546511
    logits = np.array([[[0.0, 0.0], [0.0, 0.0], [1e4, 0.0]]])
    got = losses.jensen_shannon(logits)
    np.testing.assert_allclose(got, [(2 * 0.05889152 + 0.40546511) / 3], rtol=2e-6)


@pytest.mark.parametrize("views", [1, 2, 3, 5])
def test_matches_oracle_between_0_and_log_views(views):
    rng = np.random.default_rng(views)
    logits = (2 * rng.normal(size=(6, views, 4))).astype(np.float32)
    np.testing.assert_allclose(losses.jensen_shannon(logits), oracle(logits), rtol=1e-5, atol=1e-6)
    alike = np.repeat(logits[:, :1], views, axis=1)
    np.testing.assert_allclose(losses.jensen_shannon(alike), 0, atol=1e-6)
    apart = 1e4 * np.eye(max(views, 2))[None, :views]
    np.testing.assert_allclose(losses.jensen_shannon(apart), [math.log(views)], rtol=1e-6)


def test_gradient_matches_finite_differences():
    logits = np.random.default_rng(7).normal(size=(2, 3, 4))
    slope = jax.grad(lambda z: losses.jensen_shannon(z).sum())(jnp.asarray(logits, jnp.float32))
    for i in np.ndindex(logits.shape):
        up, down = logits.copy(), logits.copy()
        up[i] += 1e-6
        down[i] -= 1e-6
        want = (oracle(up).sum() - oracle(down).sum()) / 2e-6
        np.testing.assert_allclose(slope[i], want, rtol=1e-4, atol=1e-6)


def test_a_masked_class_takes_no_part():
    logits = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    masked = np.concatenate([logits, np.full((5, 3, 1), -np.inf, np.float32)], axis=-1)
    value_and_grad = jax.value_and_grad(lambda z: losses.jensen_shannon(z).sum())
    value, grad = value_and_grad(masked)
    want, want_grad = value_and_grad(logits)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(grad[..., :4], want_grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(grad[..., 4], 0)


def test_shape_errors():
    for shape in ((4, 3), (2, 2, 4, 3)):
        with pytest.raises(ValueError, match=r"logits: expected \[batch, views, num_classes\]"):
            losses.jensen_shannon(np.zeros(shape))
