"""Methods by name."""

import difflib
import inspect
from typing import Any

from calib_jax.methods._base import Method
from calib_jax.methods._objectives import OBJECTIVES
from calib_jax.methods._supervised import supervised

NAMES = tuple(OBJECTIVES)


def create(name: str, **options: Any) -> Method:
    """A method by name.

    Args:
      name: one of `NAMES`.
      **options: see `options(name)`.
    """
    check_name(name)
    return supervised(OBJECTIVES[name](**options))


def options(name: str) -> dict[str, Any]:
    """The options of a method with their defaults."""
    check_name(name)
    parameters = inspect.signature(OBJECTIVES[name]).parameters
    return {key: parameter.default for key, parameter in parameters.items()}


def check_name(name: str) -> None:
    if name not in NAMES:
        close = difflib.get_close_matches(name, NAMES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"method={name!r}: expected one of {', '.join(NAMES)}{hint}")
