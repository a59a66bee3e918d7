"""Predictions of any framework, checked: what cannot be right is rejected with the way to fix it."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calib_jax._hints import expected_one_of

LOGITS = ("logits",)
PROBS = ("probs", "probabilities", "softmax")
_SMALLEST_PROB = 1e-30
_SUM_TOLERANCE = 1e-3  # of rows of probabilities
_HALF_TOLERANCE = 1e-2  # of those that were computed in 16 bits
_ROUNDED_TOLERANCE = (
    0.2  # of those that are rounded to a few digits, however many classes there are
)
_AGREEMENT = 1e-2  # of probabilities with the softmax of the logits beside them
_SHOWN_NAMES = 6
_MOST_GROUPS = 1000  # rows of a table


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Checked predictions, of classes or of independent labels.

    Attributes:
      logits: Logits, float32 `[n, num_classes]`; logarithms, if probabilities were given. Of labels that
        are true or not, each by itself, `[n]` or `[n, num_labels]`: their log odds.
      labels: Classes, int32 `[n]`; of independent labels 0 or 1, of the shape of the logits.
      notes: Remarks on the file, one sentence each.
      groups: Subgroup of each example, strings `[n]`; `None` if the file has none.
      label_names: Names of the classes; empty if the file has none.
      label_probs: True distribution p(y|x) of each label `[n, num_classes]`; `None` if not known.
    """

    logits: np.ndarray
    labels: np.ndarray
    notes: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    label_names: tuple[str, ...] = ()
    label_probs: np.ndarray | None = None

    @property
    def num_classes(self) -> int:
        """Return the number of columns of the logits."""
        return self.logits.shape[1] if self.logits.ndim == 2 else 1

    @property
    def is_independent(self) -> bool:
        """Return whether these are predictions of independent labels, not of classes."""
        return self.logits.shape == self.labels.shape


def check_predictions(
    name: str,
    scores: np.ndarray,
    labels: np.ndarray,
    *,
    label_names: Sequence[str] = (),
    groups: np.ndarray | None = None,
    notes: Sequence[str] = (),
) -> Predictions:
    """Check raw arrays and find out whether the scores are logits or probabilities.

    Args:
      name: Name of the scores, such as `logits` or `probs`.
      scores: Numbers `[n, num_classes]`.
      labels: Class numbers or names `[n]`.
      label_names: Names of the classes, in the order of the columns.
      groups: Subgroup of each example `[n]`.
      notes: Remarks to keep.

    Raises:
      ValueError: With one line that says what cannot be right.

    >>> import numpy as np
    >>> check_predictions("probs", np.array([[0.25, 0.75]]), np.array([1])).num_classes
    2
    """
    scores = _check_scores(name, scores)
    n, k = scores.shape
    label_names = tuple(map(str, label_names))
    if label_names and len(label_names) != k:
        raise ValueError(f"label_names: expected {k} names, one per column, got {len(label_names)}")
    if len(set(label_names)) < len(label_names):
        raise ValueError("label_names: two classes have the same name")
    labels = check_labels(labels, n, k, label_names)
    logits, what, from_probs = _interpret(name, scores)
    remarks = [f"{n} predictions over {k} classes: {what}"]
    if from_probs:
        zeros = int(np.sum(logits[np.arange(n), labels] <= np.log(_SMALLEST_PROB) + 1e-3))
        if zeros:
            remarks.append(f"{zeros} labels have probability 0, counted as 1e-30 in the NLL")
    if groups is not None:
        groups = np.asarray(groups).astype(str)
        if groups.shape != (n,):
            raise ValueError(
                f"groups: expected shape ({n},) to match the scores, got {groups.shape}"
            )
        num_groups = len(np.unique(groups))
        if num_groups > _MOST_GROUPS:
            raise ValueError(
                f"groups: {num_groups} different ones, expected at most {_MOST_GROUPS}; ids? "
                "Remove or rename them"
            )
        remarks.append(f"{num_groups} groups")
    return Predictions(logits, labels, (*remarks, *notes), groups, label_names)


class _Interpreted(NamedTuple):
    """Scores as logits, what they were, and whether they were probabilities."""

    logits: np.ndarray
    what: str
    from_probs: bool = False


