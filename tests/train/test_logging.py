"""What a user sees while training."""

import io
import time

import pytest

from calib_jax.train import _logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set by hand."""
    now = [100.0]
    monkeypatch.setattr(_logging.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_now_and_then_where_there_is_no_terminal(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = _logging.Progress("adafocal, seed 3", total=100, start=0, batch_size=8)
    clock[0] += 5
    progress.update(10, loss=2.0)
    assert capsys.readouterr().err == ""
    clock[0] += 5
    progress.update(20, loss=1.25, **{"val ECE": 0.12345678})
    line = capsys.readouterr().err
    assert line == (
        "adafocal, seed 3: step 20/100, loss 1.25, val ECE 0.1235, 16 examples/s, 40 s to go\n"
    )
    clock[0] += 9
    progress.update(90)
    assert capsys.readouterr().err == ""
    clock[0] += 0.5
    progress.update(100, loss=1.0)
    assert "step 100/100, loss 1, val ECE 0.1235" in (last := capsys.readouterr().err)
    assert "to go" not in last
    progress.update(100, loss=1.0)
    assert capsys.readouterr().err == ""


def test_a_resumed_run_counts_only_its_own_steps(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = _logging.Progress("x", total=100, start=80, batch_size=10)
    clock[0] += 10
    progress.update(90)
    assert progress.rate() == 10
    assert "step 90/100, 10 examples/s, 10 s to go" in capsys.readouterr().err


def test_a_terminal_gets_a_bar_and_lines_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(_logging.sys, "stderr", terminal)
    with _logging.Progress("adafocal", total=10, start=4, batch_size=8) as progress:
        progress.log("compiling")
        time.sleep(0.15)  # the bar is drawn ten times a second at most
        progress.update(10, loss=0.5)
    shown = terminal.getvalue()
    assert "adafocal: compiling\n" in shown
    assert "40%" in shown  # where it went on from
    assert "10/10" in shown
    assert "loss=0.5" in shown
    assert "ex/s=" in shown
