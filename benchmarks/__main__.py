"""`python -m benchmarks [SUITE ...]`: run suites and write a report."""

import argparse
import importlib
import sys
import time
from pathlib import Path
from types import ModuleType

import jax

from benchmarks._report import Report

# In the order of the report; `memory` reuses the programs that `overhead` has compiled.
SUITES = (
    *("overhead", "memory", "compile", "train_step", "loading", "scale", "growth"),
    *("losses", "adafocal", "metrics", "posthoc", "augment", "autolabel", "aum_mixup", "distill"),
    *("models", "predict", "evaluate"),
)
_DESCRIPTION = """\
Compare the speed of calib_jax with other libraries and with plain numpy and torch versions.

Each contestant gets the same arrays. Its result is compared with ours before it is timed: one that
disagrees is reported and not timed, and the exit code is 1. Contestants take turns, so that other
load on the machine affects all of them; only ratios within one run are meaningful. Other suites measure
the cost of our methods: time, memory, compilation, and communication on simulated devices.

A run writes one report: DATE.md with a figure DATE.png, and the same data as DATE.jsonl.
"""
_EPILOG = """\
examples:
  python -m benchmarks                    every suite: under 20 minutes on two cores
  python -m benchmarks metrics losses     two of them
  python -m benchmarks metrics --quick    small sizes only, three rounds: does everything agree?

The other libraries are optional: pip install -e '.[bench]'
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the suites; return 0 if all results agree, 1 if one does not or a contestant fails."""
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
        help="folder of the report (default: benchmarks/results)",
    )
    options = parser.parse_args(arguments)

    for name in options.suites:
        if name not in SUITES:
            sys.exit(f"benchmarks: unknown suite {name!r}: expected one of {', '.join(SUITES)}")
    if options.list:
        for name in SUITES:
            print(f"{name:10} {_summary(_load(name))}")
        return 0

    jax.config.update("jax_enable_compilation_cache", False)  # a first call compiles
    suites = {name: _load(name) for name in options.suites or SUITES}
    report = Report(options.out, quick=options.quick)
    clock = _Clock({name: suite.SECONDS for name, suite in suites.items()}, options.quick)
    agreed = True
    for name, suite in suites.items():
        clock.begin(name)
        agreed &= report.add(name, _summary(suite), suite.cases(options.quick))
    print(f"written: {report.stem}.md, .jsonl and .png", file=sys.stderr)
    return 0 if agreed else 1


class _Clock:
    """Print the current suite and the estimated remaining time."""

    def __init__(self, seconds: dict[str, float], quick: bool) -> None:
        self.seconds = {name: s / 4 if quick else s for name, s in seconds.items()}
        self.start = time.monotonic()
        self.done = 0.0  # expected seconds of the finished suites

    def begin(self, name: str) -> None:
        names = list(self.seconds)
        gone = time.monotonic() - self.start
        # Speed of this machine relative to the two idle cores of the expected seconds.
        pace = gone / self.done if self.done else 1.0
        left = pace * (sum(self.seconds.values()) - self.done)
        print(
            f"[{names.index(name) + 1}/{len(names)}] {name}: {gone / 60:.1f} min gone, "
            f"about {left / 60:.1f} to go",
            file=sys.stderr,
            flush=True,
        )
        self.done += self.seconds[name]


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def _summary(suite: ModuleType) -> str:
    return (suite.__doc__ or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
