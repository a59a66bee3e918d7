"""Simulated scale: what a device computes and sends in a step, on 8, 64 and 512 devices."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import _hlo
from benchmarks._harness import Fact

SECONDS = 60

_DEVICES = (8, 64, 512)
_METHODS = ("cross_entropy", "adafocal", "aum_mixup")
_ROWS, _LENGTH, _WIDTH, _CLASSES = 32, 64, 512, 10
# Of the estimate: a device as fast, and a link as wide, as is common in 2026; nothing overlaps.
_FLOPS_PER_SECOND, _BYTES_PER_SECOND = 100e12, 100e9
_TABLE = (
    "Simulated: nothing ran. The step was compiled and partitioned by XLA's CPU backend for so many "
    "devices, and its program read: FLOPs and bytes accessed are XLA's cost analysis, bytes sent follow "
    "from the shapes of the collectives if devices stand in a ring. "
    f"Encoder with one layer of {_WIDTH}, AdamW, {_ROWS} texts of {_LENGTH} tokens per device. "
    "Here fsdp sums up whole gradients (all-reduce); a compiler that makes this a reduce-scatter sends "
    "less. "
    f"Estimated ms are FLOPs / {_FLOPS_PER_SECOND / 1e12:g} TFLOP/s + bytes sent / "
    f"{_BYTES_PER_SECOND / 1e9:g} GB/s, without latency and with nothing at the same time: they compare "
    "the lines of this table and predict no machine."
)


def cases(quick: bool) -> Iterator[Fact]:
    """A process for each number of devices, which has to be known before jax starts."""
    chosen = _METHODS[:1] if quick else _METHODS
    for devices in _DEVICES[:1] if quick else _DEVICES:
        for line in _programs(devices, chosen):
            program = json.loads(line)
            computing = program["flops"] / _FLOPS_PER_SECOND
            sending = program["sent"] / _BYTES_PER_SECOND
            yield Fact(
                _TABLE,
                {
                    "devices": str(devices),
                    "method": program["method"],
                    "parameters": program["sharding"],
                    "GFLOP / device": program["flops"] / 1e9,
                    "MB accessed / device": program["accessed"] / 1e6,
                    "MB of memory / device": program["memory"] / 1e6,
                    "collectives": program["collectives"],
                    "MB sent / device": program["sent"] / 1e6,
                    "estimated ms": 1e3 * (computing + sending),
                },
                details={"computing_ms": 1e3 * computing, "sending_ms": 1e3 * sending},
            )


def _programs(devices: int, chosen: Sequence[str]) -> Iterator[str]:
    flags = (
        os.environ.get("XLA_FLAGS", ""),
        f"--xla_force_host_platform_device_count={devices}",
        "--xla_backend_optimization_level=0",  # machine code that is never run need not be good
    )
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale", str(devices), *chosen],
        cwd=Path(__file__).parent.parent,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        raise RuntimeError(f"the process with {devices} devices ended with {process.returncode}")


def _report(devices: int, chosen: Sequence[str]) -> None:
    """What the process does: prints a line of JSON for each program."""
    for method in chosen:
        for sharding in ("replicated", "fsdp"):
            compiled = _compile(method, sharding, devices)
            found = _hlo.collectives(compiled.as_text())
            cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
            kinds = Counter(collective.kind for collective in found)
            facts = {
                "method": method,
                "sharding": sharding,
                "flops": cost["flops"],
                "accessed": cost["bytes accessed"],
                "memory": memory.argument_size_in_bytes + memory.temp_size_in_bytes,
                "collectives": ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())),
                "sent": _hlo.sent(found, devices),
            }
            print(json.dumps(facts), flush=True)


def _compile(method: str, sharding: str, devices: int) -> Any:
    """The step's program for a full batch, of which only the shapes are needed.

    The trainer itself is given as few examples as it takes: every device has a copy of them.
    """
    import jax
    import numpy as np

    from calib_jax import data, methods, models, train
    from calib_jax.train import _distributed

    halves = 2 if method == "aum_mixup" else 1
    ids = np.full((halves * devices, _LENGTH), 5, np.int32)
    texts = data.Dataset(
        "texts",
        "train",
        {"input_ids": ids, "mask": np.ones_like(ids)},
        np.zeros(len(ids), np.int32),
        np.arange(len(ids), dtype=np.int32),
        tuple(map(str, range(_CLASSES))),
    )
    module = models.create(
        "roberta", _CLASSES, num_hidden_layers=1, hidden_size=_WIDTH, num_attention_heads=8,
        intermediate_size=4 * _WIDTH, vocab_size=8192,
    )  # fmt: skip
    schedule = train.make_schedule("constant", 1e-5, total_steps=1)
    trainer = train.Trainer(
        train.Network(module),
        methods.recipe(method).phases[-1],
        lambda *_: train.make_optimizer("adamw", schedule),
        texts,
        texts,
        train.Setup(len(ids), epochs=1, sharding=sharding),
        artifacts={"aum": np.arange(len(texts), dtype=np.float32)},
    )
    batch = _ROWS * devices
    sharded = _distributed.sharded(trainer.mesh)
    chunk = next(trainer.train.chunks(trainer.train.shuffled(0, 0), 0, 1))
    arrays = {
        key: jax.ShapeDtypeStruct((batch, *x.shape[1:]), x.dtype, sharding=sharded)
        for key, x in chunk.arrays.items()
    }
    weights, key = np.ones((1, batch), np.float32), jax.random.key(0)
    chunk = chunk._replace(arrays=arrays, weights=weights)
    return trainer.advance.lower(trainer.abstract_state(), chunk, key).compile()


if __name__ == "__main__":
    _report(int(sys.argv[1]), sys.argv[2:])
