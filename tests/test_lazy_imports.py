"""What is imported, and when: nothing before it is needed."""

import ast
import pathlib
import subprocess
import sys

import calib_jax
from calib_jax import report

PACKAGE = pathlib.Path(calib_jax.__file__).parent


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_losses_import_jax_and_nothing_else_of_weight() -> None:
    assert not modules_after("import calib_jax.losses") & {
        *("flax", "optax", "sklearn", "matplotlib", "orbax", "pandas", "torch"),
    }


def test_the_command_imports_what_its_first_step_needs() -> None:
    assert not modules_after("import calib_jax.main") & {
        *("matplotlib", "orbax.checkpoint", "flax.nnx", "sklearn", "transformers", "torch"),
    }


def test_the_report_finds_each_name_in_its_module() -> None:
    tree = ast.parse((PACKAGE / "report" / "__init__.py").read_text())
    imported = {
        alias.name: node.module.rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("calib_jax.report.")
        for alias in node.names
    }
    assert imported == report._MODULES
    assert set(imported) <= set(dir(report))
    for name in imported:
        assert getattr(report, name) is not None