def _interpret(name: str, scores: np.ndarray) -> _Interpreted:
    """Find out what finite float32 scores are, or raise a ValueError.

    Names of neither logits nor probabilities leave it open.
    """
    low, high = float(scores.min()), float(scores.max())
    if low >= 0 and high <= 1 + _SUM_TOLERANCE:
        return _from_unit_interval(name, scores)
    _check_transformed(name, scores, low, high)
    is_log = high <= 1e-3 and _is_log(scores)
    if name in PROBS:
        outside = (scores < 0) | (scores > 1 + _SUM_TOLERANCE)
        what = f"no probabilities ({scores[outside][0]:.4g} is none)"
        raise ValueError(
            f"{name!r}: these are {'log-probabilities' if is_log else what}; logits and "
            "log-probabilities go by the name 'logits'"
        )
    if is_log:
        return _Interpreted(scores, f"log-probabilities (from {name!r}), which are logits")
    return _Interpreted(scores, f"logits (from {name!r})")


def _check_transformed(name: str, scores: np.ndarray, low: float, high: float) -> None:
    """Raise a ValueError for percentages and for negative log-probabilities."""
    if low < 0:
        return
    off = np.abs(scores.sum(axis=1, dtype=np.float64) - 100).max()
    if high <= 100.5 and off < max(1, min(5, 0.5 * scores.shape[1] + 1e-3)):
        raise ValueError(
            f"{name!r}: every row sums to 100, so these are percentages; divide by 100"
        )
    if _is_log(-scores[:16]) and _is_log(-scores):
        raise ValueError(f"{name!r}: these are negative log-probabilities; change their sign")


def _is_log(scores: np.ndarray) -> bool:
    """Return whether the exponentials of every row sum to 1."""
    with np.errstate(over="ignore"):
        sums = np.exp(scores).sum(axis=1)
    return bool(np.abs(sums - 1).max() < _SUM_TOLERANCE)


def _from_unit_interval(name: str, scores: np.ndarray) -> _Interpreted:
    """Tell probabilities, logits and sigmoids in [0, 1] apart."""
    sums = scores.sum(axis=1, dtype=np.float64)
    off = float(np.abs(sums - 1).max())
    digits, tolerance = None, _HALF_TOLERANCE
    if off > _SUM_TOLERANCE:
        digits = next((d for d in (2, 3, 4) if _is_rounded(scores, d)), None)
    if digits is not None:
        by_rounding = 0.5 * scores.shape[1] * 10.0**-digits
        tolerance = min(by_rounding, _ROUNDED_TOLERANCE) + 1e-6
    is_distribution = off <= tolerance
    # A single row of logits may sum to 1 by chance.
    if name in LOGITS and not (is_distribution and np.any(scores != scores[:1])):
        what = (
            f"logits (from {name!r}), all of them in [0, 1]: if they are sigmoids or probabilities, "
            "the numbers below are wrong; give rows that sum to 1 under the name 'probs'"
        )
        return _Interpreted(scores, what)
    if not is_distribution:
        row = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(
            f"{name!r}: row {row} is no probability distribution (sum {sums[row]:.4g}); sigmoids of "
            "independent labels? Give softmax outputs, whose rows sum to 1, or name the array 'logits'"
        )
    if off <= _SUM_TOLERANCE:
        what = f"probabilities (every row of {name!r} is non-negative and sums to 1)"
        return _Interpreted(_log(scores), what, from_probs=True)
    rounding = f"rounded to {digits} digits" if digits else "rounded"
    what = (
        f"probabilities (from {name!r}) {rounding}: rows sum to {sums.min():.4g} to "
        f"{sums.max():.4g} and are divided by their sum"
    )
    return _Interpreted(_log(scores / sums[:, None].astype(np.float32)), what, from_probs=True)


def _is_rounded(scores: np.ndarray, digits: int) -> bool:
    scaled = scores * np.float32(10**digits)
    return bool(np.abs(scaled - np.round(scaled)).max() < 1e-2)


def _log(probs: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probs, np.float32(_SMALLEST_PROB)))


def check_agreement(logits: np.ndarray, probs: np.ndarray) -> None:
    """Raise a ValueError if probabilities are not the softmax of the logits that stand beside them.

    Args:
      logits: Logits `[n, num_classes]`.
      probs: Probabilities of the same shape.

    >>> check_agreement(np.array([[0.0, 0.0]]), np.array([[0.5, 0.5]]))
    """
    if logits.shape != probs.shape:
        raise ValueError(f"logits have shape {logits.shape}, probs {probs.shape}; give one of them")
    logits, probs = _check_scores("logits", logits), _check_scores("probs", probs)
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    gap = np.abs(exp / exp.sum(axis=1, keepdims=True) - probs).max(axis=1)
    row = int(np.argmax(gap))
    if gap[row] > _AGREEMENT:
        raise ValueError(
            f"logits and probs disagree: in row {row} the softmax of the logits is off by "
            f"{gap[row]:.2g}; give one of them (calibrated probabilities alone, as 'probs')"
        )


