"""What a user who mistyped a name is told."""

import difflib
from collections.abc import Iterable


def expected_one_of(name: str, names: Iterable[str]) -> str:
    """`expected one of …`, with the one that was probably meant."""
    names = list(names)
    close = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"expected {'one of ' + ', '.join(names) if names else 'none'}{hint}"
