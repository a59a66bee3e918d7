"""Change one operator or constant at a time and see whether the tests of the same room notice.

    python tests/mutants.py --out mutants.jsonl --workers 2
    python tests/mutants.py --out mutants.jsonl --report

A development tool, not a test. All of `losses` and `targets` and a seeded sample of the other rooms,
stratified by file, are tried; what `--out` already holds is not tried again.

First the tests of each room run once and record which of them execute which lines (`--out` with the
room and `.json` as its suffix). Each mutant is then tried with the tests that execute its line,
cheapest first, in a process that imports the package again for every mutant; nothing is forked, which
could deadlock JAX. `--control` runs the tests that noticed a mutant without any: all have to pass.
"""

import argparse
import ast
import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
ALL = ("losses", "targets")  # every mutant of these is tried
SAMPLED = ("augment", "dynamics", "methods", "metrics", "posthoc")
ROOMS = (*ALL, *SAMPLED)
TIMEOUT = 900  # seconds; a mutant that never ends is noticed
SECONDS = (
    150  # of tests for one mutant, as recorded (with tracing, several times as long as without)
)
BATCH = 40  # mutants of one process

OPERATORS: dict[type, str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.Pow: "*", ast.FloorDiv: "*",
    ast.Mod: "//", ast.BitAnd: "|", ast.BitOr: "&", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=",
    ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.And: "or", ast.Or: "and",
}  # fmt: skip
NAMES = {"minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin"}


class Mutant(NamedTuple):
    """A replacement of `path[start:end]`, by character offsets."""

    path: str
    line: int
    start: int
    end: int
    new: str
    what: str


