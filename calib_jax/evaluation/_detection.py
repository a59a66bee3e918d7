"""Out-of-distribution detection: does a network's doubt tell another data set from the test set?"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from calib_jax import metrics
from calib_jax.evaluation._evaluate import Evaluation
from calib_jax.evaluation._predictions import Predictions


def detect(
    inside: Predictions, outside: Predictions, evaluations: Sequence[Evaluation]
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure how well entropy and confidence tell two sets apart, before and after scaling.

    Outside examples are the positives, as in the paper's ROC curves: `fpr95` is the fraction of inside
    examples that raise a false alarm at the threshold that detects 95 % of the outside ones.

    Args:
      inside: Predictions on the test set.
      outside: Predictions on the other set.
      evaluations: Evaluations of the test set; the first of a calibrator `temperature…` gives the
        temperature.

    Returns:
      `{"entropy" | "confidence": {"before" | "after": {"auroc": …, "fpr95": …}}}`; no `after` without
      such a calibrator.

    >>> import numpy as np
    >>> labels = np.zeros(2, np.int32)
    >>> sure = Predictions(np.array([[4.0, 0.0], [0.0, 3.0]], np.float32), labels)
    >>> unsure = Predictions(np.array([[1.0, 0.0], [0.0, 2.0]], np.float32), labels)
    >>> detect(sure, unsure, [])["entropy"]["before"]["auroc"]
    1.0
    """
    logits = np.concatenate([inside.logits, outside.logits])
    is_outside = np.arange(len(logits)) >= len(inside.labels)
    temperatures = {"before": 1.0}
    for evaluation in evaluations:
        if evaluation.name.startswith("temperature"):
            temperatures["after"] = evaluation.parameters["temperature"][0]
            break
    detection: dict[str, Any] = {"entropy": {}, "confidence": {}}
    for when, temperature in temperatures.items():
        for name, doubt in _doubts(logits / temperature).items():
            detection[name][when] = {
                "auroc": float(metrics.auroc(doubt, is_outside)),
                "fpr95": float(metrics.fpr_at_tpr(doubt, is_outside, 0.95)),
            }
    return detection


def _doubts(logits: np.ndarray) -> dict[str, jax.Array]:
    confidence, _ = metrics.top_label(logits, np.zeros(len(logits), np.int32))
    return {"entropy": metrics.predictive_entropy(logits), "confidence": -confidence}
