"""Out-of-distribution detection: does the network's doubt tell another set from the test set?"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from calib_jax import metrics
from calib_jax.experiment._judge import Judgement
from calib_jax.experiment._predictions import Predictions


def detect(
    inside: Predictions, outside: Predictions, judgements: Sequence[Judgement]
) -> dict[str, dict[str, dict[str, float]]]:
    """How well entropy and confidence tell two sets apart, before and after temperature scaling.

    Outside examples are the positives, as in the paper's ROC curves: `fpr95` is the share of inside
    examples that raise a false alarm where 95 % of the outside ones are found.

    Args:
      inside: predictions on the test set.
      outside: predictions on the other set.
      judgements: of the test set; the first by a calibrator `temperature…` gives the temperature.

    Returns:
      `{"entropy" | "confidence": {"before" | "after": {"auroc": …, "fpr95": …}}}`; no `after` without
      such a calibrator.
    """
    logits = np.concatenate([inside.logits, outside.logits])
    is_outside = np.arange(len(logits)) >= len(inside.labels)
    found: dict[str, Any] = {"entropy": {}, "confidence": {}}
    temperatures = {"before": 1.0}
    for judgement in judgements:
        if judgement.name.startswith("temperature"):
            temperatures["after"] = judgement.parameters["temperature"][0]
            break
    for when, temperature in temperatures.items():
        for name, doubt in _doubts(logits / temperature).items():
            found[name][when] = {
                "auroc": float(metrics.auroc(doubt, is_outside)),
                "fpr95": float(metrics.fpr_at_tpr(doubt, is_outside, 0.95)),
            }
    return found


def _doubts(logits: np.ndarray) -> dict[str, jax.Array]:
    confidence, _ = metrics.top_label(logits, np.zeros(len(logits), np.int32))
    return {"entropy": metrics.predictive_entropy(logits), "confidence": -confidence}
