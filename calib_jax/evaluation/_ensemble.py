"""Ensembles of several seeds: their mean probabilities, and how far the seeds disagree."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr, logsumexp
from jax.typing import ArrayLike

from calib_jax.evaluation._evaluate import Evaluation, evaluate
from calib_jax.evaluation._predictions import Predictions


def ensemble_logits(logits: Sequence[ArrayLike]) -> jax.Array:
    """Return the logarithm of the mean probabilities of several networks.

    Args:
      logits: Logits of each network `[n, num_classes]`.

    Returns:
      logits `[n, num_classes]`

    References:
      Lakshminarayanan, Pritzel and Blundell (2017), arXiv:1612.01474.

    >>> import numpy as np
    >>> mean = np.exp(ensemble_logits([np.log([[0.9, 0.1]]), np.log([[0.5, 0.5]])]))
    >>> [round(float(p), 3) for p in mean[0]]
    [0.7, 0.3]
    """
    log_probs = _log_probs(logits)
    return logsumexp(log_probs, axis=0) - jnp.log(log_probs.shape[0])


def disagreement(logits: Sequence[ArrayLike]) -> jax.Array:
    """Compute the share of pairs of networks that predict different classes.

    Args:
      logits: Logits of each network `[n, num_classes]`, two networks or more.

    Returns:
      scalar in [0, 1]

    >>> import numpy as np
    >>> float(disagreement([np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0], [1, 0]])]))
    0.5
    """
    predicted = jnp.argmax(_stack(logits), axis=-1)
    num_networks = predicted.shape[0]
    differs = jnp.mean(predicted[:, None] != predicted[None], axis=-1)
    return jnp.sum(differs) / (num_networks * (num_networks - 1))


def mutual_information(logits: Sequence[ArrayLike]) -> jax.Array:
    """Compute the entropy of the mean probabilities less the mean entropy, averaged over examples.

    It is 0 if all networks give the same probabilities, and at most the logarithm of their number.

    Args:
      logits: Logits of each network `[n, num_classes]`.

    Returns:
      scalar, in nats

    References:
      Houlsby, Huszar, Ghahramani and Lengyel (2011), arXiv:1112.5745.

    >>> import numpy as np
    >>> round(float(mutual_information([np.array([[50.0, 0]]), np.array([[0, 50.0]])])), 4)
    0.6931
    """
    log_probs = _log_probs(logits)
    mean = logsumexp(log_probs, axis=0) - jnp.log(log_probs.shape[0])
    of_mean, of_each = (jnp.sum(entr(jnp.exp(x)), axis=-1) for x in (mean, log_probs))
    return jnp.mean(of_mean - jnp.mean(of_each, axis=0))


def evaluate_ensemble(
    test: Sequence[Predictions],
    validation: Sequence[Predictions],
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int = 500,
) -> list[Evaluation]:
    """Compute the metrics of the mean probabilities of several networks, then after each calibrator.

    Args:
      test: Predictions of each network on the same examples.
      validation: Predictions of each network on other examples, to fit on.
      calibrators: Names from `posthoc.CALIBRATORS`.
      seed: Seed of the bootstrap.
      num_samples: Number of bootstrap samples.

    Returns:
      The evaluation of the uncalibrated ensemble, whose metrics hold `disagreement` and
      `mutual_information` too, then one per calibrator.

    >>> import numpy as np
    >>> networks = [Predictions(np.array([[s, 0.0], [0, 1]]), np.array([0, 1])) for s in (1.0, 3.0)]
    >>> (ensemble,) = evaluate_ensemble(networks, networks, num_samples=4)
    >>> ensemble.metrics["accuracy"], ensemble.metrics["disagreement"]
    (1.0, 0.0)
    """
    before, *after = evaluate(
        _mean(test), _mean(validation), calibrators, seed=seed, num_samples=num_samples
    )
    logits = [p.logits for p in test]
    between_networks = {
        "disagreement": float(disagreement(logits)),
        "mutual_information": float(mutual_information(logits)),
    }
    return [dataclasses.replace(before, metrics=before.metrics | between_networks), *after]


def _mean(networks: Sequence[Predictions]) -> Predictions:
    logits = np.asarray(ensemble_logits([p.logits for p in networks]))
    return Predictions(logits, networks[0].labels, label_probs=networks[0].label_probs)


def _stack(logits: Sequence[ArrayLike]) -> jax.Array:
    return jnp.stack([jnp.asarray(x) for x in logits])


def _log_probs(logits: Sequence[ArrayLike]) -> jax.Array:
    stacked = _stack(logits)
    return jax.nn.log_softmax(stacked.astype(jnp.promote_types(stacked.dtype, jnp.float32)))
