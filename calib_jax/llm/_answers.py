"""Parsing of answers: `{"prediction": …, "confidence": …}`, exactly or nearly."""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple


class Answer(NamedTuple):
    """An answer, read strictly or leniently.

    Attributes:
      label: Index of the class; -1 if the answer is malformed.
      confidence: Confidence that the model states; NaN if the answer is malformed.
      malformed: Reason why it is, or empty.
    """

    label: int
    confidence: float
    malformed: str = ""


def parse_answer(content: str | None, finish: str, label_names: Sequence[str]) -> Answer:
    """Parse a model's message strictly.

    Only white space may surround the object, which has the two fields once each and no other. The
    prediction is exactly the name of a class, the confidence a number from 0 to 1, not a string.

    Args:
      content: Text of the message; `None` if it has none.
      finish: Reason for which the model stopped, as the server says.
      label_names: Names of the classes.

    >>> parse_answer('{"prediction": "joy", "confidence": 0.75}', "stop", ["anger", "joy"])
    Answer(label=1, confidence=0.75, malformed='')
    """
    if not isinstance(content, str) or not content.strip():
        return malformed_answer("empty")
    try:
        pairs = json.loads(content, object_pairs_hook=_Pairs, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        if finish == "length":
            return malformed_answer("cut off at max_tokens")
        return malformed_answer("extra text" if _has_object(content) else "not JSON")
    if not isinstance(pairs, _Pairs) or sorted(key for key, _ in pairs) != _FIELDS:
        return malformed_answer("other fields")
    fields = dict(pairs)
    label, confidence = fields["prediction"], fields["confidence"]
    if not isinstance(label, str) or label not in label_names:
        return malformed_answer("unknown label")
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        return malformed_answer("confidence is no number")
    if not 0 <= confidence <= 1:
        return malformed_answer("confidence outside [0, 1]")
    return Answer(list(label_names).index(label), float(confidence))


def parse_answer_leniently(content: str | None, finish: str, label_names: Sequence[str]) -> Answer:
    """Parse a model's message whose meaning is plain, though its form is not what was asked for.

    Text and code fences may surround the object, which may be a Python dict as well (single quotes,
    names without quotes, a comma at the end) and have other fields. The prediction may differ from a
    class's name in capital letters, the confidence may be a string that holds a number. Several objects
    count only if they say the same. Nothing is evaluated: the object's syntax tree is read.

    Args:
      content: Text of the message; `None` if it has none.
      finish: Reason for which the model stopped, as the server says.
      label_names: Names of the classes.

    >>> message = "I think {'prediction': 'Joy', 'confidence': '0.75'}"
    >>> parse_answer_leniently(message, "stop", ["anger", "joy"])
    Answer(label=1, confidence=0.75, malformed='')
    """
    strict = parse_answer(content, finish, label_names)
    if not strict.malformed or not isinstance(content, str):
        return strict
    objects = [text for text in _FLAT_OBJECT.findall(content) if "prediction" in text.lower()]
    read = [_read_fields(pairs, label_names) for pairs in map(_pairs, objects) if pairs]
    answers = {answer for answer in read if not answer.malformed}
    if len(answers) > 1:
        return malformed_answer("several answers")
    if answers:
        return answers.pop()
    return read[0] if read else strict


_FIELDS = ["confidence", "prediction"]
_FLAT_OBJECT = re.compile(r"\{[^{}]*\}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class _Pairs(list):
    """The fields of an object, including repeated ones."""


def malformed_answer(reason: str) -> Answer:
    """Return an answer without label and confidence."""
    return Answer(-1, float("nan"), reason)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # though Python takes it


def _has_object(content: str) -> bool:
    """Return whether the text holds an object, so that only the rest is too much."""
    start = content.find("{")
    if start < 0:
        return False
    try:
        json.JSONDecoder(object_pairs_hook=_Pairs).raw_decode(content, start)
    except (ValueError, RecursionError):
        return False
    return True


def _pairs(text: str) -> list[tuple[object, object]] | None:
    """Return the keys and values of a JSON object or Python dict; `None` if it is neither."""
    try:
        return json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in a model's strings
            tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.Dict):
        return None
    return [(_plain(k), _plain(v)) for k, v in zip(tree.keys, tree.values, strict=True)]


def _plain(node: ast.expr | None) -> object:
    """Return the value of a constant, or a name as a string; `None` for all other syntax."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _plain(node.operand)
        return -number if isinstance(number, int | float) else None
    if isinstance(node, ast.Name):
        return node.id
    return node.value if isinstance(node, ast.Constant) else None


def _read_fields(pairs: Sequence[tuple[object, object]], label_names: Sequence[str]) -> Answer:
    named = [(key.strip().lower(), value) for key, value in pairs if isinstance(key, str)]
    named = [(key, value) for key, value in named if key in _FIELDS]
    if sorted(key for key, _ in named) != _FIELDS:
        return malformed_answer("other fields")
    fields = dict(named)
    label = _label(fields["prediction"], label_names)
    if label is None:
        return malformed_answer("unknown label")
    confidence = fields["confidence"]
    if isinstance(confidence, str) and _NUMBER.fullmatch(confidence.strip()):
        confidence = float(confidence)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        return malformed_answer("confidence is no number")
    if not 0 <= confidence <= 1:
        return malformed_answer("confidence outside [0, 1]")
    return Answer(label, float(confidence))


def _label(name: object, label_names: Sequence[str]) -> int | None:
    """Return the index of the class of that name, whatever its case, if there is just one."""
    if not isinstance(name, str):
        return None
    if name in label_names:
        return list(label_names).index(name)
    same = [i for i, n in enumerate(label_names) if n.casefold() == name.strip().casefold()]
    return same[0] if len(same) == 1 else None
