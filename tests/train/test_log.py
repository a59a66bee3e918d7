"""metrics.jsonl: what it holds after any kind of end."""

import pathlib

import pytest

from calib_jax import train

ROWS = [{"step": 5 * k, "val/ece": 0.1 / k, "method/gamma": [1.0, -2.5e-8]} for k in (1, 2, 3)]


def _log(folder: pathlib.Path) -> train.Log:
    log = train.Log(folder / "metrics.jsonl")
    for row in ROWS:
        log.append(row)
    return log


def test_rows_come_back_as_they_were_given(tmp_path: pathlib.Path) -> None:
    assert _log(tmp_path).rows() == ROWS
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == len(ROWS)


def test_a_run_that_has_not_begun_has_no_rows(tmp_path: pathlib.Path) -> None:
    log = train.Log(tmp_path / "metrics.jsonl")
    assert log.rows() == []
    log.truncate(0)
    assert list(tmp_path.iterdir()) == []


def test_cut_drops_what_comes_after(tmp_path: pathlib.Path) -> None:
    log = _log(tmp_path)
    log.truncate(12)
    assert log.rows() == ROWS[:2]
    log.truncate(10)
    assert log.rows() == ROWS[:2]
    log.append(ROWS[2])
    assert log.rows() == ROWS
    log.truncate(0)
    assert log.rows() == []
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_half_a_line_is_no_line_and_nothing_is_appended_to_it(tmp_path: pathlib.Path) -> None:
    log = _log(tmp_path)
    whole = log.path.read_text()
    for length in range(1, len(whole.splitlines()[-1]) + 1):
        log.path.write_text(whole[:-length])
        assert log.rows() == ROWS[:2]
        log.truncate(100)
        log.append(ROWS[2])
        assert log.path.read_text() == whole


def test_hooks_get_each_line(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[pathlib.Path, int]] = []
    monkeypatch.setitem(train.LOG_HOOKS, "mine", lambda path, row: seen.append((path, row["step"])))
    log = _log(tmp_path)
    assert seen == [(log.path, row["step"]) for row in ROWS]
