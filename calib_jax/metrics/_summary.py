"""The default table of a classifier's trustworthiness."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_hard_labels,
    as_logits,
    check_labels,
    check_not_probs,
    weighted_mean,
)
from calib_jax.metrics._binning import bin_stats
from calib_jax.metrics._calibration import classwise_ece, ece, ece_debiased, ece_sweep
from calib_jax.metrics._classification import accuracy, f1
from calib_jax.metrics._proper import brier_score, nll, refinement
from calib_jax.metrics._selective import aurc, e_aurc
from calib_jax.metrics._smooth import smooth_ece
from calib_jax.metrics._top_label import top_label


def summary(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> dict[str, jax.Array]:
    """Compute accuracy, proper scores, calibration errors and selective risk.

    Calibration is top-label with 15 right-closed bins unless the name says otherwise; a number for
    ECE alone can be had by predicting the base rate, which is why the others stand beside it.

    Args:
      logits: `[n, num_classes]`; log-probabilities serve as well.
      labels: integers `[n]`.
      weights: `[n]`, 0 for padding.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    Returns:
      `{name: scalar}`, fractions

    >>> values = metrics.summary([[2.0, 0.0], [0.0, 1.0]], [0, 0])
    >>> float(values["accuracy"]), round(float(values["nll"]), 4)
    (0.5, 0.7201)
    """
    logits = as_logits(logits)
    labels = as_hard_labels(labels, logits)
    check_labels(labels, logits, weights)
    if check:
        check_not_probs(logits, weights)
    return _summary(logits, labels, weights)


@jax.jit
def _summary(
    logits: jax.Array, labels: jax.Array, weights: ArrayLike | None
) -> dict[str, jax.Array]:
    confidence, correct = top_label(logits, labels)
    bins = bin_stats(confidence, correct, weights=weights)
    return {
        "accuracy": accuracy(logits, labels, weights=weights),
        "f1_macro": f1(logits, labels, "macro", weights=weights),
        "f1_weighted": f1(logits, labels, "weighted", weights=weights),
        # NaN with a label that is no class, like all the others.
        "confidence": weighted_mean(jnp.where(jnp.isnan(correct), jnp.nan, confidence), weights),
        "nll": nll(logits, labels, weights=weights),
        "refinement": refinement(logits, labels, weights=weights),
        "brier": brier_score(logits, labels, weights=weights),
        "ece": bins.ece(),
        # As papers on natural language report it.
        "ece_10": ece(confidence, correct, num_bins=10, closed="left", weights=weights),
        "ece_mass": ece(confidence, correct, scheme="mass", weights=weights),
        "ece_debiased": ece_debiased(confidence, correct, weights=weights),
        "ece_sweep": ece_sweep(confidence, correct, weights=weights),
        "ece_sweep_width": ece_sweep(confidence, correct, "width", weights=weights),
        "smooth_ece": smooth_ece(confidence, correct, weights=weights),
        "classwise_ece": classwise_ece(jax.nn.softmax(logits), labels, weights=weights),
        "mce": bins.mce(),
        "aurc": aurc(confidence, correct, weights=weights),
        "e_aurc": e_aurc(confidence, correct, weights=weights),
    }
