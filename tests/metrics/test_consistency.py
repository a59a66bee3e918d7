"""The consistency test: exact distributions, uniform p-values, power."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import metrics

KEY = jax.random.key(0)


def test_expected_value_and_p_value_of_a_coin() -> None:
    """Four predictions of 1/2 in one bin: |k - 2| / 4 with k binomial; its mean is 3/16."""
    test = metrics.consistency_test(
        metrics.ece, jnp.full(4, 0.5), jnp.array([1, 1, 1, 0]), key=KEY, num_samples=20_000,
        batch_size=1000,
    )  # fmt: skip
    np.testing.assert_allclose(test.value, 0.25)
    np.testing.assert_allclose(test.expected, 3 / 16, atol=0.005)
    np.testing.assert_allclose(test.p_value, 10 / 16, atol=0.02)  # not two of four


def test_p_values_of_calibrated_predictions_are_uniform_and_of_others_small() -> None:
    confidence = jnp.linspace(0.5, 1.0, 60)
    draws = 100

    @jax.jit
    @jax.vmap
    def p_values(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        draw_key, key = jax.random.split(key)
        uniform = jax.random.uniform(draw_key, (60,))
        test = functools.partial(
            metrics.consistency_test, metrics.ece, confidence, key=key, num_samples=49
        )
        return test(uniform < confidence).p_value, test(uniform < confidence - 0.3).p_value

    calibrated, overconfident = p_values(jax.random.split(KEY, draws))
    for level in (0.1, 0.5):
        deviation = np.sqrt(level * (1 - level) / draws)
        assert abs(float(jnp.mean(calibrated <= level)) - level) < 3.5 * deviation
    assert float(jnp.mean(overconfident <= 0.05)) > 0.9


def test_labels_are_drawn_from_probabilities() -> None:
    """The mean of a metric that is the share of a class is that of its probabilities."""
    probs = jnp.array([[0.7, 0.1, 0.2], [0.0, 0.5, 0.5]])
    for k in range(3):

        def share(p: jax.Array, labels: jax.Array, k: int = k) -> jax.Array:
            return jnp.mean((labels == k).astype(p.dtype))

        test = metrics.consistency_test(
            share, probs, jnp.array([0, 1]), key=KEY, num_samples=4000, batch_size=500
        )
        np.testing.assert_allclose(test.expected, jnp.mean(probs[:, k]), atol=0.02)
    test = metrics.consistency_test(
        metrics.classwise_ece, probs, jnp.array([0, 1]), key=KEY, num_samples=5
    )
    assert np.isfinite(np.asarray(test)).all()


def test_rows_of_weight_zero_and_other_metrics() -> None:
    confidence, correct = np.linspace(0.4, 1.0, 20), np.arange(20) % 2
    mass = functools.partial(metrics.ece, scheme="mass", num_bins=4)
    weights = np.append(np.ones(20), np.zeros(5))
    test = metrics.consistency_test(
        mass, np.append(confidence, np.full(5, np.nan)), np.append(correct, np.zeros(5)),
        key=KEY, num_samples=200, weights=weights,
    )  # fmt: skip
    same = metrics.consistency_test(mass, confidence, correct, key=KEY, num_samples=200)
    np.testing.assert_allclose(test.value, same.value, rtol=1e-5)
    np.testing.assert_allclose(test.expected, same.expected, atol=0.03)  # other random numbers


def test_errors_and_nan() -> None:
    with pytest.raises(ValueError, match="predictions and outcomes"):
        metrics.consistency_test(metrics.ece, jnp.ones(3), jnp.ones(4), key=KEY)
    with pytest.raises(ValueError, match="num_samples=0"):
        metrics.consistency_test(metrics.ece, jnp.ones(3), jnp.ones(3), key=KEY, num_samples=0)
    with pytest.raises(ValueError, match="found 3, so these are logits"):
        metrics.consistency_test(metrics.ece, jnp.array([0.5, 3.0]), jnp.ones(2), key=KEY)
    test = metrics.consistency_test(
        metrics.ece, jnp.array([0.5, np.nan]), jnp.ones(2), key=KEY, num_samples=5
    )
    assert np.isnan(np.asarray(test)).all()
