"""`CalibrationError`: batch by batch, inside jit and scan, and held by an NNX metric."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from calib_jax import metrics

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(4, 25, 3)).astype(np.float32) * 2
LABELS = RNG.integers(0, 3, (4, 25))
WEIGHTS = (RNG.random((4, 25)) < 0.7).astype(np.float32)
ECE = float(metrics.ece(*metrics.top_label(LOGITS.reshape(-1, 3), LABELS.ravel())))


def test_merged_batches_are_the_whole() -> None:
    metric = metrics.CalibrationError.empty()
    assert np.isnan(metric.compute())
    for logits, labels in zip(LOGITS, LABELS, strict=True):
        metric = metric.merge(metrics.CalibrationError.from_model_output(logits, labels))
    np.testing.assert_allclose(metric.compute(), ECE, rtol=1e-5)


def test_in_a_scan_with_padding_and_other_bins() -> None:
    options = {"num_bins": 7, "closed": "left"}

    @jax.jit
    def run(batches):
        def step(metric, batch):
            logits, labels, weights = batch
            new = metrics.CalibrationError.from_model_output(
                logits, labels, weights=weights, **options
            )
            return metric.merge(new), None

        return jax.lax.scan(step, metrics.CalibrationError.empty(num_bins=7), batches)[0].compute()

    broken = np.where(WEIGHTS[..., None] == 0, np.nan, LOGITS)
    got = run((broken, np.where(WEIGHTS == 0, -1, LABELS), WEIGHTS))
    confidence, correct = metrics.top_label(LOGITS.reshape(-1, 3), LABELS.ravel())
    want = metrics.ece(confidence, correct, weights=WEIGHTS.ravel(), **options)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_inside_an_nnx_metric() -> None:
    """The example of docs/metrics.md."""

    class Ece(nnx.Metric):
        def __init__(self) -> None:
            self.total = nnx.metrics.MetricState(metrics.CalibrationError.empty())

        def reset(self) -> None:
            self.total.set_value(metrics.CalibrationError.empty())

        def update(self, *, logits: jax.Array, labels: jax.Array, **_: object) -> None:
            new = metrics.CalibrationError.from_model_output(logits, labels)
            self.total.set_value(self.total.get_value().merge(new))

        def compute(self) -> jax.Array:
            return self.total.get_value().compute()

    metric = nnx.MultiMetric(ece=Ece(), loss=nnx.metrics.Average("loss"))

    @nnx.jit
    def step(metric: nnx.MultiMetric, logits: jax.Array, labels: jax.Array) -> None:
        metric.update(logits=logits, labels=labels, loss=jnp.array(1.0))

    for logits, labels in zip(LOGITS, LABELS, strict=True):
        step(metric, jnp.asarray(logits), jnp.asarray(labels))
    np.testing.assert_allclose(metric.compute()["ece"], ECE, rtol=1e-5)
    metric.reset()
    assert np.isnan(metric.compute()["ece"])


def test_errors() -> None:
    with pytest.raises(ValueError, match="15 and 10 bins"):
        metrics.CalibrationError.empty().merge(metrics.CalibrationError.empty(num_bins=10))
    with pytest.raises(ValueError, match="expected 0 to 2"):
        metrics.CalibrationError.from_model_output(LOGITS[0], np.full(25, 3))
    with pytest.raises(ValueError, match="probabilities"):
        metrics.CalibrationError.from_model_output(jax.nn.softmax(LOGITS[0]), LABELS[0])