def mutants_of(path: pathlib.Path) -> Iterator[Mutant]:
    """Yield every mutant of a file: arithmetic, comparisons, signs, numbers, booleans, min and max."""
    source = path.read_text()
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines()

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def mutant(node: Any, start: int, end: int, new: str) -> Mutant:
        what = f"{source[start:end]} -> {new}"
        return Mutant(path.relative_to(ROOT).as_posix(), node.lineno, start, end, new, what)

    def between(left: Any, right: Any, old: str, new: str, node: Any) -> Iterator[Mutant]:
        start = offset(left.end_lineno, left.end_col_offset)
        end = offset(right.lineno, right.col_offset)
        at = source.find(old, start, end)
        if at >= 0:
            yield mutant(node, at, at + len(old), new)

    ignored = _ignored(tree)
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield from between(
                node.left, node.right, _symbol(node.op), OPERATORS[type(node.op)], node
            )
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            old, new = f"{_symbol(node.op)}=", f"{OPERATORS[type(node.op)]}="
            yield from between(node.target, node.value, old, new, node)
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
            old, new = _symbol(node.ops[0]), OPERATORS[type(node.ops[0])]
            yield from between(node.left, node.comparators[0], old, new, node)
        elif isinstance(node, ast.BoolOp):
            old, new = _symbol(node.op), OPERATORS[type(node.op)]
            yield from between(node.values[0], node.values[1], old, new, node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            start = offset(node.lineno, node.col_offset)
            end = offset(node.operand.lineno, node.operand.col_offset)
            yield mutant(node, start, end, "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            start = offset(node.lineno, node.col_offset)
            end = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
            yield mutant(node, start, end, _other_number(node.value))
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            end = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
            yield mutant(node, end - len(node.attr), end, NAMES[node.attr])


def _other_number(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return str(not value)
    return str(value + 1) if isinstance(value, int) else repr(1.5 * value or 0.5)


def _symbol(operator: ast.AST) -> str:
    symbols = {
        ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.Mod: "%",
        ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|", ast.Lt: "<", ast.LtE: "<=",
        ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.And: "and", ast.Or: "or",
    }  # fmt: skip
    return symbols[type(operator)]


def _ignored(tree: ast.AST) -> set[int]:
    """Return the ids of nodes that change no number: annotations, messages, static arguments' lists."""
    ignored: set[int] = set()
    for node in ast.walk(tree):
        unused: list[Any] = []
        if isinstance(node, ast.Raise):
            unused.append(node)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            unused.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            unused.append(node.returns)
        elif isinstance(node, ast.JoinedStr):
            unused.append(node)
        elif isinstance(node, ast.Assign) and node.col_offset == 0 and _is_union(node.value):
            unused.append(node.value)  # `Array = jax.Array | np.ndarray`
        elif isinstance(node, ast.keyword) and node.arg == "axis":
            ignored.add(id(node.value))  # the sign of -1: of two axes, 1 is the same
        elif isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == "shape":
            ignored |= {id(n) for n in ast.walk(node.slice) if isinstance(n, ast.UnaryOp)}
        for part in filter(None, unused):
            ignored |= {id(child) for child in ast.walk(part)}
    return ignored


def _is_union(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def chosen(sample: int, seed: int) -> list[Mutant]:
    """Return all mutants of `ALL` and a sample of the others, each file in proportion to its mutants."""
    picked = [m for room in ALL for p in _files(room) for m in mutants_of(p)]
    by_file = {path: list(mutants_of(path)) for room in SAMPLED for path in _files(room)}
    total = sum(map(len, by_file.values()))
    rng = random.Random(seed)
    for mutants in by_file.values():
        number = min(len(mutants), max(1, round(sample * len(mutants) / total)) if mutants else 0)
        picked += sorted(rng.sample(mutants, number))
    rng.shuffle(picked)
    return picked


def _files(room: str) -> list[pathlib.Path]:
    return sorted((ROOT / "calib_jax" / room).glob("_[a-z]*.py"))


def tests_of(path: str, clone: pathlib.Path) -> list[str]:
    """Return the test files of a module's room, its own first."""
    room, stem = path.split("/")[1], pathlib.Path(path).stem.lstrip("_")
    files = sorted((clone / "tests" / room).glob("test_*.py"))
    files.sort(key=lambda p: not (stem in p.stem or p.stem[5:] in stem))
    return [str(p.relative_to(clone)) for p in files]


def run_pytest(*arguments: str, plugins: tuple[Any, ...] = ()) -> None:
    """Run tests in this process, with the package and the tests imported anew."""
    here = str(pathlib.Path.cwd())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(here) and name != "__main__":
            del sys.modules[name]
    import jax
    import pytest

    jax.clear_caches()
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=")
    mode = ("--import-mode=importlib", "-m", "not slow")
    with (
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        pytest.main([*options, *mode, *arguments], plugins=list(plugins))


class Outcomes:
    """A pytest plugin: the tests that passed, and those that failed or could not be collected."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class LineRecorder:
    """A pytest plugin: the lines of the package that each test executes, and its seconds."""

    def __init__(self) -> None:
        self.tests: list[tuple[float, str, list[str]]] = []
        self._package = str(pathlib.Path.cwd() / "calib_jax") + os.sep
        self._lines: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._lines, self._start = set(), time.process_time()
        sys.settrace(self._trace)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        self.tests.append((time.process_time() - self._start, nodeid, sorted(self._lines)))

    def _trace(self, frame: Any, event: str, arg: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self._package):
            return None
        self._lines.add(f"calib_jax/{name.removeprefix(self._package)}:{frame.f_lineno}")
        return self._trace


def record_lines(room: str) -> None:
    """Print the seconds of a room's tests, and for each line those that execute it, cheapest first."""
    recorder, outcomes = LineRecorder(), Outcomes()
    files = tests_of(f"calib_jax/{room}/_", pathlib.Path.cwd())
    run_pytest(*files, plugins=(recorder, outcomes))
    passed = sorted(test for test in recorder.tests if test[1] in outcomes.passed)
    by_line: dict[str, list[int]] = {}
    for number, (_, _, lines) in enumerate(passed):
        for line in lines:
            by_line.setdefault(line, []).append(number)
    tests = [(round(seconds, 3), name) for seconds, name, _ in passed]
    print(json.dumps({"tests": tests, "lines": by_line, "failed": outcomes.failed}))


def tests_for(mutant: Mutant, recorded: dict[str, Any]) -> list[str]:
    """Return the tests that execute a mutant's line, cheapest first, up to `SECONDS`.

    Some lines of a statement are not executed on their own account, so lines shortly before it count;
    a line that runs at import is tried with all tests of its file.
    """
    lines = (f"{mutant.path}:{mutant.line - n}" for n in range(8))
    numbers = next((recorded["lines"][line] for line in lines if line in recorded["lines"]), None)
    if numbers is None:
        of_file = [v for k, v in recorded["lines"].items() if k.startswith(f"{mutant.path}:")]
        numbers = sorted(set().union(*of_file))
    tests, total = [], 0.0
    for number in numbers:
        seconds, name = recorded["tests"][number]
        total += seconds
        if total < SECONDS or not tests:
            tests.append(name)
    return tests


def try_batch() -> None:
    """Try the mutants on standard input, one JSON each with its tests; print an outcome for each.

    An outcome is the number of tests that passed and, if one failed, its name.
    """
    for line in sys.stdin:
        row = json.loads(line)
        mutant = Mutant(*(row[name] for name in Mutant._fields))
        outcomes = Outcomes()
        with changed(mutant, pathlib.Path.cwd()):
            run_pytest("-x", *row["tests"], plugins=(outcomes,))
        print(json.dumps([len(outcomes.passed), *outcomes.failed[:1]]), flush=True)


@contextlib.contextmanager
def changed(mutant: Mutant, clone: pathlib.Path) -> Iterator[None]:
    """Apply a mutant to a clone for a while."""
    path = clone / mutant.path
    source = path.read_text()
    path.write_text(source[: mutant.start] + mutant.new + source[mutant.end :])
    try:
        yield
    finally:
        path.write_text(source)


def is_valid(mutant: Mutant) -> bool:
    """Return whether a mutant is valid Python."""
    source = (ROOT / mutant.path).read_text()
    try:
        compile(source[: mutant.start] + mutant.new + source[mutant.end :], mutant.path, "exec")
    except SyntaxError:
        return False
    return True


class Worker:
    """A process with a clone, in which mutants are tried one after the other."""

    def __init__(self, clone: pathlib.Path) -> None:
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        self.clone = clone
        self.process: subprocess.Popen[str] | None = None
        self.tried = 0

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.clone / "tests" / "mutants.py"), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.clone), "PYTHONDONTWRITEBYTECODE": "1"}

    def try_one(self, mutant: Mutant, recorded: dict[str, Any]) -> dict[str, Any]:
        """Return the outcome ("noticed", "timeout", "missed", "invalid"), and by which test."""
        if not is_valid(mutant):
            return {"outcome": "invalid"}
        tests = tests_for(mutant, recorded)
        if not tests:
            return {"outcome": "missed", "tests": 0}
        answer = self.try_tests(mutant, tests)
        if answer is None:
            return {"outcome": "timeout"}
        passed, *failed = answer
        if failed:
            return {"outcome": "noticed", "by": failed[0]}
        return {"outcome": "missed", "tests": passed}

    def try_tests(self, mutant: Mutant, tests: list[str]) -> list[Any] | None:
        """Try a mutant with some tests in the long-lived process; None if it had to be ended."""
        if self.process is None or self.tried >= BATCH:
            self.stop()
            self.process = subprocess.Popen(
                self.command("--batch"),
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self.tried = 0
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.tried += 1
        self.process.stdin.write(json.dumps(mutant._asdict() | {"tests": tests}) + "\n")
        self.process.stdin.flush()
        watchdog = threading.Timer(TIMEOUT, self.process.kill)
        watchdog.start()
        answer = self.process.stdout.readline().strip()
        watchdog.cancel()
        if answer:
            return list(json.loads(answer))
        self.stop()  # killed by the watchdog or by the mutant
        subprocess.run(["git", "checkout", "-q", "."], cwd=self.clone, check=True)
        return None

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def run(mutants: list[Mutant], out: pathlib.Path, workers: int, limit: int | None) -> None:
    """Try the mutants that `out` does not hold yet, at most `limit`, and append their outcomes."""
    done = {_key(row) for row in _rows(out)}
    waiting = [m for m in mutants if _key(m._asdict()) not in done]
    print(f"{len(mutants)} mutants, {len(waiting)} to try", flush=True)
    waiting = waiting[:limit]
    with tempfile.TemporaryDirectory() as folder:
        pool: queue.Queue[Worker] = queue.Queue()
        for number in range(workers):
            pool.put(Worker(pathlib.Path(folder, str(number)).resolve()))
        recorded = _recorded(out, pool, workers)
        lock = threading.Lock()

        def one(mutant: Mutant) -> None:
            worker = pool.get()
            start = time.monotonic()
            outcome = worker.try_one(mutant, recorded[mutant.path.split("/")[1]])
            outcome["seconds"] = round(time.monotonic() - start, 1)
            pool.put(worker)
            with lock, out.open("a") as file:
                file.write(json.dumps(mutant._asdict() | outcome) + "\n")
                print(f"{outcome}: {mutant.path}:{mutant.line} {mutant.what}", flush=True)

        with concurrent.futures.ThreadPoolExecutor(workers) as threads:
            list(threads.map(one, waiting))
        while not pool.empty():
            pool.get().stop()


def _recorded(out: pathlib.Path, pool: "queue.Queue[Worker]", workers: int) -> dict[str, Any]:
    """Return what `record_lines` prints for each room, recorded once and kept in a file of its own."""

    def record(room: str) -> dict[str, Any]:
        path = out.with_suffix(f".{room}.json")
        if not path.exists():
            worker = pool.get()
            command = worker.command("--record", room)
            options: Any = {"cwd": worker.clone, "env": worker.environment}
            done = subprocess.run(command, capture_output=True, check=True, **options)
            pool.put(worker)
            path.write_bytes(done.stdout)
        recorded = dict(json.loads(path.read_text()))
        print(f"{room}: {len(recorded['tests'])} tests, failed: {recorded['failed']}", flush=True)
        return recorded

    with concurrent.futures.ThreadPoolExecutor(workers) as threads:
        return dict(zip(ROOMS, threads.map(record, ROOMS), strict=True))


def control(out: pathlib.Path) -> str:
    """Run the tests that noticed mutants twice without a mutant and return those that fail."""
    tests = sorted({row["by"] for row in _rows(out) if "by" in row and "::" in row["by"]})
    failed: set[str] = set()
    for _ in range(2):
        outcomes = Outcomes()
        run_pytest(*tests, plugins=(outcomes,))
        failed.update(outcomes.failed)
    return f"{len(tests)} tests without a mutant, failed: {sorted(failed)}"


def report(out: pathlib.Path) -> str:
    """Return the share of noticed mutants by room, and those that were missed."""
    rows = [row for row in _rows(out) if row["outcome"] != "invalid"]
    lines = []
    for room in ROOMS:
        of_room = [row for row in rows if row["path"].split("/")[1] == room]
        caught = sum(row["outcome"] in ("noticed", "timeout") for row in of_room)
        lines.append(f"{room:<10}{caught:>5} of {len(of_room)}")
    lines += [
        f"{row['outcome']}: {row['path']}:{row['line']} {row['what']}"
        for row in rows
        if row["outcome"] in ("missed", "timeout")
    ]
    return "\n".join(lines)


def _rows(out: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("path", "start", "end", "new"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="mutants.jsonl")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--limit", type=int, help="of mutants to try now; the next run goes on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--record", metavar="ROOM", help=argparse.SUPPRESS)
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.record:
        return record_lines(arguments.record)
    if arguments.batch:
        return try_batch()
    if arguments.control:
        return print(control(arguments.out))
    if not arguments.report:
        mutants = chosen(arguments.sample, arguments.seed)
        run(mutants, arguments.out, arguments.workers, arguments.limit)
    print(report(arguments.out))


if __name__ == "__main__":
    main()
