"""Metrics of a language model's answers: one class and a stated confidence, no other probabilities."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calib_jax import metrics
from calib_jax.evaluation import Evaluation
from calib_jax.llm._answers import Answer


@dataclasses.dataclass(frozen=True)
class AnswerEvaluation(Evaluation):
    """The metrics of a model's answers.

    A malformed answer is wrong: accuracy and F1 are over all examples, and there it counts as an
    answer that is none of the classes. It states no confidence: the metrics of the confidence are over
    the well-formed answers. So a model gains nothing by malformed answers.

    Attributes:
      well_formed: Accuracy and F1 of the well-formed answers alone.
      malformed: Number of malformed answers, by reason.
      outside_mass: With log-probabilities, the mean and the largest probability of tokens that are no
        label; else empty.
    """

    well_formed: dict[str, float] = dataclasses.field(default_factory=dict)
    malformed: dict[str, int] = dataclasses.field(default_factory=dict)
    outside_mass: dict[str, float] = dataclasses.field(default_factory=dict)


def evaluate_answers(
    name: str,
    answers: Sequence[Answer],
    labels: np.ndarray,
    num_classes: int,
    *,
    seed: int = 0,
    num_samples: int = 500,
) -> AnswerEvaluation:
    """Compute accuracy, F1 and calibration errors of answers.

    Args:
      name: Name of the evaluation.
      answers: One answer per example.
      labels: Integers `[n]`.
      num_classes: Number of classes.
      seed: Seed of the bootstrap.
      num_samples: Number of bootstrap samples.

    >>> import numpy as np
    >>> answers = [Answer(0, 0.9), Answer(1, 0.6), Answer(-1, float("nan"), "not JSON")]
    >>> evaluation = evaluate_answers("model", answers, np.array([0, 1, 1]), 2, num_samples=4)
    >>> round(evaluation.metrics["accuracy"], 3), evaluation.malformed
    (0.667, {'not JSON': 1})
    """
    predicted = np.array([answer.label for answer in answers], np.int32)
    is_stated = predicted >= 0
    confidence = np.array([a.confidence for a in answers], np.float32)
    # The column after those of the classes is for answers that are none of them.
    chosen = jax.nn.one_hot(np.where(is_stated, predicted, num_classes), num_classes + 1)
    key = jax.random.key(seed)
    values = _accuracy_metrics(chosen, labels)
    spans = metrics.bootstrap(_accuracy_metrics, chosen, labels, key=key, num_samples=num_samples)
    low, high = dict(spans.low), dict(spans.high)
    well_formed = {}
    if is_stated.any():
        # Malformed answers have weight 0: seeds that differ in their number share compiled programs.
        weights = is_stated.astype(np.float32)
        arrays = np.where(is_stated, confidence, 0), predicted == labels, weights
        values |= _confidence_metrics(*arrays)
        spans = metrics.bootstrap(
            _resampled_confidence_metrics, *arrays, key=key, num_samples=num_samples
        )
        low, high = low | spans.low, high | spans.high
        well_formed = _accuracy_metrics(chosen, labels, weights=weights)
    reasons = collections.Counter(answer.malformed for answer in answers if answer.malformed)
    return AnswerEvaluation(
        name=name,
        metrics=_floats(values),
        intervals={k: (float(low[k]), float(high[k])) for k in low},
        parameters={},
        confidence=confidence[is_stated],
        correct=(predicted == labels)[is_stated],
        well_formed=_floats(well_formed),
        malformed=dict(reasons.most_common()),
    )


@jax.jit
def _accuracy_metrics(
    chosen: jax.Array, labels: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    columns = chosen.shape[1]
    return {
        "accuracy": metrics.accuracy(chosen, labels, weights=weights),
        # No example has the last column's label: it scores 0 and is taken out of the mean again.
        "f1_macro": metrics.f1(chosen, labels, weights=weights) * columns / (columns - 1),
        "f1_weighted": metrics.f1(chosen, labels, "weighted", weights=weights),
    }


@jax.jit
def _confidence_metrics(
    confidence: jax.Array, correct: jax.Array, stated: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    """Compute the metrics of `metrics.summary` that need only the confidence in the prediction."""
    weights = stated if weights is None else stated * weights
    bins = metrics.bin_stats(confidence, correct, weights=weights)
    return _resampled_confidence_metrics(confidence, correct, weights) | {
        "confidence": jnp.sum(weights * confidence) / jnp.sum(weights),
        # Not confidence less accuracy, in which malformed answers count as wrong.
        "gap": jnp.sum(weights * (confidence - correct)) / jnp.sum(weights),
        "ece_debiased": metrics.ece_debiased(confidence, correct, weights=weights),
        "ece_sweep": metrics.ece_sweep(confidence, correct, weights=weights),
        "ece_sweep_width": metrics.ece_sweep(confidence, correct, "width", weights=weights),
        "mce": bins.mce(),
        "e_aurc": metrics.e_aurc(confidence, correct, weights=weights),
    }


def _resampled_confidence_metrics(
    confidence: jax.Array, correct: jax.Array, stated: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    """Compute those that are cheap enough to be resampled hundreds of times."""
    weights = stated if weights is None else stated * weights
    return {
        "ece": metrics.ece(confidence, correct, weights=weights),
        "ece_10": metrics.ece(confidence, correct, num_bins=10, closed="left", weights=weights),
        "ece_mass": metrics.ece(confidence, correct, scheme="mass", weights=weights),
        "smooth_ece": metrics.smooth_ece(confidence, correct, weights=weights),
        "aurc": metrics.aurc(confidence, correct, weights=weights),
    }


def _floats(values: Mapping[str, ArrayLike]) -> dict[str, float]:
    return {key: float(np.asarray(value)) for key, value in values.items()}
