"""Reasons not to trust a calibrator: what is wrong with its validation data or its parameters."""

from collections.abc import Sequence

import jax
import numpy as np

from calib_jax import posthoc
from calib_jax.evaluation._predictions import Predictions

_ROWS_PER_PARAMETER = 5
_SHOWN_CLASSES = 5
_CHUNK_VALUES = 2**20  # logits that are hashed at the same time
_LARGEST_TEMPERATURE = 999.0  # without a grid, temperatures end at 1,000


def validation_warnings(
    test: Predictions, validation: Predictions, calibrators: Sequence[str]
) -> list[str]:
    """Return what is wrong with the data that calibrators are fitted on, one sentence each.

    Args:
      test: Predictions to evaluate.
      validation: Predictions to fit on.
      calibrators: Names of the calibrators.

    >>> import numpy as np
    >>> test = Predictions(np.eye(3, dtype=np.float32), np.array([0, 0, 1], np.int32))
    >>> print(validation_warnings(test, test, ["temperature"])[1])
    validation has no example of 1 of 3 classes (2)
    """
    if not calibrators:
        return ["--validation is given without --calibrate, so nothing is fitted on it"]
    warnings = []
    shared, n = _num_shared(test, validation), len(validation.labels)
    if 100 * shared >= n:
        warnings.append(
            f"{shared} of {n} validation rows are also in the predictions: "
            "calibrators must not see what they are evaluated on"
        )
    if validation.is_independent:
        share = validation.labels.reshape(n, -1).mean(axis=0)
        lacking = np.flatnonzero((share == 0) | (share == 1))
        what, kind = "either no 0 or no 1", "labels"
    else:
        counts = np.bincount(validation.labels, minlength=validation.num_classes)
        lacking = np.flatnonzero(counts == 0)
        what, kind = "no example", "classes"
    if len(lacking):
        names = validation.label_names or range(validation.num_classes)
        shown = ", ".join(str(names[c]) for c in lacking[:_SHOWN_CLASSES])
        dots = ", …" if len(lacking) > _SHOWN_CLASSES else ""
        warnings.append(
            f"validation has {what} of {len(lacking)} of {validation.num_classes} {kind} "
            f"({shown}{dots})"
        )
    return warnings


def size_warning(
    name: str, calibrator: posthoc.Calibrator, num_rows: int, num_classes: int
) -> list[str]:
    """Return a warning if a calibrator has been fitted on few rows for its number of parameters.

    Args:
      name: Name of the calibrator.
      calibrator: Fitted calibrator.
      num_rows: Number of rows that it was fitted on.
      num_classes: Number of classes.
    """
    # What these store grows with the rows; this many numbers decide what it is.
    free = {"spline": 6, "isotonic": 2 * num_classes}
    fitted = calibrator.calibrator if isinstance(calibrator, posthoc.Auto) else calibrator
    parameters = free.get(name) or sum(np.size(leaf) for leaf in jax.tree.leaves(fitted))
    if num_rows >= _ROWS_PER_PARAMETER * parameters:
        return []
    return [
        f"fitted on {num_rows} rows, few for {parameters} parameters "
        f"(expected {_ROWS_PER_PARAMETER} rows or more for each)"
    ]


def temperature_warning(name: str, calibrator: posthoc.Calibrator) -> list[str]:
    """Return a warning if a temperature lies at the end of the values that were tried.

    Args:
      name: Name of the calibrator.
      calibrator: Fitted calibrator.
    """
    temperature = getattr(calibrator, "temperature", None)
    if temperature is None:
        return []
    value = float(temperature)
    options = getattr(posthoc.CALIBRATORS[name], "keywords", {})
    if "criterion" in options:
        grid = np.asarray(options.get("grid", np.arange(1, 501) / 100), np.float32)
        ends = f"the end of its grid ({grid[0]:g} to {grid[-1]:g})"
        at_end = value <= grid[0] or value >= grid[-1]
    else:
        ends, at_end = "the largest that is tried", value >= _LARGEST_TEMPERATURE
    return [f"temperature {value:.4g} lies at {ends}: the best one may be beyond"] if at_end else []


def _num_shared(test: Predictions, validation: Predictions) -> int:
    """Return how many validation rows are in the predictions, 0 if that may be chance.

    Rows of a few digits repeat by themselves: of such files only equal ones are told.
    """
    if np.array_equal(test.logits, validation.logits) and np.array_equal(
        test.labels, validation.labels
    ):
        return len(test.labels)
    known = np.unique(_row_hashes(test))
    if len(known) < 0.9 * len(test.labels):
        return 0
    return int(np.isin(_row_hashes(validation), known).sum())


def _row_hashes(predictions: Predictions) -> np.ndarray:
    """Return an integer per row, uint64 `[n]`, that equal rows share and others hardly ever."""
    n, k = len(predictions.logits), predictions.num_classes
    rng = np.random.default_rng(0)
    factors = rng.integers(1, 2**63, k, np.uint64)
    bits = np.ascontiguousarray(predictions.logits.reshape(n, k), np.float32).view(np.uint32)
    size = max(1, _CHUNK_VALUES // k)
    chunks = [
        (bits[i : i + size] * factors).sum(axis=1, dtype=np.uint64) for i in range(0, n, size)
    ]
    labels = predictions.labels.reshape(n, -1).astype(np.uint64)
    return np.concatenate(chunks) + (labels * factors[: labels.shape[1]]).sum(axis=1)
