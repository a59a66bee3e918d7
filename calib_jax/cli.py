"""The command `calib-jax`: all commands of the package under one name."""

import importlib
import sys

_COMMANDS = {
    "run": ("calib_jax.main", "train, evaluate, calibrate and report an experiment"),
    "evaluate": ("calib_jax.evaluate", "evaluate and calibrate predictions of any framework"),
    "predict": ("calib_jax.predict", "classify new inputs with a trained network"),
    "llm": ("calib_jax.llm.__main__", "evaluate the answers of a language model"),
    "list": ("calib_jax.main", "show methods, models, data sets and configs"),
}
_HELP = "\n".join(
    [
        "Usage: calib-jax COMMAND …",
        "",
        *(f"  {name:<10}{purpose}" for name, (_, purpose) in _COMMANDS.items()),
        "",
        "calib-jax COMMAND --help shows the flags of a command; python -m calib_jax.main, .evaluate,",
        ".predict and .llm are the same commands.",
    ]
)


def main() -> int:
    """Run the command that the first argument names and return its exit code."""
    from calib_jax import __version__, _hints

    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(_HELP)
        return 0
    if name == "--version":
        print(__version__)
        return 0
    if name not in _COMMANDS:
        expected = _hints.expected_one_of(name, _COMMANDS)
        print(f"error: calib-jax {name}: {expected}", file=sys.stderr)
        return 2
    sys.argv = [f"calib-jax {name}", *sys.argv[2:]]
    if name == "list":
        sys.argv.append("--list")
    module, _ = _COMMANDS[name]
    return int(importlib.import_module(module).main())
