"""Metrics of predictions before and after post-hoc calibration, with bootstrap intervals."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import metrics, posthoc
from calib_jax.evaluation._predictions import Predictions


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one set of predictions.

    Attributes:
      name: `uncalibrated` or the name of the calibrator.
      metrics: Values of `metrics.summary`.
      intervals: 95 % bootstrap intervals `(low, high)` over the examples, for some of the metrics.
      parameters: The few numbers of the calibrator, such as its temperature.
      confidence: Top-label confidence `[n]`.
      correct: Whether the prediction is right `[n]`.
    """

    name: str
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    parameters: dict[str, list[float]]
    confidence: np.ndarray
    correct: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Return all fields but those with one entry per example."""
        fields = dataclasses.asdict(self)
        return {k: v for k, v in fields.items() if k not in ("confidence", "correct")}


def evaluate(
    test: Predictions,
    validation: Predictions | None = None,
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int = 500,
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
      num_samples: Number of bootstrap samples.

    Returns:
      The evaluation of the uncalibrated predictions, then one per calibrator.

    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0], [0.5, 0.0]], np.float32)
    >>> predictions = Predictions(logits, np.array([0, 1, 1], np.int32))
    >>> (uncalibrated,) = evaluate(predictions, num_samples=4)
    >>> round(uncalibrated.metrics["accuracy"], 3)
    0.667
    """
    check_calibrators(calibrators)
    if validation is not None and validation.num_classes != test.num_classes:
        raise ValueError(
            f"validation has {validation.num_classes} classes, the predictions {test.num_classes}"
        )
    logits, labels = _as_jax(test)
    key = jax.random.key(seed)
    evaluations = [_measure("uncalibrated", logits, labels, {}, key, num_samples)]
    for name in calibrators:
        fit = posthoc.CALIBRATORS[name]
        if validation is not None:
            fitted = [fit(*_as_jax(validation))]
            probs = fitted[0](logits)
        else:
            fitted, probs = _cross_fit(fit, logits, labels, seed)
        calibrated = posthoc.logits_from_probs(probs)
        evaluations.append(
            _measure(name, calibrated, labels, _parameters(fitted), key, num_samples)
        )
    return evaluations


def check_calibrators(names: Sequence[str]) -> None:
    """Raise a ValueError for a name that is not in `posthoc.CALIBRATORS`.

    >>> check_calibrators(["temperature", "spline"])
    """
    for name in names:
        if name not in posthoc.CALIBRATORS:
            known = ", ".join(posthoc.CALIBRATORS)
            raise ValueError(f"calibrate={name!r}: expected some of {known}")


def _as_jax(predictions: Predictions) -> tuple[jax.Array, jax.Array]:
    return jnp.asarray(predictions.logits), jnp.asarray(predictions.labels)


def _cross_fit(
    fit: Callable[..., Any], logits: jax.Array, labels: jax.Array, seed: int
) -> tuple[list[Any], jax.Array]:
    """Return the calibrators of both halves, and probabilities `[n, num_classes]`."""
    n = labels.shape[0]
    if n < 2:
        raise ValueError("one prediction cannot be cut in two halves: give --validation")
    halves = np.array_split(np.random.default_rng(seed).permutation(n), 2)
    probs = jnp.zeros_like(logits)
    fitted = []
    for fit_on, use_on in (halves, halves[::-1]):
        fitted.append(fit(logits[fit_on], labels[fit_on]))
        probs = probs.at[use_on].set(fitted[-1](logits[use_on]))
    return fitted, probs


def _measure(
    name: str,
    logits: jax.Array,
    labels: jax.Array,
    parameters: dict[str, list[float]],
    key: jax.Array,
    num_samples: int,
) -> Evaluation:
    confidence, correct = metrics.top_label(logits, labels)
    interval = metrics.bootstrap(
        _resampled_metrics, logits, labels, key=key, num_samples=num_samples
    )
    return Evaluation(
        name=name,
        metrics={k: float(v) for k, v in metrics.summary(logits, labels).items()},
        intervals={k: (float(interval.low[k]), float(interval.high[k])) for k in interval.low},
        parameters=parameters,
        confidence=np.asarray(confidence),
        correct=np.asarray(correct),
    )


def _resampled_metrics(
    logits: jax.Array, labels: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    """Compute the metrics that are cheap enough to be resampled hundreds of times."""
    confidence, correct = metrics.top_label(logits, labels)
    return {
        "accuracy": metrics.accuracy(logits, labels, weights=weights),
        "nll": metrics.nll(logits, labels, weights=weights),
        "brier": metrics.brier_score(logits, labels, weights=weights),
        "ece": metrics.ece(confidence, correct, weights=weights),
        "ece_mass": metrics.ece(confidence, correct, scheme="mass", weights=weights),
        "smooth_ece": metrics.smooth_ece(confidence, correct, weights=weights),
        "aurc": metrics.aurc(confidence, correct, weights=weights),
    }


def _parameters(fitted: list[Any]) -> dict[str, list[float]]:
    """Return the scalars and triples of the fitted calibrators, those of one after the other."""
    names = [f.name for f in dataclasses.fields(fitted[0])]
    values = {n: [np.asarray(getattr(c, n)).ravel() for c in fitted] for n in names}
    return {n: [float(x) for x in np.concatenate(v)] for n, v in values.items() if v[0].size <= 3}
