"""The linter, the formatter and the type checker are part of the test command."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    ["ruff check .", "ruff format --check .", "mypy"],
)
def test_clean(command: str) -> None:
    module, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
