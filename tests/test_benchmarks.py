"""The benchmark harness: wrong results are caught before they are timed. Needs no other library."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parent.parent
COLUMNS = (
    "case | contestant | median ms | min ms | first call ms | ratio to ours | target | reached"
)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks._harness")


def toy_case(harness: ModuleType, *rivals: tuple[str, object], **options: object) -> object:
    x = jnp.arange(8.0)
    return harness.Case(
        "sum of 8",
        harness.Contestant("ours", lambda: harness.on_device(jnp.sum, x)),
        [harness.Contestant(name, prepare, **options) for name, prepare in rivals],
        tolerance=1e-6,
    )


def run(harness: ModuleType, case: object, out: Path) -> tuple[bool, str, list[dict]]:
    agreed = harness.run_suite("toy", "a toy", [case], out, quick=True)
    records = [json.loads(line) for line in (out / "toy.jsonl").read_text().splitlines()]
    return agreed, (out / "toy.md").read_text(), records


def test_agreement_is_timed(harness: ModuleType, tmp_path: Path) -> None:
    case = toy_case(harness, ("python", lambda: lambda: sum(range(8))), at_least=1e-9)
    agreed, table, (ours, rival) = run(harness, case, tmp_path)
    assert agreed
    assert COLUMNS in table
    assert "| sum of 8 | python | " in table
    assert "Targets reached: 1 of 1." in table
    for row in (ours, rival):
        assert 0 < row["min_ms"] <= row["median_ms"]
        assert row["first_call_ms"] > 0
        assert row["repeats"] >= 3
    assert ours["ratio"] == 1
    assert rival["ratio"] == pytest.approx(rival["median_ms"] / ours["median_ms"])
    assert (rival["target"], rival["reached"]) == (">= 1e-09", True)
    assert rival["difference"] == 0
    assert "jax" in rival["environment"]["versions"]


def test_missed_target_is_no_failure(harness: ModuleType, tmp_path: Path) -> None:
    case = toy_case(harness, ("python", lambda: lambda: sum(range(8))), at_least=1e9)
    agreed, table, (_, rival) = run(harness, case, tmp_path)
    assert agreed
    assert rival["reached"] is False
    assert "Targets reached: 0 of 1." in table


@pytest.mark.parametrize("wrong", [27.9, float("nan"), [28.0, 28.0]])
def test_disagreement_fails_and_is_not_timed(
    harness: ModuleType, tmp_path: Path, wrong: object
) -> None:
    case = toy_case(harness, ("hasty", lambda: lambda: jnp.asarray(wrong)), at_least=1e-9)
    agreed, table, (ours, rival) = run(harness, case, tmp_path)
    assert not agreed
    assert rival["note"].startswith("WRONG")
    assert rival["median_ms"] is rival["reached"] is None
    assert ours["median_ms"] > 0
    assert "FAILED: sum of 8: hasty: WRONG" in table


def test_missing_package_is_no_failure(harness: ModuleType, tmp_path: Path) -> None:
    def absent() -> object:
        return importlib.import_module("no_such_package_anywhere")

    agreed, table, (_, rival) = run(harness, toy_case(harness, ("absent", absent)), tmp_path)
    assert agreed
    assert rival["note"] == "not installed (pip install -e '.[bench]')"
    assert rival["note"] in table


def test_broken_contestant_fails_but_others_run(harness: ModuleType, tmp_path: Path) -> None:
    case = toy_case(
        harness, ("broken", lambda: lambda: 1 / 0), ("python", lambda: lambda: sum(range(8)))
    )
    agreed, _, (_, broken, python) = run(harness, case, tmp_path)
    assert not agreed
    assert "ZeroDivisionError" in broken["note"]
    assert python["median_ms"] > 0


def test_relative_tolerance(harness: ModuleType) -> None:
    ours = harness.Contestant("ours", lambda: lambda: (1000.0, 1.0))
    near = harness.Contestant("near", lambda: lambda: (1000.5, 1.0))
    far = harness.Contestant("far", lambda: lambda: (1000.0, 1.5), tolerance=0.1)
    case = harness.Case("pair", ours, [near, far], tolerance=1e-3, relative=True)
    _, first, second = harness.run_case("toy", case, rounds=1)
    assert not first.failed
    assert second.failed
    assert second.tolerance == "0.1 relative"


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_list_names_the_suites() -> None:
    result = benchmarks("--list")
    assert result.returncode == 0, result.stderr
    listed = {line.split()[0] for line in result.stdout.splitlines()}
    assert {"losses", "metrics", "posthoc"} <= listed


def test_unknown_suite_is_one_clear_line() -> None:
    result = benchmarks("metrix")
    assert result.returncode != 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("benchmarks: unknown suite 'metrix': expected one of ")
    assert "metrics" in line
