"""Questions to a language model: which class a text has, and how sure it is of that."""

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np

from calib_jax.data import Dataset

_EMOTION = "Which emotion does the writer of the text express?"
_SITUATION = "Which emotion did the person feel in the situation that the text tells of?"
_INFERENCE = "If the text is true, what can be said of the second text?"
_TASKS = {
    "goemotions": _EMOTION,
    "dailydialog": _EMOTION,
    "ssec": _EMOTION,
    "emotion_stimulus": _EMOTION,
    "empathetic_dialogues": _SITUATION,
    "isear": _SITUATION,
    "snli": _INFERENCE,
    "mnli": _INFERENCE,
    "qqp": "Do both texts ask the same question?",
    "msrp": "Do both texts say the same?",
    "twitter_ppdb": "Do both texts say the same?",
    "swag": "Which ending continues the text best?",
    "hellaswag": "Which ending continues the text best?",
    "newsgroups": "Which newsgroup was the text sent to?",
}
_OTHER_TASK = "Which class does the text belong to?"
# A single message of the user: not every model's chat template has a system message.
_WORDING = """\
{task} Choose one of these answers: {labels}.

Reply with one JSON object and nothing else, without explanation or code fence:
{{"prediction": <your choice, spelled as above>, "confidence": <the probability that it is right, a \
number from 0 to 1>}}
{examples}
{fields}"""
_EXAMPLES = """
These were answered by people, {shots} for each answer:

{answered}

And this one? Reply with the JSON object.
"""
_OWN = ("model", "messages", "stream", "n")


@dataclasses.dataclass(frozen=True)
class LlmSettings:
    """What the answers depend on, apart from the seed that draws the examples of a prompt.

    Attributes:
      data: name of the set.
      split: that is asked about.
      model: as the server calls it.
      shots: examples per class in a prompt; 0 for a zero-shot prompt.
      task: the question, a sentence; empty for one that suits the set.
      max_chars: of a text; what is longer is cut, and counted.
      temperature: of the server's sampling.
      max_tokens: of an answer.
      body: more fields of the request; one that is `None` is left out of it.
    """

    data: str
    split: str
    model: str
    shots: int = 0
    task: str = ""
    max_chars: int = 8000
    temperature: float = 0.0
    max_tokens: int = 100
    body: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, least in (("shots", 0), ("max_chars", 1), ("max_tokens", 1), ("temperature", 0)):
            if not getattr(self, key) >= least:  # not a number is not either
                raise ValueError(f"{key}={getattr(self, key)}: expected at least {least}")
        if not isinstance(self.body, dict):
            raise ValueError(f"body={self.body!r}: expected a JSON object")
        for key in _OWN:
            if key in self.body:
                raise ValueError(f"body: {key!r} is not to be set: expected other fields")

    def to_json(self) -> dict[str, Any]:
        """With the wording: answers to other words are other answers."""
        wording = {"wording": _WORDING, "examples": _EXAMPLES, "task": self._task()}
        return dataclasses.asdict(self) | wording

    def prompt(self, dataset: Dataset, position: int, examples: str = "") -> str:
        """The question about one example; `examples` as `answered_examples` gives them."""
        return _WORDING.format(
            task=self._task(),
            labels=", ".join(map(_quoted, dataset.label_names)),
            examples=examples,
            fields=self._fields(dataset, position),
        )

    def request(self, prompt: str) -> dict[str, Any]:
        """The body of the HTTP request."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        return {key: value for key, value in (body | self.body).items() if value is not None}

    def draw_examples(self, train: Dataset, asked: Dataset, seed: int) -> np.ndarray:
        """Positions of `shots` training examples of each class, in random order.

        A function of the seed. A text that is asked about as well is no example.
        """
        known = {self._fields(asked, i) for i in range(len(asked))}
        new = np.array([self._fields(train, i) not in known for i in range(len(train))], bool)
        rng = np.random.default_rng(seed)
        drawn = []
        for label, name in enumerate(train.label_names):
            pool = np.flatnonzero((train.labels == label) & new)
            if len(pool) < self.shots:
                raise ValueError(
                    f"shots={self.shots}: expected at most {len(pool)}, "
                    f"as many training examples as {train.name} has of {name!r}"
                )
            drawn.append(rng.choice(pool, self.shots, replace=False))
        return rng.permutation(np.concatenate(drawn))

    def answered_examples(self, train: Dataset, positions: np.ndarray) -> str:
        """Examples with their classes, for `prompt`."""
        answered = [
            f"{self._fields(train, i)}\nAnswer: {_quoted(train.label_names[train.labels[i]])}"
            for i in positions
        ]
        return _EXAMPLES.format(shots=self.shots, answered="\n\n".join(answered))

    def num_cut(self, dataset: Dataset) -> int:
        """Examples with a text longer than `max_chars`."""
        columns = [np.reshape(column, (len(dataset), -1)) for column in dataset.inputs.values()]
        return sum(
            any(len(t) > self.max_chars for c in columns for t in c[i]) for i in range(len(dataset))
        )

    def _task(self) -> str:
        return self.task or _TASKS.get(self.data, _OTHER_TASK)

    def _fields(self, dataset: Dataset, i: int) -> str:
        """An example's texts as JSON strings, which show where a text ends, whatever it holds."""
        named = [("Text", dataset.inputs["text"][i])]
        if "pair" in dataset.inputs:
            named.append(("Second text", dataset.inputs["pair"][i]))
        if "choices" in dataset.inputs:
            named += zip(dataset.label_names, dataset.inputs["choices"][i], strict=True)
        return "\n".join(f"{name}: {_quoted(text[: self.max_chars])}" for name, text in named)


def fingerprint(request: dict[str, Any]) -> str:
    """Tells whether an answer belongs to a request."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
