"""What a language model may answer: `{"prediction": …, "confidence": …}` and nothing else."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """An answer, read strictly.

    Attributes:
      label: number of the class; -1 if the answer is malformed.
      confidence: that the model states; not a number if the answer is malformed.
      malformed: why it is, or empty.
    """

    label: int
    confidence: float
    malformed: str = ""


def parse_answer(content: Any, finish: str, label_names: Sequence[str]) -> Answer:
    """Reads what a model has written.

    Only white space may surround the object, which has the two fields once each and no other. The
    prediction is a class's name to the letter, the confidence a number from 0 to 1, not a string.

    Args:
      content: of the message.
      finish: why the model stopped, as the server says.
      label_names: one per class.
    """
    if not isinstance(content, str) or not content.strip():
        return _malformed("empty")
    try:
        pairs = json.loads(content, object_pairs_hook=_Pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if finish == "length":
            return _malformed("cut off at max_tokens")
        return _malformed("extra text" if _has_object(content) else "not JSON")
    if not isinstance(pairs, _Pairs) or sorted(key for key, _ in pairs) != _FIELDS:
        return _malformed("other fields")
    fields = dict(pairs)
    label, confidence = fields["prediction"], fields["confidence"]
    if not isinstance(label, str) or label not in label_names:
        return _malformed("unknown label")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        return _malformed("confidence is no number")
    if not 0 <= confidence <= 1:
        return _malformed("confidence outside [0, 1]")
    return Answer(list(label_names).index(label), float(confidence))


_FIELDS = ["confidence", "prediction"]


class _Pairs(list):
    """The fields of an object, repeated ones too."""


def _malformed(why: str) -> Answer:
    return Answer(-1, float("nan"), why)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # though Python takes it


def _has_object(content: str) -> bool:
    """Whether there is an object in the text, so that only the rest is too much."""
    start = content.find("{")
    if start < 0:
        return False
    try:
        json.JSONDecoder(object_pairs_hook=_Pairs).raw_decode(content, start)
    except (ValueError, RecursionError):
        return False
    return True
