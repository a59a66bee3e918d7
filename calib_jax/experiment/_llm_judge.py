"""Judging a language model by what it says: one class and how sure it is, no other probabilities."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import metrics
from calib_jax.experiment._judge import Judgement
from calib_jax.experiment._llm_answers import Answer


@dataclasses.dataclass(frozen=True)
class LlmJudgement(Judgement):
    """What is known of a model's answers.

    A malformed answer is wrong: `metrics` has accuracy and F1 over all examples, and there it is an
    answer that is none of the classes. It states no confidence: what is measured of the confidence
    is measured over the well-formed answers. So a model gains by no malformed answer.

    Attributes:
      well_formed: accuracy and F1 of the well-formed answers alone.
      malformed: number of malformed answers, by reason.
    """

    well_formed: dict[str, float] = dataclasses.field(default_factory=dict)
    malformed: dict[str, int] = dataclasses.field(default_factory=dict)


def judge_answers(
    name: str,
    answers: Sequence[Answer],
    labels: np.ndarray,
    num_classes: int,
    *,
    seed: int = 0,
    num_samples: int = 500,
) -> LlmJudgement:
    """Accuracy, F1 and calibration errors of answers.

    Args:
      name: of the judgement.
      answers: one per example.
      labels: integers `[n]`.
      num_classes: of the labels.
      seed: of the bootstrap.
      num_samples: of the bootstrap.
    """
    said = np.array([answer.label for answer in answers], np.int32)
    stated = said >= 0
    confidence = np.array([a.confidence for a in answers], np.float32)
    # The column after the classes' own is for what is none of them.
    chosen = jax.nn.one_hot(np.where(stated, said, num_classes), num_classes + 1)
    key = jax.random.key(seed)
    found = _correctness(chosen, labels)
    spans = metrics.bootstrap(_correctness, chosen, labels, key=key, num_samples=num_samples)
    low, high = dict(spans.low), dict(spans.high)
    well_formed = {}
    if stated.any():
        # Malformed answers weigh nothing: seeds that differ in their number share what is compiled.
        arrays = np.where(stated, confidence, 0), said == labels, stated.astype(np.float32)
        found |= _trust(*arrays)
        spans = metrics.bootstrap(_cheap_trust, *arrays, key=key, num_samples=num_samples)
        low, high = low | spans.low, high | spans.high
        well_formed = _correctness(chosen, labels, weights=arrays[2])
    reasons = collections.Counter(answer.malformed for answer in answers if answer.malformed)
    return LlmJudgement(
        name=name,
        metrics=_floats(found),
        intervals={k: (float(low[k]), float(high[k])) for k in low},
        parameters={},
        confidence=confidence[stated],
        correct=(said == labels)[stated],
        well_formed=_floats(well_formed),
        malformed=dict(reasons.most_common()),
    )


@jax.jit
def _correctness(
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
def _trust(
    confidence: jax.Array, correct: jax.Array, stated: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    """What `metrics.summary` has that needs no more than the confidence in the prediction."""
    weights = stated if weights is None else stated * weights
    bins = metrics.bin_stats(confidence, correct, weights=weights)
    return _cheap_trust(confidence, correct, weights) | {
        "confidence": jnp.sum(weights * confidence) / jnp.sum(weights),
        "ece_debiased": metrics.ece_debiased(confidence, correct, weights=weights),
        "ece_sweep": metrics.ece_sweep(confidence, correct, weights=weights),
        "ece_sweep_width": metrics.ece_sweep(confidence, correct, "width", weights=weights),
        "mce": bins.mce(),
        "e_aurc": metrics.e_aurc(confidence, correct, weights=weights),
    }


def _cheap_trust(
    confidence: jax.Array, correct: jax.Array, stated: jax.Array, weights: jax.Array | None = None
) -> dict[str, jax.Array]:
    """The part of it that is cheap enough to be resampled hundreds of times."""
    weights = stated if weights is None else stated * weights
    return {
        "ece": metrics.ece(confidence, correct, weights=weights),
        "ece_10": metrics.ece(confidence, correct, num_bins=10, closed="left", weights=weights),
        "ece_mass": metrics.ece(confidence, correct, scheme="mass", weights=weights),
        "smooth_ece": metrics.smooth_ece(confidence, correct, weights=weights),
        "aurc": metrics.aurc(confidence, correct, weights=weights),
    }


def _floats(values: dict[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in values.items()}
