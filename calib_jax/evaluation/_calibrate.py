"""Predictions as they are, and as calibrators leave them: fitted on other data, or cross-fitted."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

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
    num_rows = len(test.labels) // 2 if validation is None else len(validation.labels)
    for name in calibrators:
        if progress is not None:
            progress(f"fitting {name}")
        fitted, probs, fold = _calibrate(name, test, validation, seed)
        warnings = size_warning(name, fitted[0], num_rows, test.num_classes)
        for calibrator in fitted:
            warnings += temperature_warning(name, calibrator)
        reasons = [c.reason for c in fitted if isinstance(c, posthoc.Auto)]
        yield Candidate(
            name,
            to_logits(probs),
            _parameters(fitted),
            tuple(dict.fromkeys(warnings)),  # those of both halves once
            "; ".join(reasons),
            fold,
        )


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


def _as_jax(predictions: Predictions) -> tuple[jax.Array, jax.Array]:
    return jnp.asarray(predictions.logits), jnp.asarray(predictions.labels)


def _calibrate(
    name: str, test: Predictions, validation: Predictions | None, seed: int
) -> tuple[list[posthoc.Calibrator], jax.Array, np.ndarray | None]:
    """Return the fitted calibrators, one or that of each half, probabilities and `Candidate.fold`."""
    fit = posthoc.CALIBRATORS[name]
    logits, labels = _as_jax(test)
    if validation is not None:
        fitted = fit(*_as_jax(validation), check=False)
        return [fitted], fitted(logits, check=False), None
    n = labels.shape[0]
    if n < 2:
        raise ValueError("one prediction cannot be cut in two halves: give --validation")
    halves = np.array_split(np.random.default_rng(seed).permutation(n), 2)
    probs, fold = np.zeros(logits.shape, np.float32), np.zeros(n, np.int32)
    calibrators: list[posthoc.Calibrator] = []
    for fit_on, use_on in (halves, halves[::-1]):
        calibrator = fit(logits[fit_on], labels[fit_on], check=False)
        probs[use_on] = calibrator(logits[use_on], check=False)
        fold[use_on] = len(calibrators)
        calibrators.append(calibrator)
    return calibrators, jnp.asarray(probs), fold


def _parameters(fitted: Sequence[posthoc.Calibrator]) -> dict[str, list[float]]:
    """Return the scalars and triples of the fitted calibrators, those of one after the other."""
    fields = {f.name: getattr(fitted[0], f.name) for f in dataclasses.fields(fitted[0])}
    # The `nll` of `auto` is one per candidate: part of its reason.
    names = [name for name, x in fields.items() if isinstance(x, jax.Array) and name != "nll"]
    values = {n: [np.asarray(getattr(c, n)).ravel() for c in fitted] for n in names}
    return {n: [float(x) for x in np.concatenate(v)] for n, v in values.items() if v[0].size <= 3}
