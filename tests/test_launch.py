"""The launch scripts say what they would run, and local.sh runs it."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

LAUNCH = pathlib.Path(__file__).parent.parent / "launch"
RUN = ("--config", "configs/smoke/digits.py", "--workdir", "runs/a b")
SHELLCHECK = shutil.which(
    "shellcheck", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
)
COMMANDS = {
    "local.sh": ("2",),
    "slurm.sbatch": (),
    "tpu_pod.sh": ("pod", "zone"),
    "gke_jobset.sh": ("name", "image:1", "4", "google.com/tpu", "4"),
}


def _run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(LAUNCH / script), *arguments],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("script", COMMANDS)
def test_print_shows_and_does_nothing(script: str) -> None:
    done = _run(script, "--print", *COMMANDS[script], *RUN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "calib_jax.main" in done.stdout
    mode = "env" if script == "local.sh" else "auto"
    assert f"--distributed={mode}" in done.stdout
    assert os.access(LAUNCH / script, os.X_OK)


@pytest.mark.parametrize("script", COMMANDS)
def test_without_arguments_they_tell_their_use(script: str) -> None:
    done = _run(script)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_task_of_an_array_does_its_run() -> None:
    done = _run("slurm.sbatch", "--print", *RUN, SLURM_ARRAY_TASK_ID="3")
    assert "--distributed=auto --sweep_index=3 --config" in done.stdout
    assert "--sweep_index" not in _run("slurm.sbatch", "--print", *RUN).stdout


def test_local_processes_have_their_place() -> None:
    done = _run("local.sh", "--print", "3", *RUN, PORT="7777", DEVICES="2")
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for number, line in enumerate(lines):
        assert f"JAX_PROCESS_ID={number} " in line
        assert "JAX_NUM_PROCESSES=3 JAX" in line
        assert "JAX_COORDINATOR_ADDRESS=127.0.0.1:7777 " in line
        assert "device_count=2" in line
        assert r"runs/a\ b" in line


def test_a_lost_process_ends_all_with_a_line(tmp_path: pathlib.Path) -> None:
    """The program stands in for python: the second process kills itself, the first would wait."""
    program = tmp_path / "python"
    program.write_text('#!/bin/bash\n[ "$JAX_PROCESS_ID" = 1 ] && kill -9 $$\nexec sleep 50\n')
    program.chmod(0o755)
    done = _run("local.sh", "2", *RUN, PYTHON=str(program))
    assert done.returncode == 137
    assert "a process was lost (code 137); stopping the others" in done.stderr


@pytest.mark.skipif(not SHELLCHECK, reason="needs shellcheck")
def test_shellcheck() -> None:
    scripts = [*LAUNCH.glob("*.sh"), LAUNCH / "slurm.sbatch", LAUNCH.parent / ".ci" / "run"]
    done = subprocess.run([SHELLCHECK, *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
