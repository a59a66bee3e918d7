"""Jensen-Shannon divergence of a masked class; the rest is tested with the method that uses it."""

import jax
import numpy as np

from calib_jax import losses


def test_a_masked_class_takes_no_part():
    logits = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    masked = np.concatenate([logits, np.full((5, 3, 1), -np.inf, np.float32)], axis=-1)
    value_and_grad = jax.value_and_grad(lambda z: losses.jensen_shannon(z).sum())
    value, grad = value_and_grad(masked)
    want, want_grad = value_and_grad(logits)
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(grad[..., :4], want_grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(grad[..., 4], 0)
