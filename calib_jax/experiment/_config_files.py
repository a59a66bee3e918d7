"""Config files by path or by name, in a clone and in an installed package."""

import pathlib
from collections.abc import Iterator, Sequence

from calib_jax._hints import did_you_mean

_PACKAGE = pathlib.Path(__file__).parent.parent
# The wheel has the configs inside the package; a clone has them beside it.
_FOLDERS = (pathlib.Path("configs"), _PACKAGE / "configs", _PACKAGE.parent / "configs")


def config_files() -> Iterator[tuple[str, pathlib.Path]]:
    """Yield the name and the path of each config, those of the current folder first.

    >>> dict(config_files())["quickstart"].name
    'quickstart.py'
    """
    seen = set()
    for folder in _FOLDERS:
        for path in sorted(folder.rglob("[!_]*.py")):
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name not in seen:
                seen.add(name)
                yield name, path


def find_config(argument: str) -> str:
    """Return the path of a config file.

    Args:
      argument: A path, or the name of a config that comes with the package, such as `quickstart` or
        `adafocal/cifar10`; perhaps followed by a colon and the argument of `get_config`.

    Raises:
      ValueError: If there is neither such a file nor such a name.
    """
    name, colon, rest = argument.partition(":")
    if pathlib.Path(name).is_file():
        return argument
    configs = dict(config_files())
    key = name.removesuffix(".py").removeprefix("configs/")
    if key not in configs:
        hint = did_you_mean(key, configs)
        raise ValueError(f"config {name!r}: expected a file or a name that --list shows{hint}")
    return f"{configs[key]}{colon}{rest}"


def find_config_flag(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the value of its `--config` replaced by the path of the file.

    >>> find_config_flag(["--workdir", "x"])
    ['--workdir', 'x']
    """
    command = list(arguments)
    for i, argument in enumerate(command):
        flag, equals, value = argument.partition("=")
        if flag not in ("--config", "-config"):
            continue
        if equals:
            command[i] = f"{flag}={find_config(value)}"
        elif i + 1 < len(command):
            command[i + 1] = find_config(command[i + 1])
    return command
