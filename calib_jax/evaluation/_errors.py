"""Texts that a network gets wrong with high confidence."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from calib_jax import metrics
from calib_jax.evaluation._predictions import Predictions

_MAX_CHARACTERS = 300  # of a text
_NUM_LISTED = 20
_NUM_KEPT = {"test": 2000}  # more than are listed: the errors common to all seeds need their texts


class TextError(TypedDict):
    """A wrong prediction of a text."""

    id: int
    label: str
    predicted: str
    confidence: float
    text: str


def num_kept(split: str) -> int:
    """Return how many errors of a split are saved.

    >>> num_kept("test") > num_kept("another set")
    True
    """
    return _NUM_KEPT.get(split, _NUM_LISTED)


def confident_errors(
    predictions: Predictions,
    ids: np.ndarray,
    label_names: Sequence[str],
    texts: np.ndarray,
    number: int = _NUM_LISTED,
) -> list[TextError]:
    """Return the errors with the highest confidence, the highest first.

    Args:
      predictions: Predictions of a set.
      ids: Ids of its examples `[n]`.
      label_names: Name of each class.
      texts: Texts of its examples `[n]`.
      number: Largest number of errors.

    >>> import numpy as np
    >>> logits = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32)
    >>> predictions = Predictions(logits, np.array([0, 0], np.int32))
    >>> texts = np.array(["fine", "not bad"], object)
    >>> [error["text"] for error in confident_errors(predictions, np.arange(2), ("good", "bad"), texts)]
    ['not bad']
    """
    confidence, correct = map(np.asarray, metrics.top_label(predictions.logits, predictions.labels))
    order = np.argsort(np.where(correct > 0, -1.0, confidence), kind="stable")[::-1]
    wrong = [int(i) for i in order[:number] if not correct[i]]
    predicted = predictions.logits.argmax(axis=1)
    return [
        TextError(
            id=int(ids[i]),
            label=label_names[predictions.labels[i]],
            predicted=label_names[predicted[i]],
            confidence=round(float(confidence[i]), 4),
            text=_truncate(str(texts[i])),
        )
        for i in wrong
    ]


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
