"""Prompts: which class does a text have, and how confident is the model?"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np

from calib_jax._hints import check_choice
from calib_jax.data import Dataset
from calib_jax.llm._client import JsonObject
from calib_jax.llm._logprobs import LETTERS, TOP_LOGPROBS, lettered
from calib_jax.llm._template import Template, parse_template

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
# With log-probabilities the answer is the letter of a class: one token.
_LETTER_WORDING = """\
{task} These are the possible answers:

{labels}

Reply with the letter of one answer and nothing else.
{examples}
{fields}"""
_LETTER_EXAMPLES = """
These were answered by people, {shots} for each answer:

{answered}

And this one? Reply with the letter.
"""
_RESERVED = ("model", "messages", "stream", "n")
_LOGPROBS_BODY: JsonObject = {
    "max_tokens": 1,
    "temperature": 1.0,  # the token drawn is not used; some servers scale log-probabilities by it
    "logprobs": True,
    "top_logprobs": TOP_LOGPROBS,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything the answers depend on, except the seed that draws the examples of a prompt.

    Attributes:
      data: Name of the data set.
      split: Split to ask about.
      model: Name of the model on the server.
      shots: Training examples per class in a prompt; 0 for a zero-shot prompt.
      task: Question, a sentence; empty for the default of the data set.
      max_chars: Longest text, in characters; longer ones are cut, and counted.
      temperature: Temperature of the server's sampling.
      max_tokens: Longest answer, in tokens.
      body: More fields of the request; one that is `None` is left out of it.
      template: Custom prompt, as `parse_template` reads it; empty for the built-in one.
      schema: Whether to ask the server for answers of the right form, by `response_format`.
      confidence: `'stated'`, a number in the answer, or `'logprobs'`, the probability of its letter;
        then `temperature` and `max_tokens` are 1.
    """

    data: str
    split: str
    model: str
    shots: int = 0
    task: str = ""
    max_chars: int = 8000
    temperature: float = 0.0
    max_tokens: int = 100
    body: JsonObject = dataclasses.field(default_factory=dict)
    template: str = ""
    schema: bool = False
    confidence: str = "stated"

    def __post_init__(self) -> None:
        for key, least in (("shots", 0), ("max_chars", 1), ("max_tokens", 1), ("temperature", 0)):
            if not getattr(self, key) >= least:  # NaN fails too
                raise ValueError(f"{key}={getattr(self, key)}: expected at least {least}")
        if not isinstance(self.body, dict):
            raise ValueError(f"body={self.body!r}: expected a JSON object")
        for key in _RESERVED:
            if key in self.body:
                raise ValueError(f"body: {key!r} is not to be set: expected other fields")
        if self.schema and "response_format" in self.body:
            raise ValueError("body: 'response_format' is not to be set: expected it or --schema")
        check_choice("confidence", self.confidence, ("stated", "logprobs"))
        if self.schema and self.uses_logprobs:
            raise ValueError("schema: expected confidence='stated': an answer here is one letter")
        if self.template:
            self._template()

    @property
    def uses_logprobs(self) -> bool:
        """Whether the confidence is read from log-probabilities."""
        return self.confidence == "logprobs"

    def to_json(self) -> JsonObject:
        """Return all fields and the wording: answers to other words are other answers."""
        fields = dataclasses.asdict(self)
        del fields["template"]
        # As in runs from before there were these two, so that they resume.
        if not self.schema:
            del fields["schema"]
        if not self.uses_logprobs:
            del fields["confidence"]
        wording, examples = self._wordings()
        return fields | {
            "wording": self.template or wording,
            "examples": examples,
            "task": self._task(),
        }

    def check(self, dataset: Dataset) -> None:
        """Raise a ValueError for a data set that cannot be asked about in this way."""
        if "text" not in dataset.inputs:
            raise ValueError(f"data set {self.data!r} has no text to ask about")
        if self.template:
            self._template().check(dataset.name, set(dataset.inputs), dataset.label_names)
        if self.uses_logprobs and len(dataset.label_names) > len(LETTERS):
            raise ValueError(
                f"confidence='logprobs': expected at most {len(LETTERS)} classes, a letter for each; "
                f"{self.data} has {len(dataset.label_names)}"
            )

    def prompt(self, dataset: Dataset, position: int, examples: str = "") -> str:
        """Return the question about one example; `examples` as `answered_examples` returns them."""
        if self.template:
            return self._template().prompt(self._values(dataset, position), examples)
        labels = ", ".join(map(_quoted, dataset.label_names))
        if self.uses_logprobs:
            labels = lettered(dataset.label_names)
        return self._wordings()[0].format(
            task=self._task(),
            labels=labels,
            examples=examples,
            fields=self._fields(dataset, position),
        )

    def request(self, prompt: str, label_names: Sequence[str] = ()) -> JsonObject:
        """Return the body of the HTTP request; the schema of an answer has the class names."""
        body: JsonObject = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        if self.schema:
            body["response_format"] = _response_format(label_names)
        if self.uses_logprobs:
            body |= _LOGPROBS_BODY
        return {key: value for key, value in (body | self.body).items() if value is not None}

    def draw_examples(self, train: Dataset, asked: Dataset, seed: int) -> np.ndarray:
        """Draw the positions of `shots` training examples of each class, in random order.

        Args:
          train: Training split.
          asked: Split to ask about; a text that occurs in it is not drawn.
          seed: Seed; the same one draws the same examples.
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
        """Return training examples with their classes as text, for `prompt`."""
        if self.template:
            values = [
                self._values(train, i)
                | {
                    "label": train.label_names[train.labels[i]],
                    "letter": LETTERS[train.labels[i] : train.labels[i] + 1],
                    "number": str(number),
                }
                for number, i in enumerate(positions, 1)
            ]
            return self._template().examples_text(values)
        answers = [_quoted(name) for name in train.label_names]
        if self.uses_logprobs:
            answers = list(LETTERS)
        answered = [
            f"{self._fields(train, i)}\nAnswer: {answers[train.labels[i]]}" for i in positions
        ]
        return self._wordings()[1].format(shots=self.shots, answered="\n\n".join(answered))

    def num_cut(self, dataset: Dataset) -> int:
        """Return the number of examples with a text longer than `max_chars`."""
        columns = [np.reshape(column, (len(dataset), -1)) for column in dataset.inputs.values()]
        return sum(
            any(len(t) > self.max_chars for c in columns for t in c[i]) for i in range(len(dataset))
        )

    def _wordings(self) -> tuple[str, str]:
        """Return the built-in texts of a prompt and of its examples."""
        if self.uses_logprobs:
            return _LETTER_WORDING, _LETTER_EXAMPLES
        return _WORDING, _EXAMPLES

    def _task(self) -> str:
        return self.task or _TASKS.get(self.data, _OTHER_TASK)

    def _template(self) -> Template:
        return parse_template(
            self.template, shots=self.shots, task=self.task, letters=self.uses_logprobs
        )

    def _values(self, dataset: Dataset, i: int) -> dict[str, str]:
        """Return the values of a template's placeholders; `pair` and `choices` if the set has them."""
        names, inputs = dataset.label_names, dataset.inputs
        values = {
            "fields": self._fields(dataset, i),
            "text": inputs["text"][i][: self.max_chars],
            "labels": ", ".join(names),
            "quoted_labels": ", ".join(map(_quoted, names)),
            "numbered_labels": "; ".join(f"{n}. {name}" for n, name in enumerate(names, 1)),
            "lettered_labels": lettered(names),
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
        """Return an example's texts as JSON strings, which show where a text ends."""
        named = [("Text", dataset.inputs["text"][i])]
        if "pair" in dataset.inputs:
            named.append(("Second text", dataset.inputs["pair"][i]))
        if "choices" in dataset.inputs:
            named += zip(dataset.label_names, dataset.inputs["choices"][i], strict=True)
        return "\n".join(f"{name}: {_quoted(text[: self.max_chars])}" for name, text in named)


def fingerprint(content: object) -> str:
    """Return a hash that tells whether an answer belongs to a request, or a text is the same.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _response_format(label_names: Sequence[str]) -> JsonObject:
    """Return the field of the request that tells a server which answers are possible."""
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
