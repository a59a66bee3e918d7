"""Metrics of predictions before and after post-hoc calibration, with bootstrap intervals."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import losses, metrics, posthoc
from calib_jax.evaluation._align import align_classes, label_difference
from calib_jax.evaluation._bootstrap import Rows, default_num_samples, percentiles, resample
from calib_jax.evaluation._labels import (
    check_label_calibrators,
    label_metrics,
    label_rows,
    macro_samples,
)
from calib_jax.evaluation._predictions import Predictions
from calib_jax.evaluation._sets import set_metrics
from calib_jax.evaluation._warnings import size_warning, temperature_warning

Interval = tuple[float, float]
_TWO_CLASSES = ("platt", "beta")  # calibrators that take no other number of classes


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one set of predictions.

    Attributes:
      name: `uncalibrated` or the name of the calibrator.
      metrics: Values of `metrics.summary`; of independent labels those of `metrics.binary_summary`, or
        the macro averages of `metrics.multilabel_summary`.
      intervals: 95 % bootstrap intervals `(low, high)` over the examples, for some of the metrics.
      parameters: The few numbers of the calibrator, such as its temperature.
      confidence: Top-label confidence `[n]`; of independent labels P(y=1), of all of them `[n * labels]`.
      correct: Whether the prediction is right, or the label 1; like `confidence`.
      differences: 95 % intervals of the paired difference from the first evaluation, for the metrics
        that have intervals; of the first one, none.
      warnings: Reasons not to trust the calibrator, one sentence each.
      reason: Why `auto` chose its calibrator; empty for the others.
      per_label: Metrics of each of several independent labels `[num_labels]`.
      sets: Metrics of conformal sets by their score, if they were asked for.
    """

    name: str
    metrics: dict[str, float]
    intervals: dict[str, Interval]
    parameters: dict[str, list[float]]
    confidence: np.ndarray
    correct: np.ndarray
    differences: dict[str, Interval] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    reason: str = ""
    per_label: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    sets: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all fields but those with one entry per example and those that only some have."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        left_out = {"confidence", "correct", *(k for k in ("per_label", "sets") if not fields[k])}
        return {k: v for k, v in fields.items() if k not in left_out}


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


def evaluate(
    test: Predictions,
    validation: Predictions | None = None,
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int | None = None,
    alpha: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Evaluation]:
    """Compute the metrics of predictions as they are, then after each calibrator.

    Calibrators are fitted on `validation`. Without it they are cross-fitted: the predictions are split
    at random into two halves, and each half is calibrated by a fit on the other, so that all examples
    are evaluated and none by a calibrator that has seen it.

    Args:
      test: Predictions to evaluate.
      validation: Predictions on other data, to fit on.
      calibrators: Names from `posthoc.CALIBRATORS`.
      seed: Seed of the halves and of the bootstrap.
      num_samples: Number of bootstrap samples; `None`: 500, and fewer above 200,000 examples.
      alpha: How often conformal sets may miss the label; `None`: no sets.
      progress: Function that is called with what is being done.

    Returns:
      The evaluation of the uncalibrated predictions, then one per calibrator.

    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], np.float32)
    >>> predictions = Predictions(logits, np.array([0, 1, 1], np.int32))
    >>> (uncalibrated,) = evaluate(predictions, num_samples=4)
    >>> round(uncalibrated.metrics["accuracy"], 3)
    0.667
    """
    candidates = calibrated_candidates(test, validation, calibrators, seed, progress)
    return measure(
        candidates, test.labels, seed=seed, num_samples=num_samples, alpha=alpha, progress=progress
    )


def compare(
    predictions: Mapping[str, Predictions],
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int | None = None,
    alpha: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Evaluation]:
    """Evaluate several classifiers on the same examples, side by side.

    Args:
      predictions: Predictions of each classifier by its name; all are compared with the first.
      calibrators: Names from `posthoc.CALIBRATORS`, cross-fitted for each classifier.
      seed: As in `evaluate`.
      num_samples: As in `evaluate`.
      alpha: As in `evaluate`.
      progress: As in `evaluate`.

    Returns:
      For each classifier its evaluation as it is, then one per calibrator. `differences` has the
      intervals of the paired differences from the first evaluation.

    >>> import numpy as np
    >>> a, b = (np.array([[x, 0.0], [0.0, x]], np.float32) for x in (1.0, 2.0))
    >>> labels = np.array([0, 1], np.int32)
    >>> both = {"a": Predictions(a, labels), "b": Predictions(b, labels)}
    >>> low, high = compare(both, num_samples=4)[1].differences["nll"]
    >>> low < 0 and high < 0
    True
    """
    first, reference = next(iter(predictions.items()))
    candidates = []
    for name, one in predictions.items():
        one = align_classes(one, reference)
        if not np.array_equal(one.labels, reference.labels):
            raise ValueError(label_difference(first, reference.labels, name, one.labels))
        for candidate in calibrated_candidates(one, None, calibrators, seed, progress):
            is_plain = candidate.name == "uncalibrated"
            title = name if is_plain else f"{name} + {candidate.name}"
            candidates.append(dataclasses.replace(candidate, name=title))
    return measure(
        candidates,
        reference.labels,
        seed=seed,
        num_samples=num_samples,
        alpha=alpha,
        progress=progress,
    )


