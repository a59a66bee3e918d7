"""Questions to a language model: which class a text has, and how sure it is of that."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from calib_jax.data import Dataset
from calib_jax.experiment._llm_template import Template, parse_template

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
      template: the user's own prompt, as `parse_template` reads it; empty for the one here.
      schema: whether to ask the server for answers of the right form, by `response_format`.
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
    template: str = ""
    schema: bool = False

    def __post_init__(self) -> None:
        for key, least in (("shots", 0), ("max_chars", 1), ("max_tokens", 1), ("temperature", 0)):
            if not getattr(self, key) >= least:  # not a number is not either
                raise ValueError(f"{key}={getattr(self, key)}: expected at least {least}")
        if not isinstance(self.body, dict):
            raise ValueError(f"body={self.body!r}: expected a JSON object")
        for key in _OWN:
            if key in self.body:
                raise ValueError(f"body: {key!r} is not to be set: expected other fields")
        if self.schema and "response_format" in self.body:
            raise ValueError("body: 'response_format' is not to be set: expected it or --schema")
        if self.template:
            self._template()

    def to_json(self) -> dict[str, Any]:
        """With the wording: answers to other words are other answers."""
        fields = dataclasses.asdict(self)
        del fields["template"]
        if not self.schema:  # as it was before there were schemas: such a run goes on
            del fields["schema"]
        wording = {"wording": self.template or _WORDING, "examples": _EXAMPLES}
        return fields | wording | {"task": self._task()}

    def check(self, dataset: Dataset) -> None:
        """Check that the data set can be asked about in this way."""
        if "text" not in dataset.inputs:
            raise ValueError(f"data set {self.data!r} has no text to ask about")
        if self.template:
            self._template().check(dataset.name, set(dataset.inputs), dataset.label_names)

    def prompt(self, dataset: Dataset, position: int, examples: str = "") -> str:
        """The question about one example; `examples` as `answered_examples` gives them."""
        if self.template:
            return self._template().prompt(self._values(dataset, position), examples)
        return _WORDING.format(
            task=self._task(),
            labels=", ".join(map(_quoted, dataset.label_names)),
            examples=examples,
            fields=self._fields(dataset, position),
        )

    def request(self, prompt: str, label_names: Sequence[str] = ()) -> dict[str, Any]:
        """The body of the HTTP request; the schema of an answer has the names of the classes."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.schema:
            body["response_format"] = _response_format(label_names)
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
        if self.template:
            values = [
                self._values(train, i)
                | {"label": train.label_names[train.labels[i]], "number": str(number)}
                for number, i in enumerate(positions, 1)
            ]
            return self._template().examples_text(values)
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

    def _template(self) -> Template:
        return parse_template(self.template, shots=self.shots, task=self.task)

    def _values(self, dataset: Dataset, i: int) -> dict[str, str]:
        """The values of a template's placeholders; a set without pairs or choices has none of these."""
        names, inputs = dataset.label_names, dataset.inputs
        values = {
            "fields": self._fields(dataset, i),
            "text": inputs["text"][i][: self.max_chars],
            "labels": ", ".join(names),
            "quoted_labels": ", ".join(map(_quoted, names)),
            "numbered_labels": "; ".join(f"{n}. {name}" for n, name in enumerate(names, 1)),
            "task": self._task(),
            "shots": str(self.shots),
        }
        if "pair" in inputs:
            values["pair"] = inputs["pair"][i][: self.max_chars]
        if "choices" in inputs:
            named = zip(names, inputs["choices"][i], strict=True)
            values["choices"] = "\n".join(f"{n}: {text[: self.max_chars]}" for n, text in named)
        return values

    def _fields(self, dataset: Dataset, i: int) -> str:
        """An example's texts as JSON strings, which show where a text ends, whatever it holds."""
        named = [("Text", dataset.inputs["text"][i])]
        if "pair" in dataset.inputs:
            named.append(("Second text", dataset.inputs["pair"][i]))
        if "choices" in dataset.inputs:
            named += zip(dataset.label_names, dataset.inputs["choices"][i], strict=True)
        return "\n".join(f"{name}: {_quoted(text[: self.max_chars])}" for name, text in named)


def fingerprint(content: Any) -> str:
    """Tells whether an answer belongs to a request, or a text is the same."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _response_format(label_names: Sequence[str]) -> dict[str, Any]:
    """The request's field that tells a server which answers are possible."""
    schema = {
        "type": "object",
        "properties": {
            "prediction": {"type": "string", "enum": list(label_names)},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["prediction", "confidence"],
        "additionalProperties": False,
    }
    named = {"name": "answer", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
