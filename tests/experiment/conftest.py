import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

# Fifteen steps of AdaFocal on a hundred digits.
DIGITS = ("--config", "configs/smoke/digits.py", "--config.method.name=adafocal")
ROOT = pathlib.Path(__file__).parent.parent.parent


class Done(NamedTuple):
    """How a command ended; a negative code is the signal that killed it."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


class NoFigure:
    """In place of a plot, where nobody looks."""

    def savefig(self, *_: object, **__: object) -> None: ...


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Runs `python -m calib_jax.main` in a process of its own: see nursery.py.

    With `interrupt=[("training", 7, "SIGKILL")]` the process has the signal when the seventh call begins;
    `patch` names changes to make beforehand; `light` leaves out metrics, plots and report.
    """
    folder = tmp_path_factory.mktemp("nursery")
    out, err = folder / "out", folder / "err"
    # With one thread of its own, a process that has only imported things can be forked safely.
    environment = {k: v for k, v in os.environ.items() if k != "CALIB_JAX_DATA"}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    environment["PYTHONPATH"] = str(ROOT)  # this clone, whichever is installed
    nursery = subprocess.Popen(
        [sys.executable, pathlib.Path(__file__).with_name("nursery.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )

    def run(
        *arguments: Any,
        interrupt: Sequence[tuple[str, int, str]] = (),
        patch: Sequence[str] = (),
        light: bool = False,
    ) -> Done:
        job = {"arguments": [str(a) for a in arguments], "stdout": str(out), "stderr": str(err)}
        job |= {"interrupt": interrupt, "patch": patch, "light": light}
        out.write_text("")
        err.write_text("")
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write(json.dumps(job) + "\n")
        nursery.stdin.flush()
        return Done(int(nursery.stdout.readline()), out.read_text(), err.read_text())

    yield run
    nursery.stdin.close()  # type: ignore[union-attr]
    nursery.wait(120)
    nursery.stdout.close()  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def whole(command: Command, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a run that nothing happened to, and that saved nothing before its end."""
    workdir = tmp_path_factory.mktemp("whole")
    done = command(*DIGITS, "--workdir", workdir, light=True)
    assert done.code == 0, done.err
    return workdir / "adafocal" / "seed_0"


def left_behind(run: pathlib.Path) -> dict[str, Any]:
    """All that a (light) run leaves, but for what depends on the clock."""
    found: dict[str, Any] = {}
    for path in sorted([*run.glob("**/state.npz"), *run.glob("**/logits/*.npz")]):
        with np.load(path, allow_pickle=False) as arrays:
            found |= {f"{path.relative_to(run)} {key}": arrays[key] for key in arrays}
    for path in run.glob("**/metrics.jsonl"):
        for number, line in enumerate(path.read_text().splitlines()):
            for key, value in json.loads(line).items():
                if not key.startswith("perf/"):
                    found[f"{path.relative_to(run)} line {number} {key}"] = np.asarray(value)
    return found


def assert_same_run(a: pathlib.Path, b: pathlib.Path) -> None:
    """Parameters, optimiser, method state, logits and log: bit for bit."""
    left, right = left_behind(a), left_behind(b)
    assert left.keys() == right.keys()
    assert any(".params" in key for key in left)
    assert any("logits/test.npz" in key for key in left)
    assert any(" line 1 " in key for key in left)
    for key, value in left.items():
        np.testing.assert_array_equal(value, right[key], err_msg=key, strict=True)
