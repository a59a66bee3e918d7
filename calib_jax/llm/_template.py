"""Custom prompts: a text with placeholders for the texts of an example and for the classes."""

import os
import pathlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from calib_jax._hints import expected_one_of

# Other braces belong to the text, such as those of the JSON object that a prompt asks for.
_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")
_TEXTS = ("text", "pair", "choices", "fields")  # of an example
_LABELS = ("labels", "quoted_labels", "numbered_labels", "lettered_labels")
_SHARED = (*_LABELS, "task", "shots")
_OPEN, _CLOSE = "examples", "end_examples"


class Template(NamedTuple):
    """A prompt with placeholders.

    `{name}` is replaced by a value, `{{name}}` is the text `{name}`, and all other braces stay as they
    are. What is between `{examples}` and `{end_examples}` is repeated for each example of the prompt.

    Attributes:
      body: Text, with `{examples}` where the examples go.
      example: Text for one of the examples; `None` if the prompt has none.
    """

    body: str
    example: str | None

    def prompt(self, values: Mapping[str, str], examples: str = "") -> str:
        """Return the prompt for one example, with `examples` from `examples_text`."""
        return _fill(self.body, {**values, _OPEN: examples})

    def examples_text(self, values: list[dict[str, str]]) -> str:
        """Return the section of the examples, each filled with its values."""
        return "".join(_fill(self.example or "", value) for value in values)

    def check(self, name: str, texts: set[str], label_names: tuple[str, ...]) -> None:
        """Check that the prompt shows all texts of a data set, and its classes.

        Args:
          name: Name of the data set.
          texts: Fields that an example of it has, of "text", "pair" and "choices".
          label_names: Names of the classes.
        """
        for section in (self.body, self.example or "{fields}"):
            used = _names(section)
            for key in ("text", "pair", "choices"):
                if key in texts and not used & {key, "fields"}:
                    where = "in the prompt" if section == self.body else "for each example"
                    raise ValueError(f"prompt: expected {{{key}}} or {{fields}} {where}")
                if key in used - texts:
                    raise ValueError(f"prompt: {{{key}}} is not to be used: {name} has no {key}")
        words = [(name, rf"(?<!\w){re.escape(name)}(?!\w)") for name in label_names]
        missing = [name for name, word in words if not re.search(word, self.body, re.IGNORECASE)]
        if missing and not _names(self.body) & set(_LABELS):
            shown = ", ".join(f"{{{key}}}" for key in _LABELS)
            raise ValueError(
                f"prompt: expected {shown} or every class by its name; {missing[0]!r} is missing"
            )


def read_template(path: str | os.PathLike[str]) -> str:
    """Return the text of a prompt file, without the line break at its end; empty for no path.

    >>> read_template("")
    ''
    """
    if not path:
        return ""
    try:
        text = pathlib.Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ValueError(f"prompt={str(path)!r}: expected a text file ({reason})") from None
    if not text.strip():
        raise ValueError(f"prompt={str(path)!r}: expected a text file (it is empty)")
    return text.removesuffix("\n")


def parse_template(text: str, *, shots: int = 0, task: str = "", letters: bool = False) -> Template:
    """Parse a prompt with placeholders.

    Args:
      text: Text of the prompt.
      shots: Number of examples per class that it has to show.
      task: Custom question, which it has to show; empty for none.
      letters: Whether it has to show the letters of the classes.
    """
    template = _split_examples(text)
    for section, known in (
        (template.body, (*_TEXTS, *_SHARED, _OPEN)),
        (template.example or "", (*_TEXTS, *_SHARED, "label", "letter", "number")),
    ):
        for name in sorted(_names(section) - set(known)):
            raise ValueError(
                f"prompt: unknown placeholder {{{name}}}: {expected_one_of(name, known)} "
                f"({{{{{name}}}}} is the text {{{name}}})"
            )
    if shots and template.example is None:
        raise ValueError(
            f"prompt: expected {{{_OPEN}}} … {{{_CLOSE}}}, to show the examples of shots={shots}"
        )
    if not shots and template.example is not None:
        raise ValueError(f"prompt: {{{_OPEN}}} is not to be used: expected --shots above 0 with it")
    if task and "task" not in _names(template.body):
        raise ValueError(f"prompt: expected {{task}}, as task={task!r} is given")
    if letters and "lettered_labels" not in _names(template.body):
        raise ValueError("prompt: expected {lettered_labels}, as confidence='logprobs' is given")
    return template


def _split_examples(text: str) -> Template:
    """Return the text and its section of examples, if it has one."""
    marks = [m for m in _PLACEHOLDER.finditer(text) if m[2] in (_OPEN, _CLOSE)]
    if not marks:
        return Template(text, None)
    if [m[2] for m in marks] != [_OPEN, _CLOSE]:
        raise ValueError(f"prompt: expected {{{_OPEN}}} once, and after it {{{_CLOSE}}} once")
    before, after = text[: marks[0].start()], text[marks[1].end() :]
    example = text[marks[0].end() : marks[1].start()]
    # A mark that ends its line leaves no empty line.
    body = f"{before}{{{_OPEN}}}" + after.removeprefix("\n")
    return Template(body, example.removeprefix("\n"))


def _names(text: str) -> set[str]:
    return {m[2] for m in _PLACEHOLDER.finditer(text) if m[2]}


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace all placeholders at once: a text that holds one is not searched for it."""
    return _PLACEHOLDER.sub(lambda m: f"{{{m[1]}}}" if m[1] else values[m[2]], text)
