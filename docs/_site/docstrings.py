"""Docstrings as Markdown: examples become code blocks, which they are not without an `Examples` title."""

import re

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Put every `>>>` example of a docstring between code fences."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of an object, after it was read."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    """Return a docstring with its examples as code blocks."""
    return _EXAMPLE.sub(lambda found: _block(found.group(0), found.group(1)), text)


def _block(example: str, indent: str) -> str:
    return f"{indent}```pycon\n{example}\n{indent}```"
