"""The benchmarks: wrong results are caught before they are timed, and one report tells of all suites.

Needs no other library.
"""

import importlib
import itertools
import json
import os
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parent.parent
COLUMNS = (
    "case | contestant | median ms | min ms | first call ms | ratio to ours | target | reached"
)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.fixture
def harness(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("_harness")


def toy_case(harness: ModuleType, *rivals: tuple[str, object], **options: object) -> object:
    x = jnp.arange(8.0)
    return harness.Case(
        "sum of 8",
        harness.Contestant("ours", lambda: harness.on_device(jnp.sum, x)),
        [harness.Contestant(name, prepare, **options) for name, prepare in rivals],
        tolerance=1e-6,
    )


def run(harness: ModuleType, case: object, out: Path) -> tuple[bool, str, list[dict]]:
    report = importlib.import_module("benchmarks._report").Report(out, quick=True)
    agreed = report.add("toy", "a toy", [case])
    return agreed, *read(out)


def read(out: Path) -> tuple[str, list[dict]]:
    """The one report in a folder: its text and its records."""
    (text,), (lines,) = out.glob("*.md"), out.glob("*.jsonl")
    return text.read_text(), [json.loads(line) for line in lines.read_text().splitlines()]


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


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 15, 16])
def test_nobody_always_comes_first_or_after_the_same(harness: ModuleType, count: int) -> None:
    rounds = [harness.order(count, turn) for turn in range(2 * count)]
    for half in (rounds[:count], rounds[count:]):
        for place in zip(*half, strict=True):
            assert sorted(place) == list(range(count))
    pairs = Counter(pair for one in rounds for pair in itertools.pairwise(one))
    assert set(pairs.values()) <= {2}
    assert len(pairs) == count * (count - 1)


@pytest.mark.parametrize(
    ("count", "rounds", "done"), [(0, 3, 3), (1, 3, 3), (2, 7, 8), (3, 7, 9), (5, 7, 10), (9, 3, 3)]
)
@pytest.mark.parametrize("slow", [False, True])
def test_each_comes_first_equally_often(
    harness: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    rounds: int,
    done: int,
    slow: bool,
) -> None:
    monkeypatch.setattr(harness, "_TURN_SECONDS", 1e-12)  # one call a turn
    monkeypatch.setattr(harness, "_CASE_SECONDS", -1.0 if slow else 60.0)
    turns: list[int] = []
    calls = {name: lambda: None for name in range(count)}
    samples = harness.take_turns(calls, rounds, before_call=turns.append)
    if slow:  # ends after the first three rounds in which all had their turn
        done = -(-3 // count) * count if 0 < count <= rounds else 3
    assert [len(times) for times in samples.values()] == [done] * count
    often = Counter(turns[::count]) if count else Counter()
    assert set(often.values()) <= ({done // count} if 0 < count <= done else {1})


def test_one_report_for_all_suites(
    harness: ModuleType, load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    report = load("_report").Report(tmp_path, quick=True)

    def breaks() -> Iterator[object]:
        yield harness.Fact("Sizes.", {"what": "a", "MB": 2.0})
        yield harness.Fact("Sizes.", {"what": "b", "MB": 2345.6})
        yield harness.Fact("Shares.", {"what": "c"}, target="<= 5 %", reached=False)
        raise RuntimeError("no more")

    case = toy_case(harness, ("python", lambda: lambda: sum(range(8))), at_least=1e-9)
    assert report.add("toy", "a toy", [case])
    assert not report.add("broken", "facts, then an error", breaks())
    text, records = read(tmp_path)
    assert [r["suite"] for r in records] == ["toy", "toy", "broken", "broken", "broken"]
    assert records[3]["values"] == {"what": "b", "MB": 2345.6}
    assert (tmp_path / f"{report.stem.name}.png").stat().st_size > 1000
    assert f"]({report.stem.name}.png)" in text
    # The conclusions come first, then a section for each suite.
    parts = [
        "| toy | 1 of 1 |  |",
        "| broken | 0 of 1 | c (<= 5 %) |",
        "## toy: a toy",
        "## broken: facts, then an error",
        "\nSizes.\n\n| what | MB |\n| --- | --- |\n| a | 2 |\n| b | 2,346 |\n",
        "\nShares.\n\n| what | target | reached |\n| --- | --- | --- |\n| c | <= 5 % | **no** |\n",
        "FAILED: broken broke off: RuntimeError: no more",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, text
    assert places == sorted(places)


def test_second_report_of_a_day_overwrites_nothing(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    names = []
    for _ in range(3):
        report = load("_report").Report(tmp_path)
        report.add("none", "nothing", [])
        names.append(report.stem.name)
    assert names[1:] == [f"{names[0]}-2", f"{names[0]}-3"]


def test_exponent_of_a_power_law(load: Callable[[str], ModuleType]) -> None:
    exponent = load("growth").exponent
    assert exponent([1, 10, 100], [3.0, 300.0, 30000.0]) == pytest.approx(2)
    # Not exactly one: log2 of the times is 0, 2, 2 at 0, 1, 2; the least squares' slope is 1.
    assert exponent([1, 2, 4], [1.0, 4.0, 4.0]) == pytest.approx(1)


HLO = """\
  %all-reduce = f32[] all-reduce(%wrapped_reduce.6), channel_id=1, replica_groups=mesh['axis_0'=8]
  ROOT %all-reduce.37 = (f32[3]{0}, /*index=5*/bf16[4,2]{1,0}) all-reduce(%a, %b), to_apply=%add
  %gte = f32[3]{0} get-tuple-element(%all-reduce.37), index=0
  %all-gather.1 = f32[16,10]{1,0} all-gather(%p), dimensions={0}
  %scatter = s32[5]{0} reduce-scatter(%q), dimensions={0}
  %add.1 = f32[7]{0} add(%all-gather.1, %x)
"""


def test_collectives_of_a_program(load: Callable[[str], ModuleType]) -> None:
    hlo = load("_hlo")
    found = hlo.collectives(HLO)
    assert found == [
        ("all-reduce", 4),
        ("all-reduce", 3 * 4 + 8 * 2),
        ("all-gather", 640),
        ("reduce-scatter", 20),
    ]
    # Four devices: sums go round twice, 3/4 each time; of the scattered 80 bytes each sends 60.
    assert hlo.sent(found, 4) == pytest.approx(2 * 3 / 4 * 32 + 3 / 4 * 640 + 60)


def test_all_suites_take_less_than_20_minutes(load: Callable[[str], ModuleType]) -> None:
    names = [m.name for m in pkgutil.iter_modules([str(ROOT / "benchmarks")]) if m.name[0] != "_"]
    # Separate commands: trainings of the papers, calibrators on outputs of networks, the claims.
    names = [
        name
        for name in names
        if name not in ("hours", "calibrators", "evidence", "validation_size")
    ]
    assert sorted(load("__main__").SUITES) == sorted(names)
    assert 0 < sum(load(name).SECONDS for name in names) < 20 * 60


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_list_names_the_suites() -> None:
    result = benchmarks("--list")
    assert result.returncode == 0, result.stderr
    listed = {line.split()[0] for line in result.stdout.splitlines()}
    assert {"losses", "overhead", "growth", "scale"} <= listed


def test_unknown_suite_is_one_clear_line() -> None:
    result = benchmarks("metrix")
    assert result.returncode != 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("benchmarks: unknown suite 'metrix': expected one of ")
    assert "metrics" in line
