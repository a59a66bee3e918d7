"""Labels that are true or not: one `[n]`, or several `[n, num_labels]`, each by itself."""

from functools import partial
from typing import NamedTuple, Unpack

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    as_binary_labels,
    as_floats,
    as_weights,
    check_log_odds,
    check_probs,
    weighted_mean,
)
from calib_jax._hints import check_choice
from calib_jax.metrics._binning import Binning
from calib_jax.metrics._calibration import ece
from calib_jax.metrics._selective import aurc, auroc
from calib_jax.metrics._smooth import smooth_ece

_LABELS_AT_ONCE = 256


def binary_ece(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    of: str = "positive",
    norm: float = 1,
    check: bool = True,
    **binning: Unpack[Binning],
) -> jax.Array:
    """Compute the ECE of binary predictions, which there are two of.

    - `of='positive'`: of `P(y = 1)` against y, over bins of [0, 1].
    - `of='top'`: of the confidence `max(p, 1 - p)` against being right, over bins of which only those
      above 1/2 hold examples; that of `ece` for two classes. Errors of either sign at p and `1 - p`
      cancel, so it is the smaller one in the same bins.

    Args:
      probs: `[n]` or `[n, num_labels]`, probabilities of the label being 1.
      labels: integers or bool of the same shape, 0 or 1.
      of: `'positive'` or `'top'`.
      norm: as in `ece`.
      check: whether logits in place of probabilities are refused; inside jit they never are.
      **binning: `num_bins`, `scheme`, `closed`, `weights` as in `bin_stats`; weights `[n]`.

    Returns:
      scalar, or `[num_labels]`, whose mean is the macro average

    >>> probs, labels = [0.2, 0.2, 0.8, 0.8], [0, 0, 1, 0]
    >>> [round(float(metrics.binary_ece(probs, labels, of=of)), 3) for of in ("positive", "top")]
    [0.25, 0.05]
    """
    check_choice("of", of, ("positive", "top"))
    probs = as_floats(probs)
    if probs.ndim not in (1, 2):
        raise ValueError(f"probs: expected [n] or [n, num_labels], got shape {probs.shape}")
    weights = as_weights(binning.get("weights"), probs.shape[:1], probs.dtype)
    labels = as_binary_labels(labels, probs, weights)
    if check:
        check_probs(probs.reshape(probs.shape[0], -1), weights)
    binning["weights"] = weights

    def one_label(probs: jax.Array, labels: jax.Array) -> jax.Array:
        pair = (probs, labels) if of == "positive" else _top(probs, labels)
        return ece(*pair, norm=norm, **binning)

    if probs.ndim == 1:
        return one_label(probs, labels)
    return jax.vmap(one_label, in_axes=1)(probs, labels)


