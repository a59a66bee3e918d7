"""`python -m benchmarks [SUITE ...]`: which suites to run, and where their results go."""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import jax

import benchmarks
from benchmarks import _harness

_DESCRIPTION = """\
Times calib_jax next to other libraries and plain numpy and torch versions of the same thing.

Each contestant gets the same arrays. Its result is compared with ours before it is timed: one that
disagrees is reported and not timed, and the exit code is 1. Contestants take turns, so that other
load on the machine hits all of them; only the ratios within one run mean anything.
"""
_EPILOG = """\
examples:
  python -m benchmarks                    every suite
  python -m benchmarks metrics losses     two of them
  python -m benchmarks metrics --quick    small sizes only, three rounds: does everything agree?

The other libraries are optional: pip install -e '.[bench]'
"""


def main(arguments: list[str] | None = None) -> int:
    """Runs the suites; 0 if every result agreed, 1 if one did not or a contestant broke."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="default: all (see --list)")
    parser.add_argument("--list", action="store_true", help="name the suites and stop")
    parser.add_argument("--quick", action="store_true", help="small sizes only, three rounds")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "results",
        metavar="DIR",
        help="writes DIR/SUITE.md and DIR/SUITE.jsonl (default: benchmarks/results)",
    )
    options = parser.parse_args(arguments)

    names = [m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_"]
    for name in options.suites:
        if name not in names:
            sys.exit(f"benchmarks: unknown suite {name!r}: expected one of {', '.join(names)}")
    if options.list:
        for name in names:
            print(f"{name:10} {_summary(_load(name))}")
        return 0

    jax.config.update("jax_enable_compilation_cache", False)  # a first call compiles
    agreed = True
    for name in options.suites or names:
        suite = _load(name)
        agreed &= _harness.run_suite(
            name, _summary(suite), suite.cases(options.quick), options.out, quick=options.quick
        )
    return 0 if agreed else 1


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def _summary(suite: ModuleType) -> str:
    return (suite.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
