"""The launch scripts say what they would run, and local.sh runs it."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import yaml

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
        timeout=300,
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


# Stands in for srun: runs until it is told to stop (or not at all), and ends with the code of the test.
SRUN = """#!/bin/bash
trap 'exit $CODE' TERM
echo $$ >"$FOLDER/pid" && mv "$FOLDER/pid" "$FOLDER/srun.pid"
if [[ $STOPS == itself ]]; then exit "$CODE"; fi
for _ in {1..500}; do sleep 0.1; done
"""
# As Slurm does, tells the tasks and not the shell; a job that is cancelled meanwhile, the shell too.
SCANCEL = """#!/bin/bash
echo "scancel $*" >>"$FOLDER/calls"
kill -TERM "$(<"$FOLDER/srun.pid")"
if [[ $STOPS == cancelled ]]; then kill -TERM "$PPID"; fi
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >>"$FOLDER/calls"
exit "${REFUSED:-0}"
"""


def _batch_job(folder: pathlib.Path, **variables: str) -> tuple[int, list[str], str]:
    """Runs slurm.sbatch till its time is up: its code, what it asked of Slurm, and what it said."""
    folder.mkdir(exist_ok=True)
    for name, program in (("srun", SRUN), ("scancel", SCANCEL), ("scontrol", SCONTROL)):
        (folder / name).write_text(program)
        (folder / name).chmod(0o755)
    settings = {"FOLDER": str(folder), "PATH": f"{folder}:{os.environ['PATH']}", "STOPS": "asked"}
    job = subprocess.Popen(
        ["bash", str(LAUNCH / "slurm.sbatch"), *RUN],
        env=os.environ | settings | {"SLURM_JOB_ID": "77"} | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    if variables.get("STOPS") != "itself":
        while not (folder / "srun.pid").exists():
            time.sleep(0.02)
        job.send_signal(signal.SIGUSR1)
    said = job.communicate(timeout=300)[1]
    calls = folder / "calls"
    return job.returncode, calls.read_text().splitlines() if calls.exists() else [], said


ARRAY = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "3"}


@pytest.mark.parametrize(
    ("variables", "name"),
    [({"CODE": "130"}, "77"), ({"CODE": "137"}, "77"), ({"CODE": "130"} | ARRAY, "77_3")],
)
def test_out_of_time_a_job_is_stopped_and_requeued(
    tmp_path: pathlib.Path, variables: dict[str, str], name: str
) -> None:
    code, calls, said = _batch_job(tmp_path, **variables)
    assert calls == [f"scancel --signal=TERM {name}", f"scontrol requeue {name}"]
    assert code == int(variables["CODE"])
    assert f"job {name} is requeued" in said


@pytest.mark.parametrize(
    "variables",
    [
        {"CODE": "0"},  # finished meanwhile
        {"CODE": "2"},
        {"CODE": "130", "STOPS": "itself"},  # somebody else stopped it
        {"CODE": "143", "STOPS": "cancelled"},
    ],
)
def test_what_finished_failed_or_was_cancelled_is_not_requeued(
    tmp_path: pathlib.Path, variables: dict[str, str]
) -> None:
    code, calls, said = _batch_job(tmp_path, **variables)
    assert code == int(variables["CODE"])
    asked = variables.get("STOPS") != "itself"
    assert calls == ["scancel --signal=TERM 77"] * asked
    assert said == ""


def test_a_job_is_not_requeued_for_ever(tmp_path: pathlib.Path) -> None:
    _, calls, said = _batch_job(tmp_path, CODE="130", SLURM_RESTART_COUNT="20")
    assert calls == ["scancel --signal=TERM 77"]
    assert "out of time after 20 restarts" in said
    more = {"SLURM_RESTART_COUNT": "20", "REQUEUES": "21"}
    assert "requeue" in _batch_job(tmp_path / "more", CODE="130", **more)[1][-1]


def test_a_queue_that_refuses_is_told_of(tmp_path: pathlib.Path) -> None:
    code, _, said = _batch_job(tmp_path, CODE="130", REFUSED="1")
    assert code == 130
    assert "not requeued. The same command goes on." in said


def test_slurm_signals_the_shell_alone_and_allows_requeueing() -> None:
    lines = (LAUNCH / "slurm.sbatch").read_text().splitlines()
    assert "#SBATCH --signal=B:USR1@300" in lines
    assert "#SBATCH --requeue" in lines


def _pods(resource: str, *arguments: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Of the JobSet `name` with 4 pods: the job, the container, and its variables by name."""
    options = ("name", "image:1", "4", resource, "8", *arguments)
    manifest = yaml.safe_load(_run("gke_jobset.sh", "--print", *options).stdout)
    assert manifest["metadata"]["name"] == "name"
    assert manifest["spec"]["network"] == {"enableDNSHostnames": True}
    (workers,) = manifest["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {resource: 8}
    variables = {v["name"]: v.get("value", v.get("valueFrom")) for v in container["env"]}
    return job | {"name": workers["name"]}, container, variables


def test_gpu_pods_are_told_their_place() -> None:
    """By names that Kubernetes gives: JAX could not look them up without rights to read pods."""
    job, container, variables = _pods("nvidia.com/gpu", *RUN, 'say "a\\b"')
    assert (job["completionMode"], job["parallelism"], job["completions"]) == ("Indexed", 4, 4)
    assert container["command"][:4] == ["python", "-m", "calib_jax.main", "--distributed=env"]
    assert container["command"][4:] == [*RUN, 'say "a\\b"']
    assert variables["JAX_COORDINATOR_ADDRESS"] == f"name-{job['name']}-0-0.name:8476"
    assert variables["JAX_NUM_PROCESSES"] == "4"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert variables["JAX_PROCESS_ID"] == {"fieldRef": {"fieldPath": index}}


def test_tpu_pods_ask_gke() -> None:
    _, container, variables = _pods("google.com/tpu", *RUN)
    assert "--distributed=auto" in container["command"]
    assert set(variables) == {"CALIB_JAX_DATA"}


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
