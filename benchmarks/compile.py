"""Time to the first step in a new process: with nothing compiled, and with all in the cache."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax

from benchmarks import overhead
from benchmarks._harness import Fact
from benchmarks._training import one_step
from calib_jax._startup import keep_compiled

SECONDS = 42

_METHODS = ("cross_entropy", "adafocal", "randaug_autolabel")


def cases(quick: bool) -> Iterator[Fact]:
    """A process per method and cache."""
    model, batch = overhead.network(quick)
    for method in _METHODS[:1] if quick else _METHODS:
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (_first_step(method, model, batch, cache) for _ in range(2))
        yield Fact(
            f"Seconds in a new process, {model}, B={batch}: cold with an empty compilation cache, warm "
            "with what the cold one left there.",
            {
                "method": method,
                "start and imports": warm["start"],
                "initialization, cold": cold["init"],
                "first step, cold": cold["step"],
                "initialization, warm": warm["init"],
                "first step, warm": warm["step"],
                "cold / warm": sum(cold.values()) / sum(warm.values()),
            },
        )


def _first_step(method: str, model: str, batch: int, cache: str) -> dict[str, float]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compile", method, model, str(batch)],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start
    times = json.loads(done.stdout.splitlines()[-1])
    return times | {"start": seconds - sum(times.values())}


def _report(method: str, model: str, batch: int) -> None:
    """What the process does: prints its times as JSON."""
    keep_compiled()
    start = time.perf_counter()
    step = one_step(method, model, batch)
    jax.block_until_ready(step.state)
    ready = time.perf_counter()
    step.call()()
    print(json.dumps({"init": ready - start, "step": time.perf_counter() - ready}))


if __name__ == "__main__":
    _report(sys.argv[1], sys.argv[2], int(sys.argv[3]))
