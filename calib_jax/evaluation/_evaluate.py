"""Metrics of predictions before and after post-hoc calibration, with bootstrap intervals."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import losses, metrics, posthoc
from calib_jax.evaluation._align import align_classes, label_difference
from calib_jax.evaluation._bootstrap import Rows, default_num_samples, percentiles, resample
from calib_jax.evaluation._calibrate import Candidate, calibrated_candidates
from calib_jax.evaluation._labels import label_metrics, label_rows, macro_samples
from calib_jax.evaluation._predictions import Predictions
from calib_jax.evaluation._sets import set_metrics

Interval = tuple[float, float]


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


def evaluate(
    test: Predictions,
    validation: Predictions | None = None,
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int | None = None,
    alpha: float | None = None,
    progress: Callable[[str], None] | None = None,
    check: bool = True,
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
      check: Whether probabilities in place of logits are refused.

    Returns:
      The evaluation of the uncalibrated predictions, then one per calibrator.

    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], np.float32)
    >>> predictions = Predictions(logits, np.array([0, 1, 1], np.int32))
    >>> (uncalibrated,) = evaluate(predictions, num_samples=4)
    >>> round(uncalibrated.metrics["accuracy"], 3)
    0.667
    """
    if check:
        _check_not_probs({"test": test, "validation": validation})
    candidates = calibrated_candidates(test, validation, calibrators, seed, progress)
    return measure(
        candidates,
        test.labels,
        label_probs=test.label_probs,
        seed=seed,
        num_samples=num_samples,
        alpha=alpha,
        progress=progress,
    )


def compare(
    predictions: Mapping[str, Predictions],
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int | None = None,
    alpha: float | None = None,
    progress: Callable[[str], None] | None = None,
    check: bool = True,
) -> list[Evaluation]:
    """Evaluate several classifiers on the same examples, side by side.

    Args:
      predictions: Predictions of each classifier by its name; all are compared with the first.
      calibrators: Names from `posthoc.CALIBRATORS`, cross-fitted for each classifier.
      seed: As in `evaluate`.
      num_samples: As in `evaluate`.
      alpha: As in `evaluate`.
      progress: As in `evaluate`.
      check: As in `evaluate`.

    Returns:
      For each classifier its evaluation as it is, then one per calibrator. `differences` has the
      intervals of the paired differences from the first evaluation.

    >>> import numpy as np
    >>> a, b = (np.array([[x, 0.0], [0.0, x]], np.float32) for x in (2.0, 3.0))
    >>> labels = np.array([0, 1], np.int32)
    >>> both = {"a": Predictions(a, labels), "b": Predictions(b, labels)}
    >>> low, high = compare(both, num_samples=4)[1].differences["nll"]
    >>> low < 0 and high < 0
    True
    """
    if check:
        _check_not_probs(predictions)
    first, reference = next(iter(predictions.items()))
    aligned = {name: align_classes(one, reference) for name, one in predictions.items()}
    for name, one in aligned.items():
        if not np.array_equal(one.labels, reference.labels):
            raise ValueError(label_difference(first, reference.labels, name, one.labels))

    def candidates() -> Iterator[Candidate]:
        for name, one in aligned.items():
            for candidate in calibrated_candidates(one, None, calibrators, seed, progress):
                is_plain = candidate.name == "uncalibrated"
                title = name if is_plain else f"{name} + {candidate.name}"
                yield dataclasses.replace(candidate, name=title)

    return measure(
        candidates(),
        reference.labels,
        seed=seed,
        num_samples=num_samples,
        alpha=alpha,
        progress=progress,
    )


def _check_not_probs(predictions: Mapping[str, Predictions | None]) -> None:
    for name, one in predictions.items():
        if one is None or one.is_independent:
            continue
        if posthoc.looks_like_probabilities(one.logits):
            raise ValueError(
                f"{name}: all entries are in [0, 1] and all rows sum to 1, so these are probabilities; "
                "use check_predictions('probs', probs, labels) (check=False skips this check)"
            )


def measure(
    candidates: Iterable[Candidate],
    labels: ArrayLike,
    *,
    label_probs: ArrayLike | None = None,
    seed: int = 0,
    num_samples: int | None = None,
    alpha: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[Evaluation]:
    """Compute the metrics of several predictions of the same examples, with shared resamples.

    Args:
      candidates: Predictions; all others are compared with the first. None is kept in memory after
        its metrics are computed.
      labels: Classes `[n]`, or independent labels of the shape of the logits.
      label_probs: True distribution p(y|x) of each label `[n, num_classes]`, if it is known: metrics
        against it are added.
      seed: Seed of the bootstrap.
      num_samples: As in `evaluate`.
      alpha: As in `evaluate`.
      progress: As in `evaluate`.

    Returns:
      One evaluation per candidate.
    """
    note = progress or (lambda text: None)
    labels = jnp.asarray(labels)
    evaluations, rows = [], []
    for candidate in candidates:
        note(f"metrics of {candidate.name}")
        independent = labels.shape == candidate.logits.shape
        values, per_label = (label_metrics if independent else _class_metrics)(
            candidate.logits, labels
        )
        if label_probs is not None:
            truth = metrics.truth_summary(candidate.logits, label_probs, check=False)
            values |= {key: float(value) for key, value in truth.items()}
        rows.append((label_rows if independent else _class_rows)(candidate.logits, labels))
        of_positive = rows[-1][0::2]  # of classes, the only one
        sets: dict[str, dict[str, float]] = {}
        if alpha is not None:
            sets = set_metrics(candidate.logits, labels, alpha, fold=candidate.fold, seed=seed)
        evaluations.append(
            Evaluation(
                name=candidate.name,
                metrics=values,
                intervals={},
                parameters=candidate.parameters,
                confidence=np.concatenate([row.confidence for row in of_positive]),
                correct=np.concatenate([row.correct for row in of_positive]),
                warnings=candidate.warnings,
                reason=candidate.reason,
                per_label=per_label,
                sets=sets,
            )
        )
    num_samples = num_samples or default_num_samples(labels.size)
    resampled = resample(
        [row for of_one in rows for row in of_one],
        seed=seed,
        num_samples=num_samples,
        progress=lambda done: note(f"bootstrap: {done} of {num_samples} resamples"),
    )
    each = len(rows[0])
    samples = [resampled[i * each :][:each] for i in range(len(rows))]
    first, *others = (x[0] if each == 1 else macro_samples(x) for x in samples)
    differences = [{}, *({key: x[key] - first[key] for key in x} for x in others)]
    return [
        dataclasses.replace(e, intervals=percentiles(sample), differences=percentiles(difference))
        for e, sample, difference in zip(evaluations, [first, *others], differences, strict=True)
    ]


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
