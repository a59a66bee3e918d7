"""A line of code knows its room: what each package may import."""

import ast
import pathlib
import sys

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
    # Calibrators are saved and loaded.
    "posthoc": {
        *("calib_jax._io", "calib_jax.metrics", "json", "optax", "pathlib", "sklearn"),
        *("zipfile", "zlib"),
    },
}
EVERYWHERE = {
    "jax",
    "numpy",
    "calib_jax._arrays",
    "calib_jax._cpu",
    "calib_jax._hints",
    "collections",
    "dataclasses",
    "functools",
}
EVERYWHERE |= {"itertools", "math", "types", "typing"}


# Rooms that also use the standard library.
LIBRARIES = {
    "models": {"flax", "huggingface_hub", "safetensors"},
    "data": {
        *("PIL", "absl", "datasets", "grain", "huggingface_hub", "pyarrow"),
        *("scipy", "sklearn", "tensorflow_datasets", "transformers"),
    },
    "train": {
        *("calib_jax.data", "calib_jax.methods", "calib_jax.metrics"),
        *("flax", "optax", "orbax", "tensorboardX", "tqdm"),
    },
    "report": {"calib_jax.metrics", "jinja2", "matplotlib"},
    # Predictions of any origin: nothing here knows how a network is trained.
    # Its command prints and draws, by the report.
    "evaluation": {
        *(f"calib_jax.{room}" for room in ("augment", "losses", "metrics", "posthoc", "report")),
        *("pyarrow", "scipy"),
    },
    "llm": {
        *("calib_jax.data", "calib_jax.evaluation", "calib_jax.metrics", "calib_jax.report"),
        "tqdm",
    },
    # Everything but the language models, which train nothing.
    "experiment": {
        *(f"calib_jax.{room}" for room in ALLOWED),
        *(f"calib_jax.{room}" for room in ("data", "evaluation", "models", "report", "train")),
        *("absl", "flax", "ml_collections", "optax", "pyarrow"),
    },
}
# A command imports the rooms that do its work; main.py says how a training ended, too.
COMMANDS = {
    "cli.py": set(),  # imports the module of the command that is asked for
    "main.py": {"experiment", "report", "train"},
    "evaluate.py": {"evaluation", "posthoc", "report"},
    "predict.py": {"experiment"},
    "llm/__main__.py": {"llm"},
}
# What is no room's own: small modules that every room beyond the arrays-only ones may use.
SHARED = {
    f"calib_jax.{name}"
    for name in (
        "_arrays",
        "_cpu",
        "_hints",
        "_hub",
        "_io",
        "_locks",
        "_signals",
        "_startup",
        "__version__",
    )
}


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


@pytest.mark.parametrize("room", LIBRARIES)
def test_other_rooms_use_what_they_are_for(room: str) -> None:
    allowed = {*LIBRARIES[room], *SHARED, "jax", "numpy"}
    for path in (PACKAGE / room).glob("*.py"):
        for name in _imports(path):
            if name.partition(".")[0] in sys.stdlib_module_names:
                continue
            own = name.startswith(f"calib_jax.{room}")
            assert own or any(name == a or name.startswith(a + ".") for a in allowed), (path, name)


def test_every_room_has_its_rules() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == ALLOWED.keys() | LIBRARIES.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_use_few_rooms(command: str) -> None:
    imported = {name for name in _imports(PACKAGE / command) if name.startswith("calib_jax.")}
    allowed = {f"calib_jax.{room}" for room in COMMANDS[command]}
    assert imported - SHARED <= allowed


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_flags_and_little_else(command: str) -> None:
    assert len((PACKAGE / command).read_text().splitlines()) < 100


def test_files_stay_small() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path.name
