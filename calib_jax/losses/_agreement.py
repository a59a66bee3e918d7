"""Disagreement of the predictions on several views of one example."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import FLOOR, as_logits, check_not_empty


def jensen_shannon(logits: ArrayLike) -> jax.Array:
    """Return the mean Kullback-Leibler divergence of the views' predictions from their mean.

    Args:
      logits: Logits `[batch, views, num_classes]`.

    Returns:
      `[batch]`, from 0 to the logarithm of the number of views.

    References:
      Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan (2020), arXiv:1912.02781 (AugMix's
      consistency loss).

    >>> round(float(losses.jensen_shannon([[[9.0, 0.0], [0.0, 9.0]]])[0]), 3)
    0.692
    """
    logits = as_logits(logits)
    if logits.ndim != 3:
        raise ValueError(f"logits: expected [batch, views, num_classes], got {logits.shape}")
    check_not_empty(logits.shape[:1])
    # A masked class (logit -inf) is put where its probability is 0 and its differences are numbers.
    log_probs = jnp.maximum(jax.nn.log_softmax(logits), FLOOR)
    mean = jax.nn.logsumexp(log_probs, axis=1, keepdims=True) - math.log(logits.shape[1])
    return jnp.mean(jnp.sum(jnp.exp(log_probs) * (log_probs - mean), axis=-1), axis=1)
