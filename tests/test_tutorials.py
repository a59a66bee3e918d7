"""The tutorials run, in at most a minute each, and their stored outputs are those of their code."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def _code(path: pathlib.Path) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_eight() -> None:
    assert [path.name[0] for path in NOTEBOOKS] == list("12345678")


# Up to a minute each: `.ci/run` runs them after the default tests.
@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tutorial_runs(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n\n".join(_code(path))],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=900,  # a minute where nothing else runs
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_belong_to_the_code(path: pathlib.Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if any(cell.get("outputs") for cell in notebook["cells"]):
        expected = hashlib.sha256("\n".join(_code(path)).encode()).hexdigest()
        assert notebook["metadata"]["code_hash"] == expected, "run python docs/notebooks.py"
    assert path.stat().st_size < 400_000