def calibrated_candidates(
    test: Predictions,
    validation: Predictions | None,
    calibrators: Sequence[str],
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> list[Candidate]:
    """Return predictions as they are, and calibrated by each calibrator. Arguments as in `evaluate`."""
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
    candidates = [Candidate("uncalibrated", jnp.asarray(test.logits))]
    num_rows = len(test.labels) // 2 if validation is None else len(validation.labels)
    for name in calibrators:
        if progress is not None:
            progress(f"fitting {name}")
        fitted, probs, fold = _calibrate(name, test, validation, seed)
        warnings = size_warning(name, fitted[0], num_rows, test.num_classes)
        for calibrator in fitted:
            warnings += temperature_warning(name, calibrator)
        reasons = [c.reason for c in fitted if isinstance(c, posthoc.Auto)]
        candidates.append(
            Candidate(
                name,
                to_logits(probs),
                _parameters(fitted),
                tuple(warnings),
                "; ".join(reasons),
                fold,
            )
        )
    return candidates


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


def measure(
    candidates: Sequence[Candidate],
    labels: ArrayLike,
    *,
    seed: int = 0,
    num_samples: int | None = None,
    alpha: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Evaluation]:
    """Compute the metrics of several predictions of the same examples, with shared resamples.

    Args:
      candidates: Predictions; all others are compared with the first.
      labels: Classes `[n]`, or independent labels of the shape of the logits.
      seed: Seed of the bootstrap.
      num_samples: As in `evaluate`.
      alpha: As in `evaluate`.
      progress: As in `evaluate`.

    Returns:
      One evaluation per candidate.
    """
    note = progress or (lambda text: None)
    labels = jnp.asarray(labels)
    independent = labels.shape == candidates[0].logits.shape
    if independent and alpha is not None:
        raise ValueError(
            "conformal sets are of classes; these are predictions of independent labels"
        )
    values, per_label, rows = [], [], []
    for candidate in candidates:
        note(f"metrics of {candidate.name}")
        of_all, of_each = (label_metrics if independent else _class_metrics)(
            candidate.logits, labels
        )
        values.append(of_all)
        per_label.append(of_each)
        rows.append((label_rows if independent else _class_rows)(candidate.logits, labels))
    num_samples = num_samples or default_num_samples(labels.size)
    resampled = resample(
        [row for of_one in rows for row in of_one],
        seed=seed,
        num_samples=num_samples,
        progress=lambda done: note(f"bootstrap: {done} of {num_samples} resamples"),
    )
    if independent:
        each = len(rows[0])
        resampled = [macro_samples(resampled[i * each :][:each]) for i in range(len(rows))]
    evaluations = []
    for i, (candidate, sample) in enumerate(zip(candidates, resampled, strict=True)):
        differences = {key: sample[key] - resampled[0][key] for key in sample} if i else {}
        of_positive = rows[i][0::2]  # of classes, the only one
        sets: dict[str, dict[str, float]] = {}
        if alpha is not None:
            sets = set_metrics(candidate.logits, labels, alpha, fold=candidate.fold, seed=seed)
        evaluations.append(
            Evaluation(
                name=candidate.name,
                metrics=values[i],
                intervals=percentiles(sample),
                parameters=candidate.parameters,
                confidence=np.concatenate([row.confidence for row in of_positive]),
                correct=np.concatenate([row.correct for row in of_positive]),
                differences=percentiles(differences),
                warnings=candidate.warnings,
                reason=candidate.reason,
                per_label=per_label[i],
                sets=sets,
            )
        )
    return evaluations


def _class_metrics(
    logits: jax.Array, labels: jax.Array
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the metrics of classes; nothing by label."""
    summary = metrics.summary(logits, labels, check=False)
    return {key: float(value) for key, value in summary.items()}, {}


def _class_rows(logits: jax.Array, labels: jax.Array) -> list[Rows]:
    return [Rows(*(np.asarray(x) for x in _row_statistics(logits, labels)))]


@jax.jit
def _row_statistics(
    logits: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    confidence, correct = metrics.top_label(logits, labels)
    nll, brier = losses.cross_entropy(logits, labels), losses.brier(logits, labels)
    return confidence, correct, nll, brier


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
