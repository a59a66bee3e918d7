"""Predictions of any framework, read from a file and checked."""

import dataclasses
import pathlib
import zipfile
from collections.abc import Iterable, Sequence

import numpy as np

from calib_jax.posthoc import logits_from_probs, looks_like_probabilities

_LOGITS = ("logits",)
_PROBS = ("probs", "probabilities", "softmax")
_EITHER = ("predictions", "scores", "outputs")
_LABELS = ("labels", "label", "targets", "ground_truth", "y_true", "y")


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Checked predictions.

    Attributes:
      logits: Logits, float32 `[n, num_classes]`; logarithms, if probabilities were given.
      labels: Classes, int32 `[n]`.
      notes: Remarks on the file, one sentence each.
    """

    logits: np.ndarray
    labels: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """Return the number of columns of the logits."""
        return self.logits.shape[1]


def load_predictions(path: str | pathlib.Path) -> Predictions:
    """Read `logits` or `probs` with `labels` from an `.npz` or a `.csv` file.

    An npz holds arrays `[n, num_classes]` and `[n]`; a csv has a header, one column named `label` and
    one column per class, in order. Nothing is ever unpickled.

    Args:
      path: File to read.

    Raises:
      ValueError: With one line that says what cannot be right.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
    ...     _ = file.write(b"label,logit_0,logit_1\\n1,0.5,2\\n")
    ...     file.flush()
    ...     load_predictions(file.name).notes
    ("1 predictions over 2 classes: logits (from 'logits')",)
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    readers = {".npz": _read_npz, ".csv": _read_csv}
    if path.suffix not in readers:
        raise ValueError(f"{path}: expected a .npz or .csv file")
    try:
        name, scores, labels = readers[path.suffix](path)
        return check_predictions(name, scores, labels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_predictions(name: str, scores: np.ndarray, labels: np.ndarray) -> Predictions:
    """Check raw arrays and find out whether the scores are logits or probabilities.

    Args:
      name: Name of the scores, such as `logits` or `probs`.
      scores: Numbers `[n, num_classes]`.
      labels: Classes `[n]`.

    Raises:
      ValueError: With one line that says what cannot be right.

    >>> import numpy as np
    >>> check_predictions("probs", np.array([[0.25, 0.75]]), np.array([1])).num_classes
    2
    """
    scores = _check_scores(name, scores)
    labels = _check_labels(labels, *scores.shape)
    n, k = scores.shape
    sizes = f"{n} predictions over {k} classes"
    if looks_like_probabilities(scores):
        note = f"{sizes}: probabilities (every row of {name!r} is non-negative and sums to 1)"
        notes = [note]
        zeros = int(np.sum(scores[np.arange(n), labels] == 0))
        if zeros:
            notes.append(f"{zeros} labels have probability 0, counted as 1e-30 in the NLL")
        return Predictions(np.asarray(logits_from_probs(scores)), labels, tuple(notes))
    in_unit_interval = scores.min() >= 0 and scores.max() <= 1
    if name in _PROBS or (in_unit_interval and name not in _LOGITS):
        sums = scores.sum(axis=1)
        worst = int(np.argmax(np.where(scores.min(axis=1) < 0, np.inf, np.abs(sums - 1))))
        raise ValueError(
            f"{name!r}: row {worst} is no probability distribution "
            f"(sum {sums[worst]:.4g}, smallest value {scores[worst].min():.4g}); "
            "give rows that sum to 1, or name the array 'logits'"
        )
    return Predictions(scores, labels, (f"{sizes}: logits (from {name!r})",))


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
    scores = scores.astype(np.float32)
    bad = ~np.isfinite(scores).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name!r}: {bad.sum()} rows hold NaN or infinity, the first is row {np.argmax(bad)}"
        )
    return scores


def _check_labels(labels: np.ndarray, n: int, k: int) -> np.ndarray:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n,):
        raise ValueError(f"labels: expected shape ({n},) to match the scores, got {labels.shape}")
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


def _read_npz(path: pathlib.Path) -> tuple[str, np.ndarray, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError("not a readable npz archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, EOFError, OSError):
        raise ValueError("not a readable npz archive") from None
    except ValueError:
        raise ValueError("holds Python objects, which are never loaded; save arrays") from None
    name = _first(_LOGITS + _PROBS + _EITHER, arrays, "scores: expected 'logits' or 'probs'")
    return name, arrays[name], arrays[_first(_LABELS, arrays, "labels: expected 'labels'")]


def _read_csv(path: pathlib.Path) -> tuple[str, np.ndarray, np.ndarray]:
    with path.open(encoding="utf-8") as file:
        header = [column.strip().strip('"') for column in file.readline().split(",")]
        label = header.index(
            _first(_LABELS, header, "csv: expected a header with a 'label' column")
        )
        rows = file.readlines()
    if not any(row.strip() for row in rows):
        raise ValueError("there are no predictions (0 rows)")
    table = np.loadtxt(rows, delimiter=",", ndmin=2, quotechar='"')
    if table.shape[1] != len(header):
        raise ValueError(f"{len(header)} columns in the header, {table.shape[1]} in the rows")
    scores = np.delete(table, label, axis=1)
    first = next(c for i, c in enumerate(header) if i != label).rstrip("0123456789").strip("_- ")
    kind = {"logit": "logits", "prob": "probs", "p": "probs"}.get(first.lower(), first.lower())
    return kind, scores, table[:, label]


def _first(names: Sequence[str], present: Iterable[str], message: str) -> str:
    """Return the first of the names that is present."""
    keys = list(present)
    for name in names:
        if name in keys:
            return name
    raise ValueError(f"{message}, found {', '.join(map(repr, keys)) or 'nothing'}")
