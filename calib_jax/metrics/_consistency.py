"""Is a calibration error more than chance? A test by simulation."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_floats, as_weights, check_probs


class ConsistencyTest(NamedTuple):
    """What a metric is, and what it would be if the predictions were calibrated.

    Attributes:
      value: the metric of the data.
      expected: its mean under perfect calibration: what sampling noise alone shows.
      p_value: how often it would be at least as large under perfect calibration.
    """

    value: jax.Array
    expected: jax.Array
    p_value: jax.Array


def consistency_test(
    metric: Callable[..., jax.Array],
    predictions: ArrayLike,
    outcomes: ArrayLike,
    *,
    key: jax.Array,
    num_samples: int = 1000,
    weights: ArrayLike | None = None,
    batch_size: int = 32,
    check: bool = True,
) -> ConsistencyTest:
    """Compare a calibration metric with its distribution under perfect calibration.

    Outcomes are drawn as the predictions say, and the metric is taken of each draw. A binned error is
    above 0 even then. The p-value, `(1 + draws as large) / (1 + num_samples)`, is that of the hypothesis
    that the predictions are calibrated: a small one refutes it.

    Args:
      metric: called as `metric(predictions, outcomes)`, with `weights` if there are any; larger is less
        calibrated, such as `metrics.ece` or `functools.partial(metrics.ece, scheme="mass")`.
      predictions: confidence `[n]`, or probabilities `[n, num_classes]`.
      outcomes: `[n]`; 0 or 1 for a confidence, integer labels for probabilities.
      key: random key.
      num_samples: number of draws.
      weights: `[n]`, 0 for padding.
      batch_size: draws evaluated at the same time.
      check: whether logits in place of probabilities are refused; inside jit they never are.

    Returns:
      `ConsistencyTest` of scalars

    References:
      Vaicenavicius et al., 2019, arXiv:1902.06977.

    >>> confidence, correct = jnp.full(100, 0.9), jnp.arange(100) < 60
    >>> test = metrics.consistency_test(metrics.ece, confidence, correct, key=jax.random.key(0))
    >>> round(float(test.value), 2), float(test.expected) < 0.04, float(test.p_value) < 0.002
    (0.3, True, True)
    """
    predictions = as_floats(predictions)
    outcomes = jnp.asarray(outcomes)
    if predictions.ndim not in (1, 2) or outcomes.shape != predictions.shape[:1]:
        raise ValueError(
            "predictions and outcomes: expected [n] or [n, num_classes] and [n], "
            f"got {predictions.shape} and {outcomes.shape}"
        )
    if num_samples < 1:
        raise ValueError(f"num_samples={num_samples}: expected at least 1")
    weights = as_weights(weights, outcomes.shape, predictions.dtype)
    if check:
        check_probs(predictions.reshape(predictions.shape[0], -1), weights)
    options = {} if weights is None else {"weights": weights}
    value = metric(predictions, outcomes, **options)
    samples = _simulated(
        metric, predictions, options, key=key, num_samples=num_samples, batch_size=batch_size
    )
    # A draw that is the data themselves may differ in the last digit.
    as_large = jnp.sum((samples >= value * (1 - 1e-6)).astype(samples.dtype))
    p_value = (1 + as_large) / (1 + num_samples)
    return ConsistencyTest(
        value=value,
        expected=jnp.mean(samples),
        p_value=jnp.where(jnp.isnan(value), jnp.nan, p_value),
    )


@partial(jax.jit, static_argnames=("metric", "num_samples", "batch_size"))
def _simulated(
    metric: Callable[..., jax.Array],
    predictions: jax.Array,
    options: dict[str, jax.Array],
    *,
    key: jax.Array,
    num_samples: int,
    batch_size: int,
) -> jax.Array:
    """Return the metric of outcomes that the predictions are right about `[num_samples]`."""
    n = predictions.shape[0]

    def draw(sample_key: jax.Array) -> jax.Array:
        uniform = jax.random.uniform(sample_key, (n,), predictions.dtype)
        if predictions.ndim == 1:
            outcomes = (uniform < predictions).astype(predictions.dtype)
        else:
            # The first class at which the cumulative probability passes a uniform number.
            below = cumulative <= (uniform * cumulative[:, -1])[:, None]
            outcomes = jnp.minimum(jnp.sum(below, axis=1, dtype=jnp.int32), last)
        return metric(predictions, outcomes, **options)

    if predictions.ndim == 2:
        cumulative = jnp.cumsum(predictions, axis=1)
        last = predictions.shape[1] - 1
    return jax.lax.map(draw, jax.random.split(key, num_samples), batch_size=batch_size)