def binary_summary(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> dict[str, jax.Array]:
    """Compute accuracy, proper scores and calibration errors of a binary classifier.

    Args:
      logits: `[n]`, log odds of the label being 1.
      labels: integers or bool `[n]`, 0 or 1.
      weights: `[n]`, 0 for padding.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    Returns:
      `{name: scalar}`, fractions; `auroc_positive` is NaN if one of the two kinds is missing.

    >>> values = metrics.binary_summary([2.0, -1.0, 0.5, -3.0], [1, 0, 0, 0])
    >>> float(values["accuracy"]), round(float(values["nll"]), 4), float(values["auroc_positive"])
    (0.75, 0.3657, 1.0)
    """
    logits, labels, weights = _checked(logits, labels, weights, check, ndim=1)
    return _summary(logits, labels, weights)


class MultilabelSummary(NamedTuple):
    """The metrics of `binary_summary` for several labels.

    Attributes:
      per_label: `{name: [num_labels]}`.
      macro: `{name: scalar}`, their means over the labels; of `auroc_positive` over the labels that
        have positives and negatives.
    """

    per_label: dict[str, jax.Array]
    macro: dict[str, jax.Array]


def multilabel_summary(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    check: bool = True,
) -> MultilabelSummary:
    """Compute `binary_summary` of each of several independent labels, and the macro averages.

    Args:
      logits: `[n, num_labels]`, log odds of each label being 1.
      labels: integers or bool `[n, num_labels]`, 0 or 1.
      weights: `[n]`, 0 for padding.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    >>> summary = metrics.multilabel_summary([[2.0, -1.0], [-2.0, -1.0]], [[1, 0], [0, 1]])
    >>> summary.per_label["accuracy"].tolist(), float(summary.macro["accuracy"])
    ([1.0, 0.5], 0.75)
    """
    logits, labels, weights = _checked(logits, labels, weights, check, ndim=2)
    # Of many labels some at a time: the grid of the smooth ECE is far wider than a label's examples.
    per_label = jax.lax.map(
        lambda label: _summary(*label, weights), (logits.T, labels.T), batch_size=_LABELS_AT_ONCE
    )
    macro = {name: jnp.mean(values) for name, values in per_label.items()}
    rate = per_label["base_rate"]
    defined = (rate > 0) & (rate < 1)
    auroc_macro = jnp.mean(per_label["auroc_positive"], where=defined)
    invalid = jnp.any(jnp.isnan(per_label["nll"]))
    macro["auroc_positive"] = jnp.where(invalid, jnp.nan, auroc_macro)
    return MultilabelSummary(per_label, macro)


def _checked(
    logits: ArrayLike, labels: ArrayLike, weights: ArrayLike | None, check: bool, ndim: int
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Return logits, labels and weights of one dtype."""
    logits = as_floats(logits)
    if logits.ndim != ndim:
        expected = "[n]" if ndim == 1 else "[n, num_labels]"
        raise ValueError(f"logits: expected {expected}, got shape {logits.shape}")
    weights = as_weights(weights, logits.shape[:1], logits.dtype)
    labels = as_binary_labels(labels, logits, weights)
    if check:
        check_log_odds(logits, weights)
    return logits, labels, weights


def _top(probs: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the confidence of the likelier outcome and whether it came about, as `top_label`."""
    correct = ((probs > 0.5) == (labels == 1)).astype(probs.dtype)
    return jnp.maximum(probs, 1 - probs), jnp.where(jnp.isnan(labels), jnp.nan, correct)


@partial(jax.jit, inline=True)
def _summary(
    logits: jax.Array, labels: jax.Array, weights: jax.Array | None
) -> dict[str, jax.Array]:
    # Where one of them is not a number, so is every mean below.
    labels = jnp.where(jnp.isnan(logits), jnp.nan, labels)
    probs = jax.nn.sigmoid(logits)
    confidence, correct = _top(probs, labels)
    mean = partial(weighted_mean, weights=weights)
    predicted = jnp.where(jnp.isnan(labels), jnp.nan, (probs > 0.5).astype(probs.dtype))
    hits, positives = mean(predicted * labels), mean(predicted) + mean(labels)
    return {
        "accuracy": mean(correct),
        "f1_positive": jnp.where(positives == 0, 0.0, 2 * hits / positives),
        "base_rate": mean(labels),
        "mean_positive": mean(jnp.where(jnp.isnan(labels), jnp.nan, probs)),
        "nll": mean(jax.nn.softplus(jnp.where(labels == 1, -logits, logits)) + 0 * labels),
        "brier_positive": mean((probs - labels) ** 2),
        "ece_positive": ece(probs, labels, weights=weights),
        "ece_positive_mass": ece(probs, labels, scheme="mass", weights=weights),
        "smooth_ece_positive": smooth_ece(probs, labels, weights=weights),
        "ece_top": ece(confidence, correct, weights=weights),
        "auroc_positive": auroc(logits, labels, weights=weights),
        "aurc": aurc(confidence, correct, weights=weights),
    }
