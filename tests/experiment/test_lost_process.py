"""A process that is lost ends the run with a message; the same command goes on, also alone."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from unittest import mock

import jax
import numpy as np
import pytest
from experiment import small
from quick import with_devices

from calib_jax import main, train

ROOT = pathlib.Path(__file__).parent.parent.parent
DIGITS = ("--config", "configs/smoke/digits.py", "--config.train.epochs=60")


def _start(workdir: pathlib.Path, number: int, address: str) -> subprocess.Popen[str]:
    settings = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": str(number),
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "calib_jax.main", "--distributed=env", *DIGITS),
            *("--workdir", str(workdir), "--config.checkpoint.seconds=1"),
        ],
        cwd=ROOT,
        env=with_devices(4, **settings),
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_the_others_stop_and_one_alone_goes_on(lost: int, tmp_path: pathlib.Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    both = [_start(tmp_path / "parts", number, address) for number in range(2)]
    checkpoints = tmp_path / "parts" / "cross_entropy" / "seed_0" / "checkpoints"
    try:
        began = time.monotonic()
        while not any(path.name.isdecimal() for path in checkpoints.glob("*")):
            assert time.monotonic() - began < 120, "no checkpoint"
            time.sleep(0.1)
        both[lost].send_signal(signal.SIGKILL)
        began = time.monotonic()
        said = both[1 - lost].communicate(timeout=train.LOST_SECONDS + 60)[1]
        assert time.monotonic() - began < train.LOST_SECONDS + 30
        assert both[1 - lost].returncode != 0
        # By whichever of the two notices first: a connection that breaks, or no sign of life.
        messages = ("the processes lost each other", "another task died", "coordination service")
        assert any(message in said.lower() for message in messages), said
    finally:
        for process in both:
            process.kill()
            process.communicate()

    for workdir in ("parts", "whole"):
        done = subprocess.run(
            [sys.executable, "-m", "calib_jax.main", *DIGITS, "--workdir", tmp_path / workdir],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert ("resumed at step" in done.stderr) == (workdir == "parts")
    found = [
        small.arrays(tmp_path / workdir / "cross_entropy" / "seed_0" / "logits" / "test.npz")[
            "logits"
        ]
        for workdir in ("parts", "whole")
    ]
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)


def test_a_broken_connection_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Ended(BaseException):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    def lose(*_: object) -> str:
        raise jax.errors.JaxRuntimeError("connection closed by peer\nand much more")

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(main, "_run", lose)
    parsed = mock.Mock(return_value=["main"])  # stands in for the flags, all of them understood
    monkeypatch.setattr(main.flags, "FLAGS", parsed)
    monkeypatch.setattr(sys, "argv", ["main", "--workdir", str(tmp_path)])
    with pytest.raises(Ended) as ended:
        main.main()
    assert ended.value.args == (1,)
    assert capfd.readouterr().err == (
        "error: the processes lost each other (connection closed by peer). The same command goes on "
        "from the last checkpoint.\n"
    )
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    with pytest.raises(jax.errors.JaxRuntimeError):
        main.main()
