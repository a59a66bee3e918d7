"""Predictions of labels that are true or not, one `[n]` or several `[n, num_labels]`, each by itself."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import metrics, posthoc
from calib_jax.evaluation._bootstrap import Rows, Samples
from calib_jax.evaluation._predictions import PROBS, Predictions

_OFF = 1e-3  # how far from [0, 1] a probability may be

# Names of what the bootstrap measures of `P(y = 1)` against the label, and of the likelier outcome.
_OF_POSITIVE = {
    "nll": "nll",
    "brier": "brier_positive",
    "ece": "ece_positive",
    "ece_mass": "ece_positive_mass",
    "smooth_ece": "smooth_ece_positive",
}
_OF_TOP = {"accuracy": "accuracy", "ece": "ece_top", "aurc": "aurc"}


def are_independent(scores: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether arrays of a file are predictions of independent labels, not of classes.

    One score per example is that of a label. So is each of several, if there are as many labels and a
    row may have none or more than one: rows with exactly one each are one-hot labels of classes.

    >>> are_independent(np.zeros((2, 3)), np.array([[1, 1, 0], [0, 0, 0]]))
    True
    >>> are_independent(np.zeros((2, 3)), np.array([[1, 0, 0], [0, 0, 1]]))
    False
    """
    if scores.ndim == 1 or scores.shape[1:] == (1,):
        return True
    if scores.ndim != 2 or labels.shape != scores.shape or labels.dtype.kind not in "fiub":
        return False
    zero_or_one = bool(((labels == 0) | (labels == 1)).all())
    return zero_or_one and bool((labels.sum(axis=1) != 1).any())


def check_label_predictions(
    name: str,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    label_names: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Predictions:
    """Check raw arrays of independent labels; scores are log odds, or probabilities of a label being 1.

    Args:
      name: Name of the scores, such as `logits` or `probs`.
      scores: Numbers `[n]`, `[n, 1]` or `[n, num_labels]`.
      labels: 0 or 1, of the same shape.
      label_names: Names of the labels.
      notes: Remarks to keep.

    Raises:
      ValueError: With one line that says what cannot be right.

    >>> check_label_predictions("probs", np.array([0.2, 0.9]), np.array([0, 1])).is_independent
    True
    """
    if scores.dtype.kind not in "fiu":
        raise ValueError(f"{name!r}: expected numbers, got {scores.dtype}")
    one = scores.ndim == 1 or scores.shape[1] == 1
    scores, labels = (x.reshape(-1) if one and x.ndim == 2 else x for x in (scores, labels))
    if scores.shape[0] == 0:
        raise ValueError(f"{name!r}: there are no predictions (0 rows)")
    labels = _check_labels(labels, scores)
    logits, remark = _to_log_odds(name, scores.astype(np.float32, copy=False))
    num_labels = 1 if one else scores.shape[1]
    if label_names and len(label_names) != num_labels:
        raise ValueError(f"label_names: expected {num_labels} names, got {len(label_names)}")
    of = "of one label" if one else f"of {num_labels} independent labels"
    remarks = (f"{len(scores)} predictions {of}: {remark}", *notes)
    return Predictions(logits, labels, remarks, None, tuple(map(str, label_names)))


def _check_labels(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    if labels.dtype.kind in "SU":
        try:
            labels = labels.astype(np.float64)
        except ValueError:
            raise ValueError(
                f"labels: expected 0 or 1, got text such as {labels.ravel()[0]!r}"
            ) from None
    if labels.dtype.kind not in "fiub" or labels.shape != scores.shape:
        raise ValueError(
            f"labels: expected 0 or 1 of shape {scores.shape} to match the scores, "
            f"got {labels.dtype} {labels.shape}"
        )
    other = (labels != 0) & (labels != 1)
    if other.any():
        first = labels[other][0]
        raise ValueError(
            f"labels: expected 0 or 1, found {first:g}; of one score per example it must be that of "
            "label 1 (several classes need a column each)"
        )
    return labels.astype(np.int32)


def _to_log_odds(name: str, scores: np.ndarray) -> tuple[np.ndarray, str]:
    """Return log odds, and a remark on what the scores are."""
    if not np.isfinite(scores.sum(dtype=np.float64)):
        bad = ~np.isfinite(scores.reshape(len(scores), -1)).all(axis=1)
        raise ValueError(
            f"{name!r}: {bad.sum()} rows hold NaN or infinity, the first is row {np.argmax(bad)}"
        )
    low, high = float(scores.min()), float(scores.max())
    in_range = low >= -_OFF and high <= 1 + _OFF
    if name in PROBS and not in_range:
        raise ValueError(
            f"{name!r}: {low if low < 0 else high:.4g} is no probability; log odds go by the name "
            "'logits'"
        )
    if not in_range:
        return scores, f"log odds of the label (from {name!r})"
    if low == high and name not in PROBS:
        return scores, f"log odds of the label (from {name!r}), all the same"
    if scores.ndim == 2 and len(scores) > 1 and np.abs(scores.sum(axis=1) - 1).max() <= _OFF:
        raise ValueError(
            f"{name!r}: every row sums to 1, so these are probabilities of classes, of which each "
            "example has one; give class numbers as labels"
        )
    probs = np.clip(scores, 0, 1)
    logits = np.asarray(posthoc.logits_from_binary_probs(probs))
    return logits, f"probabilities of the label being 1 (from {name!r}, all in [0, 1])"


def check_label_calibrators(names: Sequence[str]) -> None:
    """Raise a ValueError for a calibrator that does not take independent labels.

    >>> check_label_calibrators(["platt", "beta"])
    """
    for name in names:
        if name not in posthoc.LABEL_CALIBRATORS:
            known = ", ".join(posthoc.LABEL_CALIBRATORS)
            raise ValueError(f"calibrate={name!r}: of independent labels expected some of {known}")


def label_metrics(
    logits: jax.Array, labels: jax.Array
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the metrics, macro averages of several labels, and those of each of several labels."""
    if logits.ndim == 1:
        values = metrics.binary_summary(logits, labels, check=False)
        return {key: float(x) for key, x in values.items()}, {}
    summary = metrics.multilabel_summary(logits, labels, check=False)
    each = {key: [float(v) for v in x] for key, x in summary.per_label.items()}
    return {key: float(x) for key, x in summary.macro.items()}, each


def label_rows(logits: jax.Array, labels: jax.Array) -> list[Rows]:
    """Return what the bootstrap needs: for each label `P(y = 1)`, then the likelier outcome."""
    probs = np.asarray(jax.nn.sigmoid(logits)).reshape(len(labels), -1)
    truth = np.asarray(labels, np.float32).reshape(probs.shape)
    signed = jnp.where(jnp.asarray(labels) == 1, -logits, logits)
    nll = np.asarray(jax.nn.softplus(signed)).reshape(probs.shape)
    top, correct = np.maximum(probs, 1 - probs), ((probs > 0.5) == truth).astype(np.float32)
    rows = []
    for i in range(probs.shape[1]):
        p, y, loss = probs[:, i], truth[:, i], nll[:, i]
        rows += [Rows(p, y, loss, (p - y) ** 2), Rows(top[:, i], correct[:, i], loss, loss)]
    return rows


def macro_samples(samples: Sequence[Samples]) -> Samples:
    """Return the resampled macro averages, given the samples of `label_rows`."""
    groups = ((_OF_POSITIVE, samples[0::2]), (_OF_TOP, samples[1::2]))
    return {
        name: np.mean([sample[key] for sample in of_labels], axis=0)
        for names, of_labels in groups
        for key, name in names.items()
    }
