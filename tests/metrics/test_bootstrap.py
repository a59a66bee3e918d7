"""bootstrap intervals and the summary table."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit
from scipy import stats as sps

from calib_jax import metrics

KEY = jax.random.key(0)


def make(n=200, k=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    return (2 * (rng.normal(size=(n, k)) + np.eye(k)[labels])).astype(np.float32), labels


def mean(x, weights=None):
    return jnp.average(x, weights=weights)


def skewed(n=100):
    return np.random.default_rng(1).gamma(2.0, size=n).astype(np.float32)


# One compilation per metric, level and batch size: an eager call would compile each time.
boot = quick_jit(
    lambda key, *arrays, **options: metrics.bootstrap(
        options.pop("metric"), *arrays, key=key, **options
    ),
    static_argnames=("metric", "num_samples", "level", "batch_size"),
)


def test_interval_of_accuracy_is_the_binomial_one():
    # Resampling 0/1 outcomes is exactly Binomial(n, accuracy) / n.
    logits, labels = make()
    got = boot(KEY, logits, labels, metric=metrics.accuracy, num_samples=2000)
    acc = np.mean(logits.argmax(1) == labels)
    np.testing.assert_allclose(got.estimate, acc, rtol=1e-6)
    low, high = sps.binom.ppf([0.025, 0.975], 200, acc) / 200
    # A 2.5 % quantile of 2000 draws wanders by about 0.06 sd, and outcomes come in steps of
    # 0.15 sd; half a sd is far from chance and near enough to tell 95 % from 90 % or 99 %.
    sd = math.sqrt(acc * (1 - acc) / 200)
    np.testing.assert_allclose([got.low, got.high], [low, high], atol=0.25 * sd)


def test_interval_of_a_mean_against_scipy():
    values = skewed()
    got = boot(KEY, values, metric=mean, num_samples=4000, level=0.9)
    want = sps.bootstrap(
        (values,), np.mean, n_resamples=4000, confidence_level=0.9, method="percentile", rng=0
    ).confidence_interval
    np.testing.assert_allclose(got.estimate, values.mean(), rtol=1e-5)
    np.testing.assert_allclose([got.low, got.high], want, atol=0.15 * values.std() / 10)


def test_wider_level_gives_a_wider_interval():
    wide, narrow = (boot(KEY, skewed(), metric=mean, level=level) for level in (0.95, 0.5))
    assert float(wide.low) < float(narrow.low) < float(narrow.high) < float(wide.high)
    np.testing.assert_allclose(wide.estimate, narrow.estimate)


def test_interval_shrinks_with_the_root_of_n():
    small, large = (boot(KEY, np.tile(skewed(), r), metric=mean) for r in (1, 4))
    ratio = (large.high - large.low) / (small.high - small.low)
    np.testing.assert_allclose(ratio, 0.5, atol=0.06)


def count_facts(x, weights=None):
    """What a multinomial draw must satisfy: total, distinct rows, wholeness."""
    weights = jnp.ones_like(x) if weights is None else weights
    broken = jnp.max(jnp.abs(weights - jnp.round(weights)))
    return {"sum": jnp.sum(weights), "seen": jnp.mean(weights > 0), "broken": broken}


def test_weights_are_multinomial_counts():
    got = boot(KEY, np.zeros(2000, np.float32), metric=count_facts, num_samples=64)
    # Each draw has n rows in all, never more or fewer.
    np.testing.assert_allclose([got.low["sum"], got.high["sum"]], 2000)
    # About (1 - 1/e) n distinct ones.
    np.testing.assert_allclose([got.low["seen"], got.high["seen"]], 1 - 1 / math.e, atol=0.03)
    assert float(got.high["broken"]) == 0.0


def test_same_key_same_interval_other_key_another():
    first, again, other = (
        boot(jax.random.key(seed), skewed(), metric=mean, num_samples=100) for seed in (0, 0, 1)
    )
    assert (first.low, first.high) == (again.low, again.high)
    assert float(first.low) != float(other.low)
    assert float(first.estimate) == float(other.estimate)


def test_batch_size_is_only_about_memory():
    want = boot(KEY, skewed(), metric=mean, num_samples=100)
    got = boot(KEY, skewed(), metric=mean, num_samples=100, batch_size=7)
    np.testing.assert_allclose([got.low, got.high], [want.low, want.high], rtol=1e-5)


def test_nothing_to_resample():
    # Identical rows: every draw is the same.
    got = boot(KEY, np.full(200, 0.8, np.float32), np.ones(200), metric=metrics.ece, num_samples=60)
    np.testing.assert_allclose([got.estimate, got.low, got.high], 0.2, rtol=1e-5)


MASS = functools.partial(metrics.ece, scheme="mass")


@pytest.mark.parametrize("metric", [MASS, metrics.smooth_ece])
def test_every_kind_of_metric_can_be_resampled(metric):
    conf, correct = metrics.top_label(*make())
    got = boot(KEY, conf, correct, metric=metric, num_samples=60)
    assert np.isfinite([got.low, got.estimate, got.high]).all()
    assert float(got.low) < float(got.high)


def test_eager_is_the_same():
    want = boot(KEY, skewed(), metric=mean, num_samples=100)
    got = metrics.bootstrap(mean, skewed(), key=KEY, num_samples=100)
    np.testing.assert_allclose(jnp.stack(got), jnp.stack(want), rtol=1e-5)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_level_is_a_fraction(level):
    with pytest.raises(ValueError, match=str(level)):
        metrics.bootstrap(mean, skewed(), key=KEY, level=level)


# --- summary -----------------------------------------------------------------------------------

# Each line of the table and the function it must agree with.
TABLE = {
    "accuracy": lambda z, y, c, k, w: metrics.accuracy(z, y, weights=w),
    "f1_macro": lambda z, y, c, k, w: metrics.f1(z, y, "macro", weights=w),
    "f1_weighted": lambda z, y, c, k, w: metrics.f1(z, y, "weighted", weights=w),
    "confidence": lambda z, y, c, k, w: jnp.average(c, weights=w),
    "nll": lambda z, y, c, k, w: metrics.nll(z, y, weights=w),
    "refinement": lambda z, y, c, k, w: metrics.refinement(z, y, weights=w),
    "brier": lambda z, y, c, k, w: metrics.brier_score(z, y, weights=w),
    "ece": lambda z, y, c, k, w: metrics.ece(c, k, weights=w),
    "ece_10": lambda z, y, c, k, w: metrics.ece(c, k, num_bins=10, closed="left", weights=w),
    "ece_mass": lambda z, y, c, k, w: metrics.ece(c, k, scheme="mass", weights=w),
    "ece_debiased": lambda z, y, c, k, w: metrics.ece_debiased(c, k, weights=w),
    "ece_sweep": lambda z, y, c, k, w: metrics.ece_sweep(c, k, weights=w),
    "ece_sweep_width": lambda z, y, c, k, w: metrics.ece_sweep(c, k, "width", weights=w),
    "smooth_ece": lambda z, y, c, k, w: metrics.smooth_ece(c, k, weights=w),
    "classwise_ece": lambda z, y, c, k, w: metrics.classwise_ece(jax.nn.softmax(z), y, weights=w),
    "mce": lambda z, y, c, k, w: metrics.mce(c, k, weights=w),
    "aurc": lambda z, y, c, k, w: metrics.aurc(c, k, weights=w),
    "e_aurc": lambda z, y, c, k, w: metrics.e_aurc(c, k, weights=w),
}


@quick_jit
def table(logits, labels, weights=None):
    conf, correct = metrics.top_label(logits, labels)
    return {k: f(logits, labels, conf, correct, weights) for k, f in TABLE.items()}


summary = quick_jit(metrics.summary)


def same(got, want):
    assert set(got) == set(want)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6, err_msg=name)
        assert got[name].shape == ()


def test_summary_is_the_table_of_its_functions_and_ignores_padding():
    logits, labels = make()
    want = table(logits, labels)
    # Too sure by construction (logits doubled): the numbers are not all trivial.
    assert float(want["ece"]) > 0.02
    padded = np.concatenate([logits, np.full((6, 3), np.nan, np.float32)])
    weights = np.r_[np.ones(200), np.zeros(6)]
    same(summary(padded, np.r_[labels, np.zeros(6, int)], weights=weights), want)


def test_summary_of_masked_classes_is_finite():
    logits, labels = make()
    logits = np.where(np.arange(3) == (labels[:, None] + 1) % 3, -np.inf, logits)
    numbers = metrics.summary(logits.astype(np.float32), labels)
    assert all(np.isfinite(v) for v in numbers.values()), numbers
    assert numbers["refinement"] <= numbers["nll"]


def test_summary_of_one_row_is_finite():
    got = summary(jnp.array([[2.0, 0.0, -1.0]]), jnp.array([0]))
    assert all(np.isfinite(v) for v in got.values()), got
    assert float(got["accuracy"]) == 1.0
