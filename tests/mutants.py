"""Change one operator or constant at a time and see whether the tests of the same room notice.

    python tests/mutants.py --out mutants.jsonl --workers 2
    python tests/mutants.py --out mutants.jsonl --report

A development tool, not a test. Each mutant runs in a process of its own, in a clone of the committed
state. All of `losses` and `targets` and a seeded sample of the other rooms, stratified by file, are
tried; what `--out` already holds is not tried again. The tests most likely to notice run first.
"""

import argparse
import ast
import concurrent.futures
import json
import os
import pathlib
import queue
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
ALL = ("losses", "targets")  # every mutant of these is tried
SAMPLED = ("augment", "dynamics", "methods", "metrics", "posthoc")
TIMEOUT = 900  # seconds; a mutant that never ends is noticed

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


def tests_of(path: str, clone: pathlib.Path) -> list[list[str]]:
    """Return the test files of a module's room in the order to run them: its own first."""
    room, stem = path.split("/")[1], pathlib.Path(path).stem.lstrip("_")
    own = clone / "tests" / room
    first = [p for p in sorted(own.glob("test_*.py")) if stem in p.stem or p.stem[5:] in stem]
    numerics = clone / "tests" / "numerics" / f"test_{room}.py"
    rest = [p for p in sorted(own.glob("test_*.py")) if p not in first]
    rest += [numerics] if numerics.exists() else []
    return [list(map(str, group)) for group in (first, rest) if group]


def noticed(mutant: Mutant, clone: pathlib.Path) -> str:
    """Return "noticed", "missed" or "invalid" (no valid Python) for a mutant in a clone."""
    path = clone / mutant.path
    source = path.read_text()
    changed = source[: mutant.start] + mutant.new + source[mutant.end :]
    try:
        compile(changed, mutant.path, "exec")
    except SyntaxError:
        return "invalid"
    path.write_text(changed)
    environment = os.environ | {"PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        for files in tests_of(mutant.path, clone):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
            done = subprocess.run(
                command, cwd=clone, env=environment, capture_output=True, timeout=TIMEOUT
            )
            if done.returncode not in (0, 5):
                return "noticed"
        return "missed"
    except subprocess.TimeoutExpired:
        return "noticed"
    finally:
        path.write_text(source)


def run(mutants: list[Mutant], out: pathlib.Path, workers: int) -> None:
    """Try the mutants that `out` does not hold yet and append their outcomes."""
    done = {_key(row) for row in _rows(out)}
    waiting = [m for m in mutants if _key(m._asdict()) not in done]
    print(f"{len(mutants)} mutants, {len(waiting)} to try")
    with tempfile.TemporaryDirectory() as folder:
        clones: queue.Queue[pathlib.Path] = queue.Queue()
        for worker in range(workers):
            clone = pathlib.Path(folder) / str(worker)
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            clones.put(clone)
        lock = threading.Lock()

        def one(mutant: Mutant) -> None:
            clone = clones.get()
            outcome = noticed(mutant, clone)
            clones.put(clone)
            with lock, out.open("a") as file:
                file.write(json.dumps(mutant._asdict() | {"outcome": outcome}) + "\n")
                print(f"{outcome}: {mutant.path}:{mutant.line} {mutant.what}", flush=True)

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, waiting))


def report(out: pathlib.Path) -> str:
    """Return the share of noticed mutants by room, and those that were missed."""
    rows = [row for row in _rows(out) if row["outcome"] != "invalid"]
    lines = []
    for room in (*ALL, *SAMPLED):
        of_room = [row for row in rows if row["path"].split("/")[1] == room]
        caught = sum(row["outcome"] == "noticed" for row in of_room)
        lines.append(f"{room:<10}{caught:>5} of {len(of_room)}")
    lines += [
        f"missed: {row['path']}:{row['line']} {row['what']}"
        for row in rows
        if row["outcome"] == "missed"
    ]
    return "\n".join(lines)


def _rows(out: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("path", "start", "end", "new"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if not arguments.report:
        mutants = chosen(arguments.sample, arguments.seed)
        run(mutants, arguments.out, arguments.workers)
    print(report(arguments.out))


if __name__ == "__main__":
    main()
