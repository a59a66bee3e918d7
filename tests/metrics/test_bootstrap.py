"""bootstrap intervals and the summary table."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats as sps

from calib_jax import metrics

KEY = jax.random.key(0)


def make(n=200, k=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    return (2 * (rng.normal(size=(n, k)) + np.eye(k)[labels])).astype(np.float32), labels


def test_interval_of_accuracy_is_the_binomial_one():
    # Resampling 0/1 outcomes is exactly Binomial(n, accuracy) / n.
    logits, labels = make()
    got = metrics.bootstrap(metrics.accuracy, logits, labels, key=KEY, num_samples=2000)
    acc = np.mean(logits.argmax(1) == labels)
    np.testing.assert_allclose(got.estimate, acc, rtol=1e-6)
    low, high = sps.binom.ppf([0.025, 0.975], 200, acc) / 200
    # A 2.5 % quantile of 2000 draws wanders by about 0.17 sd; 0.5 sd (0.016) is three times that.
    sd = math.sqrt(acc * (1 - acc) / 200)
    np.testing.assert_allclose([got.low, got.high], [low, high], atol=0.5 * sd)
    assert float(got.low) < float(got.estimate) < float(got.high)


def test_interval_of_a_mean_against_scipy():
    values = np.random.default_rng(1).gamma(2.0, size=100).astype(np.float32)

    def mean(x, weights=None):
        return jnp.average(x, weights=weights)

    got = metrics.bootstrap(mean, values, key=KEY, num_samples=4000, level=0.9)
    want = sps.bootstrap(
        (values,), np.mean, n_resamples=4000, confidence_level=0.9, method="percentile", rng=0
    ).confidence_interval
    sd = values.std() / 10
    np.testing.assert_allclose(got.estimate, values.mean(), rtol=1e-5)
    np.testing.assert_allclose([got.low, got.high], want, atol=0.2 * sd)


def test_wider_level_gives_a_wider_interval():
    logits, labels = make()
    wide, narrow = (
        metrics.bootstrap(metrics.nll, logits, labels, key=KEY, num_samples=300, level=level)
        for level in (0.99, 0.5)
    )
    assert float(wide.low) < float(narrow.low) < float(narrow.high) < float(wide.high)
    np.testing.assert_allclose(wide.estimate, narrow.estimate)


def test_interval_shrinks_with_the_root_of_n():
    logits, labels = make()
    small, large = (
        metrics.bootstrap(metrics.nll, np.tile(logits, (r, 1)), np.tile(labels, r), key=KEY)
        for r in (1, 4)
    )
    ratio = (large.high - large.low) / (small.high - small.low)
    np.testing.assert_allclose(ratio, 0.5, atol=0.06)


def test_weights_are_multinomial_counts():
    # Each draw has n rows in all: the weights sum to n, never more or fewer.
    values = jnp.arange(50.0)
    got = metrics.bootstrap(lambda x, weights: jnp.sum(weights), values, key=KEY, num_samples=64)
    np.testing.assert_allclose([got.estimate, got.low, got.high], 50, rtol=1e-6)
    # And the number of distinct rows is about (1 - 1/e) n with the multinomial's spread.
    seen = metrics.bootstrap(
        lambda x, weights: jnp.mean(weights > 0), jnp.zeros(2000), key=KEY, num_samples=64
    )
    np.testing.assert_allclose([seen.low, seen.high], 1 - 1 / math.e, atol=0.03)
    whole = metrics.bootstrap(
        lambda x, weights: jnp.max(jnp.abs(weights - jnp.round(weights))),
        values, key=KEY, num_samples=64,
    )  # fmt: skip
    assert float(whole.high) == 0.0


def test_same_key_same_interval_other_key_another():
    logits, labels = make()
    run = functools.partial(metrics.bootstrap, metrics.nll, logits, labels, num_samples=100)
    first, again, other = run(key=KEY), run(key=KEY), run(key=jax.random.key(1))
    assert (first.low, first.high) == (again.low, again.high)
    assert float(first.low) != float(other.low)
    assert float(first.estimate) == float(other.estimate)


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_batch_size_is_only_about_memory(batch_size):
    logits, labels = make()
    run = functools.partial(metrics.bootstrap, metrics.nll, logits, labels, key=KEY)
    want, got = run(num_samples=100), run(num_samples=100, batch_size=batch_size)
    np.testing.assert_allclose([got.low, got.high], [want.low, want.high], rtol=1e-5)


def test_nothing_to_resample():
    # Identical rows: every draw is the same.
    conf, correct = jnp.full(30, 0.8), jnp.ones(30)
    got = metrics.bootstrap(metrics.ece, conf, correct, key=KEY, num_samples=50)
    np.testing.assert_allclose([got.estimate, got.low, got.high], 0.2, rtol=1e-5)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.ece,
        functools.partial(metrics.ece, scheme="mass"),
        metrics.ece_debiased,
        metrics.smooth_ece,
        metrics.aurc,
        metrics.auroc,
    ],
)
def test_every_kind_of_metric_can_be_resampled(metric):
    conf, correct = metrics.top_label(*make())
    got = metrics.bootstrap(metric, conf, correct, key=KEY, num_samples=60)
    assert np.isfinite([got.low, got.estimate, got.high]).all()
    assert float(got.low) < float(got.high)
    np.testing.assert_allclose(got.estimate, metric(conf, correct), rtol=1e-5)


def test_jit():
    conf, correct = metrics.top_label(*make())

    def run(c, k, key):
        return metrics.bootstrap(metrics.ece, c, k, key=key, num_samples=50)

    np.testing.assert_allclose(
        jnp.stack(jax.jit(run)(conf, correct, KEY)), jnp.stack(run(conf, correct, KEY)), rtol=1e-5
    )


# --- summary -----------------------------------------------------------------------------------
