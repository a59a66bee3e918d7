"""Examples that a network gets wrong with great confidence, in words that can be read."""

from typing import Any

import numpy as np

from calib_jax import metrics
from calib_jax.data import Dataset
from calib_jax.evaluation import Predictions

_LONGEST = 300  # characters of a text
_KEPT = {
    "test": 2000
}  # of the test set more than are listed: those common to all seeds need their texts
_LISTED = 20


def num_kept(split: str) -> int:
    """How many errors of a split are written down."""
    return _KEPT.get(split, _LISTED)


def confident_errors(
    predictions: Predictions, part: Dataset, texts: np.ndarray, number: int = _LISTED
) -> list[dict[str, Any]]:
    """The errors with the highest confidence, the highest first.

    Args:
      predictions: of the set.
      part: the set.
      texts: of its examples `[n]`.
      number: at most so many.
    """
    confidence, correct = map(np.asarray, metrics.top_label(predictions.logits, predictions.labels))
    order = np.argsort(np.where(correct > 0, -1.0, confidence), kind="stable")[::-1]
    wrong = [int(i) for i in order[:number] if not correct[i]]
    predicted = predictions.logits.argmax(axis=1)
    return [
        {
            "id": int(part.ids[i]),
            "label": part.label_names[predictions.labels[i]],
            "predicted": part.label_names[predicted[i]],
            "confidence": round(float(confidence[i]), 4),
            "text": _cut(str(texts[i])),
        }
        for i in wrong
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
