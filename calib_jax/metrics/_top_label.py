"""From scores to what top-label calibration compares: confidence and correctness."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import as_labels, as_logits, is_soft, take_label


def top_label(logits: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Confidence of the predicted class and whether the prediction is right.

    Args:
      logits: `[batch, num_classes]`.
      labels: integers `[batch]` or soft `[batch, num_classes]` (their largest class counts).

    Returns:
      confidence `[batch]`, correct `[batch]` in {0, 1}
    """
    logits = as_logits(logits)
    top, correct = _first_max(logits, as_labels(labels, logits))
    return 1 / jnp.sum(jnp.exp(logits - top[..., None]), axis=-1), correct


def top_label_probs(probs: ArrayLike, labels: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """`top_label` for probabilities `[batch, num_classes]`."""
    probs = as_logits(probs)
    return _first_max(probs, as_labels(labels, probs))


def _first_max(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest score and whether the first class that has it is the label."""
    if is_soft(labels):
        labels = jnp.argmax(labels, axis=-1)
    top = jnp.max(scores, axis=-1)
    if scores.shape[-1] < 32:
        return top, (jnp.argmax(scores, axis=-1) == labels).astype(jnp.float32)
    # A CPU finds out ten times faster whether the label wins than which of many classes does.
    own = take_label(scores, labels)[..., None]
    not_before = jnp.arange(scores.shape[-1]) >= labels[..., None]
    wins = jnp.all((scores < own) | ((scores == own) & not_before), axis=-1)
    return top, wins.astype(jnp.float32)
