"""Confidence from log-probabilities: the answer is one letter, scored by the server's `top_logprobs`."""

import math
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

from calib_jax.llm._answers import Answer, malformed_answer

LETTERS = string.ascii_uppercase
TOP_LOGPROBS = 20  # the most that chat-completions servers return
TopLogprobs = list[tuple[str, float]]  # tokens and their natural log-probabilities


class LabelScores(NamedTuple):
    """Probabilities of the labels.

    Attributes:
      probs: Probability of each label, which sum to 1; all NaN if no label is among the top tokens.
      outside: Probability of all tokens that are no label's letter; 1 if no label is among them.
    """

    probs: tuple[float, ...]
    outside: float


def read_top_logprobs(choice: dict[str, Any]) -> TopLogprobs | None:
    """Return the most likely first tokens of a response; `None` if it does not have them.

    Args:
      choice: First entry of `choices` in a chat completion.
    """
    try:
        first = choice["logprobs"]["content"][0]["top_logprobs"]
        tokens = [(str(entry["token"]), float(entry["logprob"])) for entry in first]
    except (LookupError, TypeError, ValueError):
        return None
    return tokens or None


def score_labels(top_logprobs: TopLogprobs | None, num_labels: int) -> LabelScores:
    """Return the labels' probabilities, renormalized over the labels.

    The probability of a label is the sum over the tokens that are its letter, with or without white
    space. A label that is not among the top tokens has probability 0: it is less likely than all of them.

    Args:
      top_logprobs: Most likely first tokens, with log-probabilities.
      num_labels: Number of labels, at most 26.

    >>> tokens = [("A", math.log(0.5)), (" A", math.log(0.1)), ("B", math.log(0.2)), ("I", -3.0)]
    >>> [round(p, 3) for p in score_labels(tokens, num_labels=2).probs]
    [0.75, 0.25]
    """
    mass = dict.fromkeys(LETTERS[:num_labels], 0.0)
    for token, logprob in top_logprobs or ():
        letter = token.strip()
        if letter in mass and not math.isnan(logprob):
            mass[letter] += math.exp(min(logprob, 0.0))
    total = sum(mass.values())
    if total == 0:
        return LabelScores((math.nan,) * num_labels, 1.0)
    return LabelScores(tuple(m / total for m in mass.values()), max(0.0, 1.0 - total))


def answer_from_scores(scores: LabelScores) -> Answer:
    """Return the most likely label with its renormalized probability as the confidence.

    >>> answer_from_scores(LabelScores((0.25, 0.75), outside=0.1))
    Answer(label=1, confidence=0.75, malformed='')
    """
    confidence = max(scores.probs)
    if math.isnan(confidence):
        return malformed_answer("no label among the top tokens")
    return Answer(scores.probs.index(confidence), confidence)


def lettered(label_names: Sequence[str]) -> str:
    """Return the classes with their letters, a line for each.

    >>> print(lettered(["anger", "joy"]))
    A. anger
    B. joy
    """
    return "\n".join(f"{a}. {name}" for a, name in zip(LETTERS, label_names, strict=False))
