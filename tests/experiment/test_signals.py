"""SIGTERM and SIGINT: saved, said, and gone on from; damaged checkpoints on the way."""

import os
import pathlib
import socket

import pytest
from experiment.conftest import DIGITS, Command, assert_same_run

from calib_jax import _signals
from calib_jax.experiment import _workdir


def test_asked_to_stop_again_and_again(
    command: Command, whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    arguments = (*DIGITS, "--workdir", tmp_path)
    for moment, number, name, step in [
        ("training", 4, "SIGTERM", 4),
        ("after_epoch", 1, "SIGINT", 5),  # the evaluation is brought to its end
    ]:
        done = command(*arguments, interrupt=[(moment, number, name)], light=True)
        assert done.code == 130, done
        assert "Traceback" not in done.err
        assert done.err.splitlines()[-1] == (
            f"stopped at step {step} of 15; state saved. The same command goes on from there."
        )
    assert "resumed at step 4 of 15" in done.err
    # Whoever asks a second time means it.
    for name, code in (("SIGINT", -2), ("SIGTERM", -15)):
        twice = [("training", 3, name)] * 2
        done = command(*arguments, interrupt=twice, light=True)
        assert done.code == code, done
        assert "resumed at step 5 of 15" in done.err
    done = command(*arguments, light=True)
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "adafocal" / "seed_0", whole)


def test_damaged_checkpoints(command: Command, whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    arguments = (*DIGITS, "--workdir", tmp_path, "--config.checkpoint.seconds=0")
    run = tmp_path / "adafocal" / "seed_0"

    def damage(newest: int) -> list[str]:
        """Empties the files of the newest; gives the steps of all."""
        steps = sorted((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
        for step in steps[-newest:]:
            for path in step.rglob("*"):
                if path.is_file():
                    path.write_bytes(b"")
        return [path.name for path in steps]

    done = command(*arguments, interrupt=[("training", 8, "SIGTERM")], light=True)
    assert done.code == 130, done
    *_, good, bad = damage(1)
    done = command(*arguments, interrupt=[("training", 3, "SIGTERM")], light=True)
    assert done.code == 130, done
    assert f"adafocal, seed 0: checkpoint {bad} cannot be read (" in done.out
    assert "going back to the one before" in done.out
    assert f"resumed at step {good} of 15" in done.err
    assert len(damage(10)) > 1
    done = command(*arguments, light=True)
    assert done.code == 0, done.err
    assert done.out.count("cannot be read") > 1
    assert "resumed" not in done.err
    assert_same_run(run, whole)


def test_a_second_process_is_refused(command: Command, tmp_path: pathlib.Path) -> None:
    owner = f"process {os.getpid()} on {socket.gethostname()}"
    refused = f"{tmp_path} is in use by {owner}; wait for it, or choose another --workdir"
    with _workdir.locked(tmp_path):
        done = command(*DIGITS, "--workdir", tmp_path, light=True)
        assert (done.code, done.err) == (2, f"error: {refused}\n")
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        with pytest.raises(ValueError, match=refused), _workdir.locked(tmp_path):
            pass
    with _workdir.locked(tmp_path):
        pass


def test_handlers_are_put_back() -> None:
    import signal

    names = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(name) for name in names]
    with _signals.StopRequest() as stop:
        assert not stop.requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested()
        assert stop.signal == signal.SIGTERM
    assert [signal.getsignal(name) for name in names] == before
