"""Fair timing of several ways to compute the same thing.

A case has one contestant of ours and its rivals. All results are compared before anything is timed.
Then the contestants take turns, round after round, so that whatever else the machine does hits all
of them; a ratio is between medians of the same rounds.
"""

import dataclasses
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

NOT_INSTALLED = "not installed (pip install -e '.[bench]')"

_ROUNDS, _QUICK_ROUNDS = 7, 3
_TURN_SECONDS = 0.05  # a turn repeats a fast call for about this long
_MOST_PER_TURN = 40
_SLOW_SECONDS = 5.0  # a call longer than this takes part in every third round only
_PACKAGES = (
    *("calib_jax", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "torch", "torchmetrics"),
    *("netcal", "probmetrics", "uncertainty-calibration", "relplot"),
)

Call = Callable[[], Any]
Variant = tuple[int, int | None]  # a contestant of a case, and how many threads torch gets


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to compute what a case asks for.

    Attributes:
      name: as shown in the table.
      prepare: imports what is needed, turns the inputs into native arrays and returns the call to
        time. The call returns only when its result is there.
      value: what of the result is compared: any tree of arrays and numbers.
      tolerance: instead of the case's, for a contestant that cannot do better.
      compared: false for one that computes something else and is compared in time only.
      torch: it runs on torch, and is timed with one thread as well as with one per core; the better
        counts. Next to other work torch's threads may spend their time waiting for each other.
      at_least: target: its time should be at least so many times ours.
      at_most: target: its time should be at most so many times ours.
    """

    name: str
    prepare: Callable[[], Call]
    value: Callable[[Any], Any] = lambda result: result
    tolerance: float | None = None
    compared: bool = True
    torch: bool = False
    at_least: float | None = None
    at_most: float | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing to compute, by us and by others.

    Attributes:
      name: what is computed, with its sizes.
      ours: the contestant that the others are compared with.
      rivals: the others.
      tolerance: how far a result may be from ours: the largest absolute difference.
      relative: take the difference of each array relative to the largest entry of ours.
    """

    name: str
    ours: Contestant
    rivals: Sequence[Contestant]
    tolerance: float
    relative: bool = False


@dataclasses.dataclass
class Row:
    """What is known of one contestant; times in milliseconds."""

    suite: str
    case: str
    contestant: str
    median_ms: float | None = None
    min_ms: float | None = None
    first_call_ms: float | None = None
    ratio: float | None = None
    target: str | None = None
    reached: bool | None = None
    repeats: int = 0
    torch_threads: int | None = None
    difference: float | None = None
    tolerance: str | None = None
    note: str | None = None
    failed: bool = False


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "case": lambda r: r.case,
    "contestant": lambda r: r.contestant,
    "median ms": lambda r: _digits(r.median_ms) or r.note or "",
    "min ms": lambda r: _digits(r.min_ms),
    "first call ms": lambda r: _digits(r.first_call_ms),
    "ratio to ours": lambda r: _digits(r.ratio),
    "target": lambda r: r.target or "",
    "reached": lambda r: "" if r.reached is None else ("yes" if r.reached else "**no**"),
    "difference (allowed)": lambda r: (
        "" if r.difference is None else f"{r.difference:.1e} ({r.tolerance})"
    ),
}


def on_device(function: Callable[..., Any], *arrays: Any) -> Call:
    """Calls a jax `function` on `arrays` that are on the device already; waits for its result."""
    placed = jax.block_until_ready([jax.device_put(a) for a in arrays])
    return lambda: jax.block_until_ready(function(*placed))


def run_suite(
    suite: str, summary: str, cases: Iterable[Case], out: Path, *, quick: bool = False
) -> bool:
    """Runs all cases, prints the table and writes `out/suite.md` and `out/suite.jsonl`.

    Returns:
      whether all contestants that could run agreed with ours.
    """
    out.mkdir(parents=True, exist_ok=True)
    environment = _environment()
    rows: list[Row] = []
    with (out / f"{suite}.md").open("w") as table, (out / f"{suite}.jsonl").open("w") as records:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=table, flush=True)

        say(f"# {suite}: {summary}\n")
        for key, text in environment.items():
            say(f"- {key}: {text}")
        say("\n| " + " | ".join(_COLUMNS) + " |")
        say("|" + " --- |" * len(_COLUMNS))
        for case in cases:
            for row in run_case(suite, case, _QUICK_ROUNDS if quick else _ROUNDS):
                rows.append(row)
                say("| " + " | ".join(show(row) for show in _COLUMNS.values()) + " |")
                record = dataclasses.asdict(row) | {"environment": environment}
                print(json.dumps(record), file=records, flush=True)
        judged = [r for r in rows if r.reached is not None]
        say(f"\nTargets reached: {sum(bool(r.reached) for r in judged)} of {len(judged)}.")
        for row in rows:
            if row.failed:
                say(f"FAILED: {row.case}: {row.contestant}: {row.note}")
        say("")
    return not any(r.failed for r in rows)


