"""Every code block of the README and of docs/ runs.

A document is read from top to bottom: its Python blocks run in order in one process, and its commands in
order in one folder that has the files which they name as examples.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from calib_jax import data

ROOT = pathlib.Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# The quickstart is compiled as users have it, the rest quickly, as in all tests.
AS_USERS = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}


def _blocks(file: pathlib.Path, language: str) -> list[str]:
    if file.name == "results.md":  # whose code reads the files of its runs
        return []
    return re.findall(rf"^```{language}\n(.*?)^```", file.read_text(), flags=re.M | re.DOTALL)


def _commands(file: pathlib.Path) -> list[str]:
    text = "".join(_blocks(file, "bash")).replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _without_setup(command: str) -> list[str]:
    """Return the arguments, without the steps that only create and fill a virtual environment."""
    steps = [s for s in command.split(" && ") if " venv " not in s and "pip install" not in s]
    (step,) = steps
    return shlex.split(step.replace(".venv/bin/python", "python"), comments=True)


def _run(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=AS_USERS if "configs/quickstart.py" in arguments else None,
        capture_output=True,
        text=True,
        timeout=600,
    )


def _write_examples(folder: pathlib.Path) -> None:
    """Write the files that the documents name as examples."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    logits = 4 * rng.normal(size=(300, 3)) + 3 * np.eye(3)[labels]
    for name in ("predictions", "validation", "test", "val", "a", "b"):
        noise = rng.normal(size=logits.shape)
        np.savez(folder / f"{name}.npz", logits=logits + noise, labels=labels)
    np.savez(folder / "new.npz", logits=logits)
    words = [["bad", "broken", "refund"], ["good", "great", "love"]]
    rows = [f"{' '.join(rng.choice(words[i % 2], 3))} number {i},{i % 2 + 1}" for i in range(60)]
    for name in ("mine.csv", "reviews.csv"):
        (folder / name).write_text("\n".join(["review,stars", *rows]) + "\n")


@pytest.mark.parametrize(
    "file", [f for f in FILES if _blocks(f, "python")], ids=lambda file: file.name
)
def test_python_blocks(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = _run("-c", "\n".join(_blocks(file, "python")), folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", [f for f in FILES if _commands(f)], ids=lambda file: file.name)
def test_commands(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    _write_examples(tmp_path)
    for command in _commands(file):
        program, *arguments = _without_setup(command)
        assert program == "python", f"only python commands are expected, got {command}"
        if "pytest" in arguments:
            # This very run; .ci/run takes the line from the README and runs it.
            assert "grep -m1 pytest README.md" in (ROOT / ".ci" / "run").read_text()
        elif "benchmarks" not in arguments:  # minutes long; test_benchmarks.py runs the harness
            done = _run(*arguments, folder=tmp_path)
            assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.parametrize("name", data.NAMES)
def test_every_data_set_has_its_place_in_the_documents(name: str, tmp_path: pathlib.Path) -> None:
    table, _, _ = (ROOT / "docs" / "data.md").read_text().partition("Parquet editions")
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{name}` |")]
    if name == "digits" or name in data.FORMATS:
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
    first, second, *_ = _commands(ROOT / "README.md")
    assert "calib_jax.main --config configs/quickstart.py" in first
    assert "pytest" in second
