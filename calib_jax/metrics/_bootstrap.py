"""How sure a number is: bootstrap intervals over the examples."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


class Interval(NamedTuple):
    """A metric's value and the ends of its bootstrap interval; each of the metric's own structure."""

    estimate: Any
    low: Any
    high: Any


def bootstrap(
    metric: Callable[..., Any],
    *arrays: ArrayLike,
    key: jax.Array,
    num_samples: int = 1000,
    level: float = 0.95,
    batch_size: int = 32,
) -> Interval:
    """Percentile interval of `metric(*arrays)` under resampling of the examples.

    A resample is a count per example, given to the metric as `weights`: what does not depend on the
    weights (softmax, sorting) is then computed once, not `num_samples` times.

    Resampling adds noise, and noise raises every calibration error: the interval of a small ECE may
    lie above it, as the ECE itself lies above the truth.

    Args:
      metric: called as `metric(*arrays, weights=counts)`; returns a scalar or a pytree of them.
      *arrays: the metric's arguments, each `[n, ...]`.
      key: random key.
      num_samples: number of resamples.
      level: probability mass inside the interval.
      batch_size: resamples evaluated at the same time.

    Returns:
      `Interval`; `estimate` is the metric of the data themselves.

    >>> confidence, correct, key = jnp.full(8, 0.9), jnp.ones(8), jax.random.key(0)
    >>> interval = metrics.bootstrap(metrics.ece, confidence, correct, key=key, num_samples=4)
    >>> round(float(interval.low), 3), round(float(interval.high), 3)
    (0.1, 0.1)
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level}: expected a value between 0 and 1")
    samples = _resampled(metric, *arrays, key=key, num_samples=num_samples, batch_size=batch_size)
    tail = (1 - level) / 2
    return Interval(
        estimate=metric(*arrays),
        low=jax.tree.map(lambda s: jnp.quantile(s, tail, axis=0), samples),
        high=jax.tree.map(lambda s: jnp.quantile(s, 1 - tail, axis=0), samples),
    )


@partial(jax.jit, static_argnames=("metric", "num_samples", "batch_size"))
def _resampled(
    metric: Callable[..., Any],
    *arrays: jax.Array,
    key: jax.Array,
    num_samples: int,
    batch_size: int,
) -> Any:
    """The metric of each resample: its pytree with a leading axis `[num_samples]`."""
    n = arrays[0].shape[0]

    def one(sample_key: jax.Array) -> Any:
        drawn = jax.random.randint(sample_key, (n,), 0, n)
        return metric(*arrays, weights=jnp.zeros(n, jnp.float32).at[drawn].add(1.0))

    return jax.lax.map(one, jax.random.split(key, num_samples), batch_size=batch_size)
