"""Every code block of the README and of docs/ runs."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from calib_jax import data

ROOT = pathlib.Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    block
    for file in FILES
    if file.name != "results.md"  # whose code reads the files of its runs
    for block in re.findall(r"^```(\w+)\n(.*?)^```", file.read_text(), flags=re.M | re.DOTALL)
]
# Compiled as users have it, not as the tests do.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
PYTHON = [code for language, code in BLOCKS if language == "python"]
COMMANDS = [
    line.strip()
    for language, code in BLOCKS
    if language == "bash"
    for line in code.splitlines()
    if line.strip() and not line.startswith("#")
]


def _work_of(command: str) -> str:
    """A command without the steps that only make and fill a virtual environment."""
    steps = [s for s in command.split(" && ") if " venv " not in s and "pip install" not in s]
    return " && ".join(steps)


def _run(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.splitlines()[0][:40])
def test_python_block(code: str, tmp_path: pathlib.Path) -> None:
    done = _run("-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, tmp_path: pathlib.Path) -> None:
    work = _work_of(command)
    if "pytest" in work:
        # This very run; .ci/run takes the line from the README and runs it.
        assert "grep -m1 pytest README.md" in (ROOT / ".ci" / "run").read_text()
        return
    if work.startswith("python -m benchmarks"):
        pytest.skip("minutes long and needs the bench extra; test_benchmarks.py runs the harness")
    arguments = shlex.split(work.replace(".venv/bin/python", "python"))
    assert arguments[0] == "python", f"only python commands are expected, got {work}"
    # Files that the commands name as examples.
    rng = "import numpy as np; r = np.random.default_rng(0); y = r.integers(0, 3, 300);"
    rng += "z = 4 * r.normal(size=(300, 3)) + 3 * np.eye(3)[y];"
    make = rng + "[np.savez(f, logits=z, labels=y) for f in ('predictions', 'validation')]"
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    done = _run(*arguments[1:], folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", data.NAMES)
def test_every_data_set_has_its_place_in_the_documents(name: str, tmp_path: pathlib.Path) -> None:
    table = (ROOT / "docs" / "data.md").read_text()
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{name}` |")]
    if name == "digits":
        return
    place = row.split("`")[3].rstrip("/")
    found, message = True, ""  # elsewhere on this machine, perhaps
    try:
        data.load(name, "test", tmp_path)
    except ValueError as error:
        found, message = False, str(error)
    assert found or f"/{place}" in message


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def test_documents_name_files_that_exist() -> None:
    folders = "benchmarks|calib_jax|configs|docs|launch|tests"
    for file in FILES:
        for path in re.findall(
            rf"`((?:{folders})/[\w./-]+\.(?:md|py|sh|sbatch))`", file.read_text()
        ):
            assert "DATE" in path or (ROOT / path).is_file(), f"{file.name}: {path}"


def test_the_readme_has_both_commands_first() -> None:
    assert len(COMMANDS) >= 2
    assert "calib_jax.main --config configs/quickstart.py" in COMMANDS[0]
    assert "pytest" in COMMANDS[1]
