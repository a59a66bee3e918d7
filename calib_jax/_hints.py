"""Parts of error messages: the names that were expected, and what two settings disagree about."""

import difflib
from collections.abc import Iterable


def expected_one_of(name: str, names: Iterable[str]) -> str:
    """Return `expected one of …` with a hint at the name that was probably meant.

    Args:
      name: Name that was given.
      names: Names that are known.
    """
    names = list(names)
    listed = "one of " + ", ".join(names) if names else "none"
    return f"expected {listed}{did_you_mean(name, names)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint at the name that was probably meant, or an empty string.

    Args:
      name: Name that was given.
      names: Names that are known.
    """
    close = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_choice(key: str, name: str, names: Iterable[str]) -> None:
    """Raise a ValueError unless a name is a known one.

    Args:
      key: Argument that has the name.
      name: Name that was given.
      names: Names that are known.
    """
    names = list(names)
    if name not in names:
        raise ValueError(f"{key}={name!r}: {expected_one_of(str(name), names)}")


def differences(old: object, new: object, path: str = "config") -> list[str]:
    """Return what two configs, as nested dicts, disagree about, one line each.

    Args:
      old: Config that is stored.
      new: Config that is given now.
      path: Name of the config in the lines.
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [f"{path}: {old!r} there, {new!r} now"]
    lines = []
    for key in sorted(old.keys() | new.keys()):
        missing = "(not set)"
        lines += differences(old.get(key, missing), new.get(key, missing), f"{path}.{key}")
    return lines
