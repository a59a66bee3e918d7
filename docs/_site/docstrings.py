"""Docstrings as Markdown: examples become code blocks, references one line with links."""

import re

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)
_REFERENCES = re.compile(r"^References:\n((?: +\S.*(?:\n|\Z))+)", re.MULTILINE)
_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


class Markdown(griffe.Extension):
    """Rewrite every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change the docstring of an object, after it was read."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Return a docstring with examples between fences and references in one line."""
    text = _EXAMPLE.sub(lambda found: _block(found.group(0), found.group(1)), text)
    text = _REFERENCES.sub(lambda found: f"**References:** {' '.join(found[1].split())}\n", text)
    return _ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def _block(example: str, indent: str) -> str:
    return f"{indent}```pycon\n{example}\n{indent}```"
