"""Predictions as they are, and as calibrators leave them: fitted on other data, or cross-fitted."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import posthoc
from calib_jax.evaluation._align import align_classes
from calib_jax.evaluation._labels import check_label_calibrators
from calib_jax.evaluation._predictions import Predictions
from calib_jax.evaluation._warnings import size_warning, temperature_warning

_TWO_CLASSES = ("platt", "beta")  # calibrators that take no other number of classes


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Predictions that are evaluated side by side with others of the same examples.

    Attributes:
      name: Name of the evaluation.
      logits: Logits `[n, num_classes]`, or of independent labels.
      parameters: The few numbers of the calibrator.
      warnings: Reasons not to trust the calibrator.
      reason: Why `auto` chose its calibrator.
      fold: By which of the fitted calibrators each row was calibrated `[n]`; `None` if by the same one.
    """

    name: str
    logits: jax.Array
    parameters: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reason: str = ""
    fold: np.ndarray | None = None


def calibrated_candidates(
    test: Predictions,
    validation: Predictions | None,
    calibrators: Sequence[str],
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Candidate]:
    """Yield predictions as they are, then calibrated by each calibrator. Arguments as in `evaluate`."""
    check_calibrators(calibrators)
    to_logits = posthoc.logits_from_probs
    if test.is_independent:
        check_label_calibrators(calibrators)
        to_logits = posthoc.logits_from_binary_probs
    if validation is not None:
        try:
            validation = align_classes(validation, test)
        except ValueError as error:
            raise ValueError(f"validation: {error}") from None
    yield Candidate("uncalibrated", jnp.asarray(test.logits))
    if not calibrators:
        return
    folds = _folds(test, validation, seed)
    for name in calibrators:
        if progress is not None:
            progress(f"fitting {name}")
        yield _calibrated(name, folds, test.logits.shape, to_logits)


def check_calibrators(names: Sequence[str], num_classes: int | None = None) -> None:
    """Raise a ValueError for a name that is not in `posthoc.CALIBRATORS`.

    Args:
      names: Names of calibrators.
      num_classes: Number of classes, if known, which some do not take.

    >>> check_calibrators(["temperature", "spline"])
    """
    for name in names:
        if name not in posthoc.CALIBRATORS:
            known = ", ".join(posthoc.CALIBRATORS)
            raise ValueError(f"calibrate={name!r}: expected some of {known}")
        if name in _TWO_CLASSES and num_classes not in (None, 2):
            raise ValueError(f"calibrate={name!r}: takes two classes, here are {num_classes}")


class _Fold(NamedTuple):
    """Data to fit a calibrator on, and logits that it calibrates.

    Attributes:
      fit_logits: Logits to fit on.
      fit_labels: Labels to fit on.
      logits: Logits to calibrate.
      rows: Their positions in the predictions.
    """

    fit_logits: jax.Array
    fit_labels: jax.Array
    logits: jax.Array
    rows: np.ndarray | slice


def _folds(test: Predictions, validation: Predictions | None, seed: int) -> list[_Fold]:
    """Return all of the predictions, or both halves without validation data."""
    if validation is not None:
        fit_logits, fit_labels = jnp.asarray(validation.logits), jnp.asarray(validation.labels)
        return [_Fold(fit_logits, fit_labels, jnp.asarray(test.logits), slice(None))]
    n = len(test.labels)
    if n < 2:
        raise ValueError("one prediction cannot be cut in two halves: give --validation")
    halves = np.array_split(np.random.default_rng(seed).permutation(n), 2)
    logits, labels = ([jnp.asarray(x[h]) for h in halves] for x in (test.logits, test.labels))
    return [_Fold(logits[i], labels[i], logits[1 - i], halves[1 - i]) for i in (0, 1)]


def _calibrated(
    name: str,
    folds: Sequence[_Fold],
    shape: tuple[int, ...],
    to_logits: Callable[[jax.Array], jax.Array],
) -> Candidate:
    """Fit a calibrator on each fold, and return the calibrated predictions of that shape."""
    logits, number = np.empty(shape, np.float32), np.zeros(shape[0], np.int32)
    fitted: list[posthoc.Calibrator] = []
    warnings: list[str] = []
    for i, fold in enumerate(folds):
        calibrator = posthoc.CALIBRATORS[name](fold.fit_logits, fold.fit_labels, check=False)
        logits[fold.rows] = to_logits(calibrator(fold.logits, check=False))
        number[fold.rows] = i
        warnings += size_warning(name, calibrator, len(fold.fit_labels), shape[1])
        warnings += temperature_warning(name, calibrator)
        fitted.append(calibrator)
    return Candidate(
        name,
        jnp.asarray(logits),
        _parameters(fitted),
        tuple(dict.fromkeys(warnings)),  # those of both halves once
        "; ".join(c.reason for c in fitted if isinstance(c, posthoc.Auto)),
        number if len(folds) > 1 else None,
    )


def _parameters(fitted: Sequence[posthoc.Calibrator]) -> dict[str, list[float]]:
    """Return the scalars and triples of the fitted calibrators, those of one after the other."""
    fields = {f.name: getattr(fitted[0], f.name) for f in dataclasses.fields(fitted[0])}
    # The `nll` of `auto` is one per candidate: part of its reason.
    names = [name for name, x in fields.items() if isinstance(x, jax.Array) and name != "nll"]
    values = {n: [np.asarray(getattr(c, n)).ravel() for c in fitted] for n in names}
    return {n: [float(x) for x in np.concatenate(v)] for n, v in values.items() if v[0].size <= 3}
