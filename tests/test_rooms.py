"""A line of code knows its room: what each package may import."""

import ast
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent / "calib_jax"

# Beyond the standard library, jax, numpy and calib_jax._arrays, which all rooms may use.
ALLOWED = {
    "targets": set(),
    "metrics": set(),
    "dynamics": set(),
    "losses": {"calib_jax.metrics"},  # AdaFocal and CalFocal bin by the one binning core
    "augment": set(),
    "methods": {
        *("calib_jax.augment", "calib_jax.dynamics", "calib_jax.losses", "calib_jax.metrics"),
        *("calib_jax.targets", "inspect", "types"),
    },
    "posthoc": {"calib_jax.metrics", "optax", "sklearn"},
}
EVERYWHERE = {
    "jax",
    "numpy",
    "calib_jax._arrays",
    "calib_jax._hints",
    "collections",
    "dataclasses",
    "functools",
}
EVERYWHERE |= {"itertools", "math", "types", "typing"}


def _imports(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if base == "calib_jax":
                found |= {f"calib_jax.{alias.name}" for alias in node.names}
            else:
                found.add(base)
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_arrays_only_rooms_import_nothing_else(room: str) -> None:
    for path in (PACKAGE / room).glob("*.py"):
        for name in _imports(path):
            own = name.startswith(f"calib_jax.{room}")
            allowed = EVERYWHERE | ALLOWED[room]
            ok = own or any(name == a or name.startswith(a + ".") for a in allowed)
            assert ok, f"{path.name} imports {name}"


def test_files_stay_small() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path.name