def _check_scores(name: str, scores: np.ndarray) -> np.ndarray:
    if scores.dtype.kind not in "fiu":
        raise ValueError(f"{name!r}: expected numbers, got {scores.dtype}")
    if scores.ndim != 2 or scores.shape[1] < 2:
        raise ValueError(
            f"{name!r}: expected [n, num_classes >= 2], got shape {scores.shape}"
            " (a binary classifier needs a column for each class)"
        )
    if scores.shape[0] == 0:
        raise ValueError(f"{name!r}: there are no predictions (0 rows)")
    with np.errstate(over="ignore"):
        scores = scores.astype(np.float32, copy=False)
    if not np.isfinite(scores.sum(dtype=np.float64)):
        bad = ~np.isfinite(scores).all(axis=1)
        hint = ""
        if np.isneginf(scores[bad]).any(axis=1).all() and not (scores > 0).any():
            hint = "; logarithms of 0? Give the probabilities as 'probs'"
        raise ValueError(
            f"{name!r}: {bad.sum()} rows hold NaN or infinity, the first is row {np.argmax(bad)}{hint}"
        )
    return scores


def check_labels(labels: np.ndarray, n: int, k: int, label_names: Sequence[str] = ()) -> np.ndarray:
    """Return labels as class numbers, int32 `[n]`, or raise a ValueError.

    Args:
      labels: Class numbers or names.
      n: Number of examples.
      k: Number of classes.
      label_names: Names of the classes, or nothing.

    >>> check_labels(np.array(["dog", "cat"]), 2, 2, ("cat", "dog")).tolist()
    [1, 0]
    """
    if labels.shape == (n, k) and k > 1 and labels.dtype.kind in "fiub":
        kind = "one-hot" if ((labels == 0) | (labels == 1)).all() else "soft"
        raise ValueError(
            f"labels: {kind} labels of shape {labels.shape}; give class numbers, "
            "labels.argmax(axis=1)"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n,):
        raise ValueError(f"labels: expected shape ({n},) to match the scores, got {labels.shape}")
    if labels.dtype.kind in "iu" and _are_other_numbers(label_names):
        labels = labels.astype(str)  # classes such as 1, 2, 3 are names, not positions
    if labels.dtype.kind in "SU":
        values, inverse = np.unique(labels, return_inverse=True)
        texts = [v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in values]
        labels = _class_numbers(texts, label_names)[inverse]
    if labels.dtype.kind not in "fiu":
        raise ValueError(f"labels: expected class numbers, got {labels.dtype}")
    whole = labels == np.floor(labels)
    if not whole.all():
        row = int(np.argmin(whole))
        raise ValueError(f"labels: expected whole numbers, row {row} has {labels[row]}")
    outside = (labels < 0) | (labels >= k)
    if outside.any():
        row = int(np.argmax(outside))
        hint = "; do they count from 1?" if labels.min() == 1 and labels.max() == k else ""
        raise ValueError(f"labels: expected 0 to {k - 1}, row {row} has {labels[row]:g}{hint}")
    return labels.astype(np.int32)


def _are_other_numbers(label_names: Sequence[str]) -> bool:
    """Return whether the classes are named by numbers that are not 0, 1, … in the order of columns."""
    are_numbers = bool(label_names) and all(name.isdecimal() for name in label_names)
    return are_numbers and list(map(int, label_names)) != list(range(len(label_names)))


def _class_numbers(texts: Sequence[str], label_names: Sequence[str]) -> np.ndarray:
    """Return the class number of each label that is given as text."""
    if all(text in label_names for text in texts):
        return np.array([label_names.index(text) for text in texts])
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        numbers = None
    if numbers is not None and not _are_other_numbers(label_names):
        return numbers
    if not label_names:
        raise ValueError(
            f"labels: expected class numbers, got text such as {texts[0]!r}; name the classes in "
            "the order of the columns (an array 'label_names', or columns such as prob_cat)"
        )
    unknown = next(text for text in texts if text not in label_names)
    names = [*label_names[:_SHOWN_NAMES], "…"] if len(label_names) > _SHOWN_NAMES else label_names
    raise ValueError(f"labels: {unknown!r} is no class; {expected_one_of(unknown, names)}")
