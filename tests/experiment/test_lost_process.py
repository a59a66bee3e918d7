"""A process that is lost ends the run with a message; the same command goes on, also alone."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from calib_jax import train

ROOT = pathlib.Path(__file__).parent.parent.parent
DIGITS = ("--config", "configs/smoke/digits.py", "--config.train.epochs=60")


def _start(workdir: pathlib.Path, number: int, address: str) -> subprocess.Popen[str]:
    settings = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": str(number),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "NPROC": "32",
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "calib_jax.main", "--distributed=env", *DIGITS),
            *("--workdir", str(workdir), "--config.checkpoint.seconds=1"),
        ],
        cwd=ROOT,
        env=os.environ | settings,
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
        assert "another task died" in said or "coordination service" in said.lower()
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
        np.load(tmp_path / workdir / "cross_entropy" / "seed_0" / "logits" / "test.npz")["logits"]
        for workdir in ("parts", "whole")
    ]
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)
