"""Accuracy and calibration under corruption, and accuracy under attack, of any predictor."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import augment, losses, metrics

Measures = dict[str, float]


def shift_metrics(
    logits: ArrayLike, labels: ArrayLike, temperature: float | None = None
) -> Measures:
    """Compute accuracy and ECE of predictions on a shifted set.

    Args:
      logits: Logits `[n, num_classes]`.
      labels: Integers `[n]`.
      temperature: Temperature that was fitted on validation, for `ece_temperature`.

    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32)
    >>> shift_metrics(logits, np.array([0, 0]))["accuracy"]
    0.5
    """
    measured = _shift_metrics(jnp.asarray(logits), jnp.asarray(labels), temperature or 1.0)
    if temperature is None:
        measured.pop("ece_temperature")
    return {key: float(value) for key, value in measured.items()}


@jax.jit
def _shift_metrics(
    logits: jax.Array, labels: jax.Array, temperature: float
) -> dict[str, jax.Array]:
    return {
        "accuracy": metrics.accuracy(logits, labels),
        "ece": metrics.ece(*metrics.top_label(logits, labels)),
        "ece_temperature": metrics.ece(*metrics.top_label(logits / temperature, labels)),
    }


def corruption_metrics(
    names: Sequence[str], severities: Sequence[int], measure: Callable[[str, int], Measures]
) -> dict[str, Any]:
    """Average the metrics of corrupted sets, which are measured one after the other.

    Args:
      names: Names of the corruptions.
      severities: Severities of each.
      measure: Function from name and severity to the metrics of the set that is so corrupted.

    Returns:
      `{"mean": …, "severity": {"1": …}, "type": {name: …}, "each": {name: {"1": …}}}`

    >>> made = corruption_metrics(["fog"], [1, 3], lambda _, severity: {"ece": severity / 10})
    >>> made["mean"], made["severity"]["3"]
    ({'ece': 0.2}, {'ece': 0.3})
    """
    each = {name: {str(s): measure(name, s) for s in severities} for name in names}
    return {
        "mean": _mean([row for rows in each.values() for row in rows.values()]),
        "severity": {str(s): _mean([rows[str(s)] for rows in each.values()]) for s in severities},
        "type": {name: _mean(list(rows.values())) for name, rows in each.items()},
        "each": each,
    }


def _mean(rows: Sequence[Mapping[str, float]]) -> Measures:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def attack_accuracy(
    predict: Callable[[Any, jax.Array], jax.Array],
    variables: Any,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    eps: float,
    steps: int,
    restarts: int,
    seed: int,
    batch_size: int,
    shard: Callable[[tuple[jax.Array, ...]], tuple[jax.Array, ...]] = lambda batch: batch,
    to_host: Callable[[jax.Array], np.ndarray] = np.asarray,
) -> Measures:
    """Compute the accuracy under PGD; an example must be right after every restart.

    A call is one step of one batch: a loop on the device would be slow on a CPU, and no faster elsewhere.

    Args:
      predict: Differentiable function from variables and images in [0, 1] to logits.
      variables: Pytree for `predict`.
      images: Images, uint8 `[n, h, w, c]`.
      labels: Integers `[n]`.
      eps: Radius of the attack; its steps are `eps / 4`.
      steps: Number of steps.
      restarts: Number of attacks that begin at random points.
      seed: Seed of these points.
      batch_size: Number of images attacked together.
      shard: Function that shards the arrays of a batch, under jit.
      to_host: Function from a sharded array to all of it.

    Returns:
      `{"clean_accuracy": …, "accuracy": …}`

    References:
      Madry, Makelov, Schmidt, Tsipras and Vladu (2018), arXiv:1706.06083.
    """

    @jax.jit
    def step(variables: Any, *batch: jax.Array) -> jax.Array:
        x, original, targets = shard(batch)

        def loss(images: jax.Array, labels: jax.Array) -> jax.Array:
            return losses.cross_entropy(predict(variables, images), labels)

        return augment.pgd_step(loss, x, original, targets, eps=eps)

    @jax.jit
    def is_right(variables: Any, *batch: jax.Array) -> jax.Array:
        x, targets = shard(batch)
        return jnp.argmax(predict(variables, x), axis=-1) == targets

    n = len(labels)
    clean, robust = [], []
    for first in range(0, n, batch_size):
        rows = np.arange(first, first + batch_size) % n  # one shape, one program
        count = min(batch_size, n - first)
        original = jnp.asarray(images[rows], jnp.float32) / 255
        targets = jnp.asarray(labels[rows])
        before = after = is_right(variables, original, targets)
        for restart in range(restarts):
            key = jax.random.fold_in(jax.random.key(seed), first * restarts + restart)
            x = augment.pgd_start(key, original, eps=eps)
            for _ in range(steps):
                x = step(variables, x, original, targets)
            after &= is_right(variables, x, targets)
        clean.append(to_host(before)[:count])
        robust.append(to_host(after)[:count])
    return {
        "clean_accuracy": float(np.concatenate(clean).mean()),
        "accuracy": float(np.concatenate(robust).mean()),
    }
