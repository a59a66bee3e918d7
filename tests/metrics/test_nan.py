"""A score that is no number must show, wherever the metric would sort it; padding must not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit, run

from calib_jax import metrics
from calib_jax.metrics._sorting import argsort_floats, sort_floats

METRICS = {
    "ece": metrics.ece,
    "ece_mass": functools.partial(metrics.ece, scheme="mass"),
    "ece_debiased": metrics.ece_debiased,
    "ece_sweep": metrics.ece_sweep,
    "ece_sweep_width": functools.partial(metrics.ece_sweep, scheme="width"),
    "mce": metrics.mce,
    "smooth_ece": metrics.smooth_ece,
    "brier_decomposition": lambda *rows, **kw: sum(metrics.brier_decomposition(*rows, **kw)),
    "aurc": metrics.aurc,
    "e_aurc": metrics.e_aurc,
    "auroc": metrics.auroc,
    "fpr_at_tpr": metrics.fpr_at_tpr,
    "risk_coverage": lambda *rows, **kw: metrics.risk_coverage(*rows, **kw)[1][-1],
    "roc_curve": lambda *rows, **kw: jnp.sum(jnp.stack(metrics.roc_curve(*rows, **kw))),
}


def rows(n=60):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 1.0, n).astype(np.float32)
    return confidence, (rng.uniform(size=n) < confidence).astype(np.float32)


@pytest.mark.parametrize("name", METRICS)
def test_shows_in_every_metric_unless_it_is_padding(name):
    metric = METRICS[name]
    confidence, correct = rows()
    assert np.isfinite(run(metric, confidence, correct))
    for sign in (1, -1):
        for position in (correct.argmax(), correct.argmin()):
            broken = confidence.copy()
            broken[position] = np.copysign(np.nan, sign)
            weights = np.ones(60, np.float32)
            assert np.isnan(run(metric, broken, correct))
            assert np.isnan(run(metric, broken, correct, weights=0.5 * weights))
            weights[position] = 0
            rest = np.arange(60) != position
            np.testing.assert_allclose(
                run(metric, broken, correct, weights=weights),
                metric(confidence[rest], correct[rest]),
                rtol=1e-5,
                atol=1e-6,
            )


@pytest.mark.parametrize("name", ["aurc", "auroc", "fpr_at_tpr", "ece_sweep_width"])
def test_one_batch_of_several(name):
    confidence, correct = rows()
    broken = confidence.copy()
    broken[5] = np.nan
    got = quick_jit(jax.vmap(METRICS[name], in_axes=(0, None)))(
        jnp.stack([confidence, broken]), correct
    )
    np.testing.assert_array_equal(np.isnan(got), [False, True])
    np.testing.assert_allclose(got[0], run(METRICS[name], confidence, correct), rtol=1e-5)


def test_nan_sorts_last_whatever_its_sign():
    x = jnp.array([0.5, jnp.nan, 0.9, -0.0, 0.0, -jnp.inf, jnp.inf])
    np.testing.assert_array_equal(argsort_floats(x), [5, 3, 4, 0, 2, 6, 1])
    np.testing.assert_array_equal(argsort_floats(-x), [6, 2, 0, 3, 4, 5, 1])
    np.testing.assert_array_equal(sort_floats(-x), np.sort(-x))
