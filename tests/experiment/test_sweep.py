"""--sweep_index: jobs that share a workdir, and what each keeps the others from."""

import contextlib
import fcntl
import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import pytest
from experiment import small
from experiment.conftest import ROOT, Command, NoFigure

from calib_jax import experiment, report, train
from calib_jax.experiment import _evaluate, _workdir

TAUGHT = ("--config", "configs/smoke/digits.py", "--config.method.name=csd,sd")
TAUGHT += ("--config.method.csd.generations=2", "--config.method.sd.generations=2")
TAUGHT += ("--config.train.epochs=1", "--config.num_bootstrap=2")
US = f"process {os.getpid()} on {socket.gethostname()}"
HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
print("process that dies", file=file, flush=True)
print("held", flush=True)
time.sleep(300)
"""


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and predictions; no metrics, plots or report."""
    monkeypatch.setattr(_evaluate, "evaluate", lambda *_, **__: [])
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for name in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, name, lambda *_, **__: NoFigure())
    monkeypatch.setattr(_workdir, "_LOOK_AGAIN", 0.01)


def _timeless(found: Any) -> Any:
    """Results without how long they took."""
    if isinstance(found, dict):
        return {k: _timeless(v) for k, v in found.items() if k != "train_seconds"}
    return [_timeless(v) for v in found] if isinstance(found, list) else found


def _results(workdir: pathlib.Path) -> dict[str, Any]:
    paths = sorted(workdir.glob("*/seed_*/results.json"))
    return {str(p.parent.relative_to(workdir)): json.loads(p.read_text()) for p in paths}


def test_two_jobs_at_once_leave_what_one_after_the_other_does(
    command: Command, tmp_path: pathlib.Path
) -> None:
    done = command(*TAUGHT, "--workdir", tmp_path / "one")
    assert done.code == 0, done.err
    # Two students of one teacher, which is a run of its own and not begun yet.
    shared = (*TAUGHT, "--workdir", str(tmp_path / "jobs"))
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "calib_jax.main", *shared, f"--sweep_index={index}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in (1, 2)
    ]
    try:
        said = [job.communicate(timeout=600) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    assert [job.returncode for job in jobs] == [0, 0], said
    # One of them trained the teacher, the other found it finished.
    finished = "cross_entropy, seed 0: finished before"
    assert sorted(out.count(finished) for out, _ in said) == [0, 1], said
    done = command(*shared, "--sweep_index=0")
    assert done.code == 0, done.err
    assert done.out.startswith(finished)

    found = _results(tmp_path / "jobs")
    assert found.keys() == {f"{name}/seed_0" for name in ("cross_entropy", "csd", "sd")}
    assert _timeless(found) == _timeless(_results(tmp_path / "one"))
    left, right = ((tmp_path / where / "summary.md").read_text() for where in ("jobs", "one"))
    assert left == right
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_job_waits_for_who_does_what_it_needs(
    light: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []
    fit = train.fit
    monkeypatch.setattr(train, "fit", lambda *a, **k: trained.append(k["title"]) or fit(*a, **k))
    config = small.config(method__name="aum_mixup,sim_mixup", train__epochs=1)
    run, phase = tmp_path / "aum_mixup" / "seed_0", tmp_path / "phases" / "records" / "seed_0"
    phase.mkdir(parents=True)
    died = subprocess.Popen(
        [sys.executable, "-c", HOLD, phase / ".lock"], stdout=subprocess.PIPE, text=True
    )
    with contextlib.ExitStack() as claim, contextlib.ExitStack() as work, died:
        assert died.stdout is not None
        assert died.stdout.readline() == "held\n"
        claim.enter_context(_workdir.locked(tmp_path, ".turn"))
        work.enter_context(_workdir.locked(run))
        ends = {tmp_path: claim.close, run: work.close, phase: died.kill}
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            ends[pathlib.Path(line.partition("at work in ")[2])]()

        assert experiment.run(config, tmp_path, log=say, sweep_index=0) == "report"
    assert said == [
        f"waiting for {US}, at work in {tmp_path}",
        f"waiting for {US}, at work in {run}",
        f"waiting for process that dies, at work in {phase}",
    ]
    assert experiment.run(config, tmp_path, sweep_index=1) == "report"
    assert trained == [
        *("aum_mixup, seed 0, records", "aum_mixup, seed 0, train"),
        "sim_mixup, seed 0, train",
    ]


def test_who_is_kept_out(light: None, tmp_path: pathlib.Path) -> None:
    config = small.config(seeds=(0, 1), train__epochs=1)
    run = tmp_path / "cross_entropy" / "seed_0"
    choice = "wait for it, or choose another --workdir"
    with _workdir.locked(tmp_path, shared=True), _workdir.locked(run, ".job"):
        with pytest.raises(ValueError, match=f"{run} is in use by {US}; {choice}"):
            experiment.run(config, tmp_path, sweep_index=0)
        refused = f"{tmp_path} is in use by a sweep, last joined by {US}; {choice}"
        with pytest.raises(ValueError, match=refused):
            experiment.run(config, tmp_path)
        assert experiment.run(config, tmp_path, sweep_index=1) == "report"
    with (
        _workdir.locked(tmp_path),
        pytest.raises(ValueError, match=f"{tmp_path} is in use by {US}; {choice}"),
    ):
        experiment.run(config, tmp_path, sweep_index=0)
    assert [str(run) for run in _results(tmp_path)] == ["cross_entropy/seed_1"]


def test_asked_to_stop_while_waiting(tmp_path: pathlib.Path) -> None:
    with (
        _workdir.locked(tmp_path),
        pytest.raises(train.Stopped, match=f"stopped while waiting for {US}"),
        _workdir.locked(tmp_path, log=print, should_stop=lambda: True),
    ):
        pass


def test_the_first_process_locks_for_all(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "is_primary", lambda: False)
    with _workdir.locked(tmp_path / "x"):
        assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_locked_is_not_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="No locks available"), _workdir.locked(tmp_path, log=print):
        pass