def run_case(suite: str, case: Case, rounds: int = _ROUNDS) -> list[Row]:
    """One row for each contestant, ours first."""
    rows, calls = [], {}
    expected: list[np.ndarray] | None = None
    for index, contestant in enumerate((case.ours, *case.rivals)):
        row = Row(suite, case.name, contestant.name)
        rows.append(row)
        if index > 0 and expected is None:
            row.note, row.failed = "not run: ours failed", True
            continue
        try:
            call = contestant.prepare()
            result, seconds = _timed(call)
            value = _arrays(contestant.value(result))
        except ModuleNotFoundError:
            row.note, row.failed = NOT_INSTALLED, index == 0
            continue
        except Exception as error:  # a rival that breaks must not end the run
            row.note, row.failed = f"failed: {type(error).__name__}: {error}", True
            continue
        row.first_call_ms = 1e3 * seconds
        if expected is None:
            expected = value
        elif contestant.compared:
            _compare(row, case, contestant, expected, value)
        if not row.failed:
            calls[index] = call

    samples = _take_turns(_variants(case, calls), rounds)
    best: dict[int, Variant] = {}
    for variant in sorted(samples, key=lambda v: statistics.median(samples[v]), reverse=True):
        best[variant[0]] = variant
    for index, contestant in enumerate((case.ours, *case.rivals)):
        if index in best:
            rows[index].torch_threads = best[index][1]
            ours = statistics.median(samples[best[0]])
            _judge(rows[index], contestant, samples[best[index]], ours)
    return rows


def _variants(case: Case, calls: dict[int, Call]) -> dict[Variant, Call]:
    """The calls to time; those of torch with each number of threads that may be the best."""
    cores = os.cpu_count() or 1
    variants: dict[Variant, Call] = {}
    for index, call in calls.items():
        on_torch = index > 0 and case.rivals[index - 1].torch
        choices: set[int | None] = {cores, 1} if on_torch else {None}
        variants |= {(index, threads): call for threads in choices}
    return variants


def _compare(
    row: Row, case: Case, contestant: Contestant, ours: list[np.ndarray], value: list[np.ndarray]
) -> None:
    allowed = case.tolerance if contestant.tolerance is None else contestant.tolerance
    row.tolerance = f"{allowed:g} {'relative' if case.relative else 'absolute'}"
    if [a.shape for a in ours] != [b.shape for b in value]:
        row.note, row.failed = "WRONG: its result has another shape than ours", True
        return
    scales = [max(float(np.max(np.abs(a))), 1e-30) if case.relative else 1.0 for a in ours]
    differences = [np.max(np.abs(a - b)) / s for a, b, s in zip(ours, value, scales, strict=True)]
    row.difference = float(np.max(differences))
    if not row.difference <= allowed:  # NaN is no agreement
        row.note = f"WRONG: differs from ours by {row.difference:.3g}, allowed {row.tolerance}"
        row.failed = True


def _judge(row: Row, contestant: Contestant, seconds: list[float], ours: float) -> None:
    median = statistics.median(seconds)
    row.median_ms, row.min_ms = 1e3 * median, 1e3 * min(seconds)
    row.ratio, row.repeats = median / ours, len(seconds)
    if contestant.at_least is not None:
        row.target, row.reached = f">= {contestant.at_least:g}", row.ratio >= contestant.at_least
    if contestant.at_most is not None:
        row.target, row.reached = f"<= {contestant.at_most:g}", row.ratio <= contestant.at_most


def _take_turns(calls: dict[Variant, Call], rounds: int) -> dict[Variant, list[float]]:
    """Seconds of each timed call. Everything has run once already; here it runs warm."""
    usual: dict[Variant, float] = {}
    samples: dict[Variant, list[float]] = {variant: [] for variant in calls}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for variant, call in calls.items():
                if usual.get(variant, 0.0) > _SLOW_SECONDS and turn % 3:
                    continue
                if variant[1] is not None:
                    _set_torch_threads(variant[1])
                if usual.get(variant, 0.0) < _TURN_SECONDS:
                    # The one before left its data in the caches and its threads spinning.
                    usual[variant] = _timed(call)[1]
                repeats = int(_TURN_SECONDS / max(usual[variant], 1e-9))
                for _ in range(min(max(repeats, 1), _MOST_PER_TURN)):
                    samples[variant].append(_timed(call)[1])
    finally:
        gc.enable()
    return samples


def _set_torch_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


def _timed(call: Call) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(value)]


def _digits(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def _environment() -> dict[str, str]:
    """What the numbers depend on."""
    cores = os.cpu_count() or 1
    environment = {
        "machine": f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}",
        "jax": ", ".join(sorted({d.device_kind for d in jax.devices()})),
        "python": platform.python_version(),
    }
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        crowded = " (busy: run again when it is not)" if load > cores / 2 else ""
        environment["load before"] = f"{load:.1f}{crowded}"
    environment["versions"] = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return environment


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
