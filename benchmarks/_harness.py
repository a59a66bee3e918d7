"""Fair timing of several ways to compute the same thing.

A case has one contestant of ours and its rivals. All results are compared before anything is timed.
Then the contestants take turns, round after round, so that whatever else the machine does hits all
of them, and in another order each round, so that none always comes first or after the same other; a
ratio is between medians of the same rounds.
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
_CASE_SECONDS = 15.0  # after so long no round begins but for a quick go, or for equal turns
_TURN_SECONDS = 0.05  # a turn repeats a fast call for about this long
_MOST_PER_TURN = 40

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
      overhead: the others are no rivals: their ratios are what they cost over the first.
    """

    name: str
    ours: Contestant
    rivals: Sequence[Contestant]
    tolerance: float
    relative: bool = False
    overhead: bool = False


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
    overhead: bool = False


@dataclasses.dataclass
class Fact:
    """One line of what is measured and no race.

    Attributes:
      table: what its table is about; lines that follow one another under the same words are one.
      values: by column.
      target: what the number to judge should be, if there is such a target.
      reached: whether it is.
      details: what is kept but not shown in the table, such as the points of a curve.
    """

    table: str
    values: dict[str, Any]
    target: str | None = None
    reached: bool | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def on_device(function: Callable[..., Any], *arrays: Any) -> Call:
    """Calls a jax `function` on `arrays` that are on the device already; waits for its result."""
    placed = jax.block_until_ready([jax.device_put(a) for a in arrays])
    return lambda: jax.block_until_ready(function(*placed))


def run_case(suite: str, case: Case, rounds: int = ROUNDS) -> list[Row]:
    """One row for each contestant, ours first."""
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


def take_turns(
    calls: Mapping[Any, Call],
    rounds: int,
    *,
    before_call: Callable[[Any], None] = lambda name: None,
) -> dict[Any, list[float]]:
    """Seconds of each timed call, by its name. Everything has run once already; here it runs warm.

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
                    # The one before left its data in the caches and its threads spinning.
                    usual[name] = _timed(call)[1]
                repeats = int(_TURN_SECONDS / max(usual[name], 1e-9))
                for _ in range(min(max(repeats, 1), _MOST_PER_TURN)):
                    samples[name].append(_timed(call)[1])
    finally:
        gc.enable()
    return samples


def order(count: int, turn: int) -> list[int]:
    """Who comes when in a round: a Williams design.

    In `count` rounds each has every place once. What a call leaves behind (threads that spin, caches)
    hits the next one, so in these rounds each also comes once right after every other; an odd number
    needs as many rounds again, backwards.
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
