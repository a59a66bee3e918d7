"""Judging predictions: metrics before and after post-hoc calibration, with intervals."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import metrics, posthoc
from calib_jax.experiment._predictions import Predictions, as_jax

# name -> fit(logits, labels). Reports show the first whose name begins with `temperature` as "+T".
CALIBRATORS: dict[str, Callable[..., Any]] = {
    "temperature": posthoc.Temperature.fit,
    "ets": posthoc.EnsembleTemperature.fit,
    "spline": posthoc.Spline.fit,
    "vector": posthoc.VectorScaling.fit,
    "dirichlet": posthoc.Dirichlet.fit,
    "isotonic": posthoc.Isotonic.fit,
    "histogram": posthoc.HistogramBinning.fit,
    "focal_temperature": posthoc.FocalTemperature.fit,
    # As the paper on emotions does it: T of 0.01, 0.02, …, 5 with the least ECE of ten bins.
    "temperature_ece": functools.partial(
        posthoc.Temperature.fit, criterion="ece", num_bins=10, closed="left"
    ),
    # As AdaFocal's paper does it: T of 0.1, 0.2, …, 10 with the least equal-mass ECE.
    "temperature_ece_mass": functools.partial(
        posthoc.Temperature.fit, criterion="ece_mass", grid=np.arange(1, 101) / 10
    ),
}


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What is known of one set of predictions.

    Attributes:
      name: `uncalibrated` or the calibrator's name.
      metrics: `metrics.summary`.
      intervals: 95 % bootstrap intervals `(low, high)` over the examples, of some of the metrics.
      parameters: the calibrator's few numbers, such as its temperature.
      confidence: top-label confidence `[n]`.
      correct: `[n]`.
    """

    name: str
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    parameters: dict[str, list[float]]
    confidence: np.ndarray
    correct: np.ndarray

    def to_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        return {k: v for k, v in fields.items() if k not in ("confidence", "correct")}


def judge(
    test: Predictions,
    validation: Predictions | None = None,
    calibrators: Sequence[str] = (),
    *,
    seed: int = 0,
    num_samples: int = 500,
) -> list[Judgement]:
    """Metrics of the predictions as they are, then after each calibrator.

    Calibrators are fitted on `validation`. Without one the predictions are cut at random in two
    halves and each is calibrated by what was fitted on the other: no example is judged by a calibrator
    that has seen it, and all of them are judged.

    Args:
      test: the predictions to judge.
      validation: predictions on other data, to fit on.
      calibrators: names from `CALIBRATORS`.
      seed: of the halves and the bootstrap.
      num_samples: of the bootstrap.
    """
    check_calibrators(calibrators)
    if validation is not None and validation.num_classes != test.num_classes:
        raise ValueError(
            f"validation has {validation.num_classes} classes, the predictions {test.num_classes}"
        )
    logits, labels = as_jax(test)
    key = jax.random.key(seed)
    results = [_judgement("uncalibrated", logits, labels, {}, key, num_samples)]
    for name in calibrators:
        fit = CALIBRATORS[name]
        if validation is not None:
            fitted = [fit(*as_jax(validation))]
            probs = fitted[0](logits)
        else:
            fitted, probs = _cross_fitted(fit, logits, labels, seed)
        calibrated = posthoc.logits_from_probs(probs)
        results.append(_judgement(name, calibrated, labels, _numbers(fitted), key, num_samples))
    return results


def check_calibrators(names: Sequence[str]) -> None:
    """Raises for a name that is not in `CALIBRATORS`."""
    for name in names:
        if name not in CALIBRATORS:
            raise ValueError(f"calibrate={name!r}: expected some of {', '.join(CALIBRATORS)}")


def _cross_fitted(
    fit: Callable[..., Any], logits: jax.Array, labels: jax.Array, seed: int
) -> tuple[list[Any], jax.Array]:
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


def _judgement(
    name: str,
    logits: jax.Array,
    labels: jax.Array,
    parameters: dict[str, list[float]],
    key: jax.Array,
    num_samples: int,
) -> Judgement:
    confidence, correct = metrics.top_label(logits, labels)
    interval = metrics.bootstrap(_with_intervals, logits, labels, key=key, num_samples=num_samples)
    return Judgement(
        name=name,
        metrics={k: float(v) for k, v in metrics.summary(logits, labels).items()},
        intervals={k: (float(interval.low[k]), float(interval.high[k])) for k in interval.low},
        parameters=parameters,
        confidence=np.asarray(confidence),
        correct=np.asarray(correct),
    )


def _with_intervals(
    logits: jax.Array, labels: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    """The metrics that are cheap enough to be resampled hundreds of times."""
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


def _numbers(fitted: list[Any]) -> dict[str, list[float]]:
    """Scalars and triples of the fitted calibrators, one after the other."""
    names = [f.name for f in dataclasses.fields(fitted[0])]
    values = {n: [np.asarray(getattr(c, n)).ravel() for c in fitted] for n in names}
    return {n: [float(x) for x in np.concatenate(v)] for n, v in values.items() if v[0].size <= 3}
