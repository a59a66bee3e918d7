"""`import calib_jax`: light, and all rooms are found from it."""

import doctest
import importlib
import pathlib
import pkgutil
import subprocess
import sys

import pytest

import calib_jax

PACKAGE = pathlib.Path(calib_jax.__file__).parent
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
# Rooms whose public functions have examples.
WITH_EXAMPLES = ("evaluation", "llm", "report")


def _run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_else() -> None:
    modules = _run("import sys, calib_jax; print(*sys.modules)").split()
    assert [name for name in modules if name.startswith("calib_jax.")] == []
    assert not {"jax", "numpy", "flax"} & set(modules)


def test_rooms_are_attributes() -> None:
    script = "import calib_jax; print(calib_jax.metrics.ece.__name__, calib_jax.posthoc.__name__)"
    assert _run(script).split() == ["ece", "calib_jax.posthoc"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_listed_and_found(room: str) -> None:
    assert room in dir(calib_jax)
    assert getattr(calib_jax, room) is importlib.import_module(f"calib_jax.{room}")


def test_arrays_only_rooms_load_no_framework_but_jax() -> None:
    script = "import sys; from calib_jax import losses, metrics, posthoc; print(*sys.modules)"
    others = {"torch", "tensorflow", "tensorflow_datasets", "flax", "transformers", "matplotlib"}
    assert not others & set(_run(script).split())


def test_commands_load_heavy_libraries_only_when_they_need_them() -> None:
    script = "import sys, calib_jax.main, calib_jax.predict; print(*sys.modules)"
    heavy = {"tensorflow_datasets", "transformers", "grain", "array_record", "pyarrow", "datasets"}
    heavy |= {"torch", "tensorflow", "sklearn", "huggingface_hub", "matplotlib.pyplot"}
    assert not heavy & set(_run(script).split())


def test_other_names_are_errors() -> None:
    with pytest.raises(AttributeError, match="module 'calib_jax' has no attribute 'metric'"):
        calib_jax.metric  # noqa: B018
    assert "__version__" in dir(calib_jax)


def test_types_are_published() -> None:
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("room", WITH_EXAMPLES)
def test_examples_in_docstrings(room: str) -> None:
    attempted = 0
    for module in pkgutil.iter_modules([str(PACKAGE / room)]):
        if module.name != "__main__":
            found = doctest.testmod(importlib.import_module(f"calib_jax.{room}.{module.name}"))
            assert found.failed == 0, module.name
            attempted += found.attempted
    assert attempted > 5
