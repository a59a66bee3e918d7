"""Fair timing of several implementations of the same computation.

A case has our implementation and those of others. All results are compared before anything is timed.
Then the contestants take turns in rounds, so that other load on the machine affects all of them, and in a
different order each round, so that none always comes first or after the same other; a ratio is between
medians of the same rounds.
"""

import dataclasses
import gc
import os
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

NOT_INSTALLED = "not installed (pip install -e '.[bench]')"

ROUNDS, QUICK_ROUNDS = 7, 3
_CASE_SECONDS = 15.0  # no further round after this time, except for a quick run or for equal turns
_TURN_SECONDS = 0.05  # a turn repeats a fast call for about this long
_MOST_PER_TURN = 40

Call = Callable[[], Any]
Variant = tuple[int, int | None]  # index of a contestant, and number of torch threads


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One implementation of a case.

    Attributes:
      name: Name in the table.
      prepare: Function that imports libraries, converts the inputs to native arrays and returns the call
        to time, which blocks until its result is ready.
      value: Function from the result to the compared value, any tree of arrays and numbers.
      tolerance: Tolerance that replaces the case's, for a less accurate contestant.
      compared: False if the result differs by design and only the time is compared.
      torch: Whether it runs on torch: timed with one thread and with one per core, of which the faster
        counts, because under load torch's threads may wait for each other.
      at_least: Target: least ratio of its time to ours.
      at_most: Target: largest ratio of its time to ours.
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
    """One computation, by us and by others.

    Attributes:
      name: Name of the computation with its sizes.
      ours: Reference contestant.
      rivals: Other contestants.
      tolerance: Largest absolute difference from our result.
      relative: Whether differences are relative to the largest entry of our array.
      overhead: Whether the others are our methods, whose ratios are their cost relative to the first.
    """

    name: str
    ours: Contestant
    rivals: Sequence[Contestant]
    tolerance: float
    relative: bool = False
    overhead: bool = False


@dataclasses.dataclass
class Row:
    """Result of one contestant; times in milliseconds."""

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
    overhead: bool = False


@dataclasses.dataclass
class Fact:
    """One measurement without contestants.

    Attributes:
      table: Caption of its table; consecutive facts with the same caption share a table.
      values: Value of each column.
      target: Target of the measurement, if there is one.
      reached: Whether the target is reached.
      details: Data that are stored but not shown in the table, such as the points of a curve.
    """

    table: str
    values: dict[str, Any]
    target: str | None = None
    reached: bool | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def on_device(function: Callable[..., Any], *arrays: Any) -> Call:
    """Return a call of a jax `function` on arrays on the device; it waits for the result."""
    placed = jax.block_until_ready([jax.device_put(a) for a in arrays])
    return lambda: jax.block_until_ready(function(*placed))


def run_case(suite: str, case: Case, rounds: int = ROUNDS) -> list[Row]:
    """Compare and time the contestants; return a row for each, ours first."""
    rows, calls = [], {}
    expected: list[np.ndarray] | None = None
    for index, contestant in enumerate((case.ours, *case.rivals)):
        row = Row(suite, case.name, contestant.name, overhead=case.overhead)
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
        except Exception as error:  # a contestant that fails must not end the run
            row.note, row.failed = f"failed: {type(error).__name__}: {error}", True
            continue
        row.first_call_ms = 1e3 * seconds
        if expected is None:
            expected = value
        elif contestant.compared:
            _compare(row, case, contestant, expected, value)
        if not row.failed:
            calls[index] = call

    samples = take_turns(_variants(case, calls), rounds, before_call=_before)
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
    """Return the calls to time; those of torch with each number of threads that may be the fastest."""
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
    if not row.difference <= allowed:  # NaN does not agree
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


def take_turns(
    calls: Mapping[Any, Call],
    rounds: int,
    *,
    before_call: Callable[[Any], None] = lambda name: None,
) -> dict[Any, list[float]]:
    """Return the seconds of each timed call by name; all calls have run once before.

    Rounds are added until each has come first equally often, unless there are more calls than rounds.
    """
    names = list(calls)
    whole = len(names) if 0 < len(names) <= rounds else 1
    rounds = -(-rounds // whole) * whole
    usual: dict[Hashable, float] = {}
    samples: dict[Hashable, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            late = turn >= QUICK_ROUNDS and time.perf_counter() - start > _CASE_SECONDS
            if late and turn % whole == 0:
                break
            for index in order(len(names), turn):
                name, call = names[index], calls[names[index]]
                before_call(name)
                if usual.get(name, 0.0) < _TURN_SECONDS:
                    # The previous call left its data in the caches and its threads spinning.
                    usual[name] = _timed(call)[1]
                repeats = int(_TURN_SECONDS / max(usual[name], 1e-9))
                for _ in range(min(max(repeats, 1), _MOST_PER_TURN)):
                    samples[name].append(_timed(call)[1])
    finally:
        gc.enable()
    return samples


def order(count: int, turn: int) -> list[int]:
    """Return the order of the calls in a round: a Williams design.

    In `count` rounds each call has every position once. A call affects the next one (spinning threads,
    caches), so in these rounds each also comes once right after every other; an odd number needs the same
    number of rounds again, reversed.
    """
    zigzag = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(count)]  # 0, 1, -1, 2, -2, …
    places = [(turn + step) % count for step in zigzag]
    return places[::-1] if turn // max(count, 1) % 2 else places


def _before(variant: Variant) -> None:
    if variant[1] is not None:
        import torch

        torch.set_num_threads(variant[1])


def _timed(call: Call) -> tuple[Any, float]:
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(value)]
