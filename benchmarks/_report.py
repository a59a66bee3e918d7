"""The report of a run: a table per suite, the same data as JSON lines, and a figure."""

import dataclasses
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from benchmarks import _harness, _picture
from benchmarks._harness import Case, Fact, Row
from calib_jax import experiment

_PACKAGES = (
    *("calib_jax", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "torch", "torchmetrics"),
    *("netcal", "probmetrics", "uncertainty-calibration", "relplot"),
)
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "case": lambda r: r.case,
    "contestant": lambda r: r.contestant,
    "median ms": lambda r: digits(r.median_ms) or r.note or "",
    "min ms": lambda r: digits(r.min_ms),
    "first call ms": lambda r: digits(r.first_call_ms),
    "ratio to ours": lambda r: digits(r.ratio),
    "target": lambda r: r.target or "",
    "reached": lambda r: _yes(r.reached),
    "difference (allowed)": lambda r: (
        "" if r.difference is None else f"{r.difference:.1e} ({r.tolerance})"
    ),
}

Record = Row | Fact


@dataclasses.dataclass
class Section:
    """Results of one suite."""

    suite: str
    summary: str
    records: list[Record] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)


class Report:
    """Files of one run, complete after every suite: `DATE.md`, `DATE.jsonl` and `DATE.png`.

    Args:
      folder: for the files; a second go on the same day is `DATE-2`.
      quick: few rounds.
    """

    def __init__(self, folder: Path, *, quick: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.stem = _unused(folder / time.strftime("%Y-%m-%d"))
        self.quick = quick
        self.environment = _environment() | (
            {"sizes": "small (--quick): the times mean nothing"} if quick else {}
        )
        self.sections: list[Section] = []

    def add(self, suite: str, summary: str, cases: Iterable[Case | Fact]) -> bool:
        """Run a suite, print its results, and write the report so far.

        Returns:
          whether it ran to its end and all contestants that could run agreed with ours.
        """
        section = Section(suite, summary)
        self.sections.append(section)
        print(f"## {suite}: {summary}", flush=True)
        try:
            for case in cases:
                self._keep(section, case)
        except Exception as error:  # the results of the other suites must not be lost
            traceback.print_exc()
            section.failures.append(f"{suite} broke off: {type(error).__name__}: {error}")
        print("", *_conclusion(section), "", sep="\n", flush=True)
        picture = _picture.draw(self._lines())
        if picture is not None:
            picture.savefig(_file(self.stem, "png"), dpi=120)
        shown = _file(self.stem, "png").name if picture is not None else None
        _file(self.stem, "md").write_text(document(self.environment, self.sections, shown))
        return not section.failures

    def _keep(self, section: Section, case: Case | Fact) -> None:
        rounds = _harness.QUICK_ROUNDS if self.quick else _harness.ROUNDS
        rows = [case] if isinstance(case, Fact) else _harness.run_case(section.suite, case, rounds)
        for record in rows:
            before = section.records[-1] if section.records else None
            section.records.append(record)
            print(*_lines(before, record), sep="\n", flush=True)
            if isinstance(record, Row) and record.failed:
                section.failures.append(f"{record.case}: {record.contestant}: {record.note}")
            with _file(self.stem, "jsonl").open("a") as file:
                print(json.dumps(self._line(section, record)), file=file)

    def _line(self, section: Section, record: Record) -> dict[str, Any]:
        return {
            **dataclasses.asdict(record),
            "suite": section.suite,
            "environment": self.environment,
        }

    def _lines(self) -> list[dict[str, Any]]:
        return [self._line(s, record) for s in self.sections for record in s.records]


def document(environment: dict[str, str], sections: list[Section], picture: str | None) -> str:
    """Return the report in Markdown, the conclusions first."""
    lines = ["# Benchmarks", ""]
    lines += [f"- {key}: {text}" for key, text in environment.items()]
    lines += ["", f"![what follows as a picture]({picture})"] if picture else []
    lines += ["", "| suite | targets reached | not reached |", "| --- | --- | --- |"]
    for section in sections:
        with_target = [r for r in section.records if r.reached is not None]
        missed = [f"{_what(r)} ({r.target})" for r in with_target if not r.reached]
        reached = f"{len(with_target) - len(missed)} of {len(with_target)}" if with_target else ""
        lines.append(f"| {section.suite} | {reached} | {'; '.join(missed)} |")
    for section in sections:
        lines += ["", f"## {section.suite}: {section.summary}"]
        befores = [None, *section.records[:-1]]
        for before, record in zip(befores, section.records, strict=False):
            lines += _lines(before, record)
        lines += ["", *_conclusion(section)]
    return "\n".join(lines) + "\n"


def digits(number: float | None) -> str:
    """Format a number with three digits, and all digits before the point."""
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def _lines(before: Record | None, record: Record) -> Iterator[str]:
    """Return the record's line of its table, after the header if it is the first."""
    cells = _cells(record)
    if before is None or _table(before) != _table(record):
        yield ""
        if _table(record):
            yield f"{_table(record)}\n"
        yield "| " + " | ".join(cells) + " |"
        yield "|" + " --- |" * len(cells)
    yield "| " + " | ".join(cells.values()) + " |"


def _table(record: Record) -> str:
    return record.table if isinstance(record, Fact) else ""


def _cells(record: Record) -> dict[str, str]:
    if isinstance(record, Row):
        return {name: show(record) for name, show in _COLUMNS.items()}
    cells = {
        name: value if isinstance(value, str) else digits(value)
        for name, value in record.values.items()
    }
    if record.target is not None:
        cells |= {"target": record.target, "reached": _yes(record.reached)}
    return cells


def _what(record: Record) -> str:
    if isinstance(record, Row):
        return f"{record.contestant}, {record.case}: {digits(record.ratio)}"
    return ", ".join(value for value in record.values.values() if isinstance(value, str))


def _conclusion(section: Section) -> list[str]:
    with_target = [r for r in section.records if r.reached is not None]
    lines = []
    if with_target:
        lines.append(
            f"Targets reached: {sum(bool(r.reached) for r in with_target)} of {len(with_target)}."
        )
    return lines + [f"FAILED: {failure}" for failure in section.failures]


def _yes(reached: bool | None) -> str:
    return "" if reached is None else ("yes" if reached else "**no**")


def _file(stem: Path, kind: str) -> Path:
    return stem.with_name(f"{stem.name}.{kind}")


def _unused(stem: Path) -> Path:
    """Return `stem`, with a number appended if there is a report of that name."""
    number, free = 1, stem
    while _file(free, "jsonl").exists() or _file(free, "md").exists():
        number += 1
        free = stem.with_name(f"{stem.name}-{number}")
    return free


def _environment() -> dict[str, str]:
    """Return machine, versions and load."""
    cores = os.cpu_count() or 1
    environment = {
        "machine": f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}",
        "jax": ", ".join(sorted({d.device_kind for d in jax.devices()})),
        "python": platform.python_version(),
        "git": experiment.git_hash() or "not run from a repository",
    }
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        crowded = " (busy: run again when it is not)" if load > cores / 2 else ""
        environment["load before"] = f"{load:.1f}{crowded}"
    environment["versions"] = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    return environment


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
