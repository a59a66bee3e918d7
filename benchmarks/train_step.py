"""The runner: AdaFocal's step against cross entropy's, an epoch against its steps, time to first step."""

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
import numpy as np

from benchmarks._harness import Call, Case, Contestant
from calib_jax import data, methods, models, train
from calib_jax.train import _abreast, _loop, _progress

_CLASSES = 10
_SEEDS = 4


def cases(quick: bool) -> Iterator[Case]:
    """ResNet-20 on random images; the numbers do not depend on what is in them."""
    batch, steps = (8, 3) if quick else (64, 12)
    yield Case(
        f"training step, ResNet-20, B={batch}",
        Contestant("cross entropy", lambda: _step("cross_entropy", batch)),
        [
            Contestant("AdaFocal", lambda: _step("adafocal", batch), compared=False, at_most=1.03),
            Contestant("MMCE", lambda: _step("mmce", batch), compared=False),
        ],
        tolerance=0.0,
    )
    yield Case(
        f"an epoch of {steps} steps, ResNet-20, B={batch}",
        Contestant("its steps alone", lambda: _epoch(batch, steps)),
        [
            # With one batch of validation, gamma update and log line.
            Contestant("the runner", lambda: _runner(batch, steps), compared=False, at_most=1.05)
        ],
        tolerance=0.0,
    )
    for name, options in (("mlp", {"widths": (256,)}), ("resnet20", {})):
        few = min(batch, 16) if name == "resnet20" else batch
        seeds = functools.partial(_seeds, few, name, options)
        yield Case(
            f"a step of {_SEEDS} seeds, {name}, B={few}",
            Contestant("in one program", functools.partial(seeds, abreast=True)),
            [Contestant("one after the other", functools.partial(seeds, abreast=False))],
            tolerance=0.0,
        )
    yield Case(
        "from the command to the first step, warm compilation cache",
        Contestant("configs/smoke/digits.py", _command),
        [],
        tolerance=0.0,
    )


def _images(n: int) -> data.Dataset:
    rng = np.random.default_rng(0)
    return data.Dataset(
        "random",
        "train",
        {"image": rng.integers(0, 256, (n, 32, 32, 3)).astype(np.uint8)},
        rng.integers(0, _CLASSES, n).astype(np.int32),
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(_CLASSES))),
    )


def _trainer(
    method: str, batch: int, steps: int, network: str = "resnet20", **options: Any
) -> train.Trainer:
    schedule = train.make_schedule("constant", 0.01, total_steps=steps)
    return train.Trainer(
        train.Network(models.create(network, _CLASSES, **options)),
        methods.create(method),
        lambda *_: train.make_optimizer("sgd", schedule, weight_decay=5e-4),
        _images(batch * steps),
        _images(batch),
        train.Setup(batch_size=batch, epochs=1),
    )


def _step(method: str, batch: int) -> Call:
    trainer = _trainer(method, batch, 1)
    state, key = trainer.init(0), jax.random.key(0)
    piece = next(trainer.train.pieces(trainer.train.in_order(), 0, 1))

    def call() -> Any:
        nonlocal state
        state, sums = jax.block_until_ready(trainer.advance(state, piece, key))
        return sums.weight > 0

    return call


def _seeds(batch: int, network: str, options: dict[str, Any], abreast: bool) -> Call:
    """A step of each of several seeds."""
    trainer = _trainer("adafocal", batch, 1, network, **options)
    program = _abreast.Abreast([trainer] * _SEEDS) if abreast else _abreast.Alone(trainer)
    states: list[Any] = [trainer.init(seed) for seed in range(_SEEDS)]
    keys = [jax.random.key(seed) for seed in range(_SEEDS)]
    pieces = [next(trainer.train.pieces(trainer.train.shuffled(s, 0), 0, 1)) for s in range(_SEEDS)]
    groups = [slice(None)] if abreast else [slice(i, i + 1) for i in range(_SEEDS)]
    joined = [program.join(states[group]) for group in groups]

    def call() -> Any:
        nonlocal joined
        found = [
            program.advance(one, pieces[group], keys[group])
            for one, group in zip(joined, groups, strict=True)
        ]
        joined = [one for one, _ in jax.block_until_ready(found)]
        return sum(float(sums.weight) > 0 for _, parts in found for sums in parts)

    return call


def _epoch(batch: int, steps: int) -> Call:
    trainer = _trainer("adafocal", batch, steps)
    key = jax.random.key(0)

    def call() -> Any:
        state = trainer.init(0)
        for piece in trainer.train.pieces(trainer.train.shuffled(0, 0), 0, steps):
            state, _ = trainer.advance(state, piece, key)
        return int(state.step)

    return call


def _runner(batch: int, steps: int) -> Call:
    trainer = _trainer("adafocal", batch, steps)
    folder = Path(tempfile.mkdtemp())
    # Saved once, by the first call: what a save costs a run depends on how often it is asked for.
    checkpoints = train.Checkpoints(folder / "checkpoints", best="val/nll")

    def call() -> Any:
        with contextlib.redirect_stderr(io.StringIO()):
            progress = _progress.Progress("epoch", steps, 0, batch)
            log = train.Log(folder / "metrics.jsonl")
            run = _loop._Run(trainer, 0, checkpoints, log, progress, shown=True)
            loop = _loop._Loop(_abreast.Alone(trainer), [run], progress, 1e9, False)
            return int(loop.to_the_end(trainer.init(0), 0, lambda: False)[0].step)

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
