"""Labels that are true or not, by themselves: one `[n]`, or several `[n, num_labels]`."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax._arrays import as_binary_labels, as_floats, as_weights, check_log_odds, is_readable
from calib_jax.posthoc._common import Calibrator, check_weights, fitting_data, has_weight


@dataclasses.dataclass(frozen=True)
class LabelCalibrator(Calibrator):
    """What calibrators share that take classes, or labels that are true or not, each by itself.

    Attributes:
      num_classes: number of classes, or of independent labels (1 for logits `[n]`).
      independent: whether the logits are those of independent labels, `sigmoid(logits)` being their
        probabilities, and not those of classes.
    """

    independent: bool = dataclasses.field(default=False, kw_only=True, metadata={"static": True})

    def input_shape(self, n: int) -> tuple[int, ...]:
        """Return the shape of the logits of n examples."""
        return (n,) if self.independent and self.num_classes == 1 else super().input_shape(n)

    def _as_logits(self, logits: ArrayLike, check: bool) -> jax.Array:
        if not self.independent:
            return super()._as_logits(logits, check)
        logits = as_floats(logits)
        one = self.num_classes == 1
        if logits.ndim > 1 if one else logits.shape[-1:] != (self.num_classes,):
            expected = "[n]" if one else f"[n, {self.num_classes}]"
            raise ValueError(
                f"logits: expected {expected}, the labels this {type(self).__name__} was fitted to, "
                f"got shape {logits.shape}"
            )
        if check and logits.ndim:
            check_log_odds(logits)
        return logits


class LabelData(NamedTuple):
    """What the calibrator of a label is fitted to; a row of weight 0 holds zeros.

    Attributes:
      scores: log odds of the label `[n, num_labels]`.
      labels: 0 or 1 `[n, num_labels]`, of the dtype of the scores.
      weights: `[n, num_labels]`; 0 also where a class is masked, which leaves nothing to calibrate.
      valid: whether there is something to fit and every label is 0 or 1 `[num_labels]`; where not, the
        parameters are NaN.
    """

    scores: jax.Array
    labels: jax.Array
    weights: jax.Array
    valid: jax.Array


def is_independent(logits: ArrayLike, labels: ArrayLike) -> bool:
    """Return whether there is a label for each logit `[n]` or `[n, num_labels]`, not for each row."""
    return np.shape(logits) == np.shape(labels)


def label_data(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None, check: bool
) -> LabelData:
    """Check independent labels: logits and labels of shape `[n]` or `[n, num_labels]`."""
    scores = as_floats(logits)
    if scores.ndim not in (1, 2):
        raise ValueError(f"logits: expected [n] or [n, num_labels], got shape {scores.shape}")
    weights = as_weights(weights, scores.shape[:1], scores.dtype)
    check_weights(weights)
    labels = as_binary_labels(labels, scores, weights)
    n = scores.shape[0]
    scores, labels = scores.reshape(n, -1), labels.reshape(n, -1)
    weights = jnp.ones(n, scores.dtype) if weights is None else weights
    weights = jnp.broadcast_to(weights[:, None], scores.shape)
    counted, numeric = weights != 0, jnp.isfinite(scores)
    if is_readable(scores) and is_readable(weights) and bool(jnp.any(counted & ~numeric)):
        raise ValueError("logits: expected finite values, found NaN or infinity")
    if check:
        check_log_odds(scores, weights[:, 0])
    usable = numeric & ~jnp.isnan(labels)
    return LabelData(
        scores=jnp.where(counted & usable, scores, 0.0),
        labels=jnp.where(counted & usable, labels, 0.0),
        weights=weights,
        valid=jnp.all(~counted | usable, axis=0) & has_weight(weights, counted),
    )


def two_class_data(
    name: str, logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None, check: bool
) -> LabelData:
    """Check logits `[n, 2]` and integer labels `[n]` for the calibrator called `name`."""
    data = fitting_data(logits, labels, weights, check)
    if data.num_classes != 2:
        raise ValueError(
            f"logits: {data.num_classes} classes; {name} takes two, or independent labels of the "
            "shape of the logits"
        )
    scores = log_odds(data.logits)
    row_weights = jnp.ones_like(scores) if data.weights is None else data.weights
    certain = jnp.isinf(scores)
    return LabelData(
        scores=jnp.where(certain, 0.0, scores)[:, None],
        labels=data.labels.astype(scores.dtype)[:, None],
        weights=jnp.where(certain, 0.0, row_weights)[:, None],
        valid=data.valid[None],
    )


def log_odds(logits: jax.Array) -> jax.Array:
    """Return the log odds `[...]` of the second of two classes `[..., 2]`."""
    return logits[..., 1] - logits[..., 0]


def logits_from_binary_probs(probs: ArrayLike) -> jax.Array:
    """Return the log odds of probabilities `[n]` or `[n, num_labels]`; 0 is taken as 1e-30, 1 alike.

    >>> [round(float(x), 3) for x in posthoc.logits_from_binary_probs([0.5, 0.75])]
    [0.0, 1.099]
    """
    probs = as_floats(probs)
    return jnp.log(jnp.maximum(probs, 1e-30)) - jnp.log(jnp.maximum(1 - probs, 1e-30))
