"""Command-line values that ml_collections cannot parse: tuples of names, and options without default."""

import ast
import re
from collections.abc import Mapping, Sequence

from calib_jax.experiment._keys import KEYS, Config, Value
from calib_jax.experiment._variants import parse_value

_FLAG = re.compile(r"--?config\.([\w.]+)=(.*)", re.DOTALL)
_OPTIONS = ("data.options.", "model.options.")  # sections whose keys the reader or network knows
_TUPLES = tuple(path for path, key in KEYS.items() if isinstance(key.default, tuple))


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], dict[str, Value]]:
    """Take tuples and options of networks and readers out of a command line.

    Args:
      arguments: Arguments of the command, such as `--config.data.shift=svhn,gaussian_noise:5`.

    Returns:
      The other arguments, and values by their paths, such as `data.shift`. A tuple that is given several
      times is the values of all.

    >>> split_overrides(["--workdir=x", "--config.seeds=0,1", "--config.model.options.widths=(8,)"])
    (['--workdir=x'], {'seeds': (0, 1), 'model.options.widths': (8,)})
    """
    others: list[str] = []
    values: dict[str, Value] = {}
    for argument in arguments:
        match = _FLAG.fullmatch(argument)
        path, text = match.groups() if match else ("", "")
        if path in _TUPLES:
            before = values.get(path, ())
            assert isinstance(before, tuple)
            values[path] = before + _parse_tuple(text)
        elif path.startswith(_OPTIONS):
            values[path] = parse_value(text)
        else:
            others.append(argument)
    return others, values


def apply_overrides(config: Config, values: Mapping[str, Value]) -> None:
    """Set values by their paths.

    Args:
      config: Config that is changed.
      values: Values by their paths, from `split_overrides`.

    Raises:
      ValueError: If the config has another type of value there, or is no config.
    """
    if isinstance(config, dict | None):
        raise ValueError(
            f"get_config() returns a {type(config).__name__}: expected experiment.default_config() with "
            "other values"
        )
    for path, value in values.items():
        try:
            config.update_from_flattened_dict({path: value})
        except TypeError:
            before = config
            for name in path.split("."):
                before = before[name]
            raise ValueError(
                f"config.{path}={value!r}: expected {type(before).__name__}, such as {before!r}"
            ) from None


def _parse_tuple(text: str) -> tuple[Value, ...]:
    """Return `0,1`, `(0, 1)`, `[0, 1]` or `svhn,gaussian_noise:5` as a tuple."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        items = (item.strip() for item in text.strip("()[]").split(","))
        return tuple(parse_value(item) for item in items if item)
    return tuple(value) if isinstance(value, tuple | list) else (value,)
