"""The runner: an epoch against its steps, and the time from the command to the first step."""

import contextlib
import functools
import io
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks._harness import Call, Case, Contestant
from benchmarks._training import images, make_trainer
from calib_jax import train
from calib_jax.train import _seeds

SECONDS = 96
_SEEDS = 4


def cases(quick: bool) -> Iterator[Case]:
    """ResNet-20 on random images; the numbers do not depend on what is in them."""
    batch, steps = (8, 3) if quick else (64, 6)
    trainer = functools.cache(
        lambda: make_trainer("adafocal", batch, train_set=images(batch * steps))
    )
    yield Case(
        f"an epoch of {steps} steps, ResNet-20, B={batch}",
        Contestant("its steps alone", lambda: _epoch(trainer(), steps)),
        [
            # With one batch of validation, gamma update and log line.
            Contestant(
                "the runner", lambda: _runner(trainer(), steps), compared=False, at_most=1.05
            )
        ],
        tolerance=0.0,
        overhead=True,
    )
    few = min(batch, 16)
    for name in ("mlp", "resnet20"):
        seeds = functools.partial(_several_seeds, few, name)
        yield Case(
            f"a step of {_SEEDS} seeds, {name}, B={few}",
            Contestant("in one program", functools.partial(seeds, vmapped=True)),
            [Contestant("one after the other", functools.partial(seeds, vmapped=False))],
            tolerance=0.0,
        )
    yield Case(
        f"a step of a separate process, ResNet-20, B={batch}",
        Contestant("memory kept", functools.partial(_process, batch, keep=True)),
        [Contestant("given back to the system", functools.partial(_process, batch, keep=False))],
        tolerance=0.0,
    )
    yield Case(
        "from the command to the first step, warm compilation cache",
        Contestant("configs/smoke/digits.py", _command),
        [],
        tolerance=0.0,
    )


def _several_seeds(batch: int, model: str, vmapped: bool) -> Call:
    """A step of each of several seeds."""
    trainer = make_trainer("adafocal", batch, train_set=images(batch), model=model)
    states: Any = [trainer.init(seed) for seed in range(_SEEDS)]
    keys: Any = [jax.random.key(seed) for seed in range(_SEEDS)]
    chunks = [next(trainer.train.chunks(trainer.train.shuffled(s, 0), 0, 1)) for s in range(_SEEDS)]
    if vmapped:
        program = _seeds.VmappedSeeds([trainer] * _SEEDS)
        states, keys = program.stack(states), program.stack(keys)

    def call() -> Any:
        nonlocal states
        if vmapped:
            states, metrics = jax.block_until_ready(program.advance(states, chunks, keys))
        else:
            each = zip(states, chunks, keys, strict=True)
            done = jax.block_until_ready([trainer.advance(*one) for one in each])
            states, metrics = zip(*done, strict=True)
        return sum(float(m.weight) > 0 for m in metrics)

    return call


def _epoch(trainer: train.Trainer, steps: int) -> Call:
    key = jax.random.key(0)

    def call() -> Any:
        state = trainer.init(0)
        for chunk in trainer.train.chunks(trainer.train.shuffled(0, 0), 0, steps):
            state, _ = trainer.advance(state, chunk, key)
        return int(state.step)

    return call


def _runner(trainer: train.Trainer, steps: int) -> Call:
    folder = Path(tempfile.mkdtemp())

    class Unsaved(train.Checkpoints):
        """Saved once, by the first call: what a save costs a run depends on how often it happens."""

        def restore(self, *_: Any) -> None:
            return None

    checkpoints = Unsaved(folder / "checkpoints", best="val/nll")

    def call() -> Any:
        log = train.Log(folder / "metrics.jsonl")
        with contextlib.redirect_stderr(io.StringIO()):
            return int(train.fit(trainer, 0, checkpoints, log, save_seconds=1e9).step)

    return call


_STEPPER = """
import sys
from calib_jax import experiment
if {keep}:
    experiment.keep_memory()
from benchmarks._training import one_step
call = one_step("cross_entropy", "resnet20", {batch}).call()
for _ in sys.stdin:
    print(bool(call()), flush=True)
"""


def _process(batch: int, keep: bool) -> Call:
    """A step of a process that keeps the memory it frees, as `calib_jax.main` does, or does not."""
    process = subprocess.Popen(
        [sys.executable, "-c", _STEPPER.format(keep=keep, batch=batch)],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )  # ends with our end of its input

    def call() -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline() == "True\n"

    return call


def _command() -> Call:
    root = Path(__file__).parent.parent
    cache = tempfile.mkdtemp()
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
    numbers = itertools.count()

    def call() -> Any:
        command = [sys.executable, "-m", "calib_jax.main", "--config", "configs/smoke/digits.py"]
        command += ["--workdir", f"{cache}/{next(numbers)}"]
        with subprocess.Popen(
            command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            found = any("first step after" in line for line in process.stderr)
            process.kill()
        return found

    call()  # fills the cache
    return call
