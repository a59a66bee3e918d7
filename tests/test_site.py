"""The documentation: links and anchors resolve, generated pages are current, the site builds offline."""

import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

from calib_jax import data, methods

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
TEXTS = sorted([*ROOT.glob("*.md"), ROOT / "launch" / "README.md", *DOCS.rglob("*.md")])
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))


def _script(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _markdown(path: pathlib.Path) -> str:
    """Return the prose of a document, without code blocks."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(path: pathlib.Path) -> set[str]:
    """Return the anchors of all titles, as GitHub and MkDocs make them."""
    titles = re.findall(r"^#+ (.+)$", _markdown(path), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {"-".join(w.split()) for w in words}


@pytest.mark.parametrize("path", [*TEXTS, *NOTEBOOKS], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(path: pathlib.Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", _markdown(path)))
    for link in links:
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name}: {link}"
        if anchor:
            assert anchor in _anchors(target), f"{path.name}: {link}"


def test_every_document_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for path in [*DOCS.rglob("*.md"), *NOTEBOOKS]:
        assert f" {path.relative_to(DOCS).with_suffix('.md')}\n" in navigation, path


def test_generated_pages_are_current() -> None:
    generate = _script("generate")
    for path, text in generate.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python docs/generate.py --write"


def test_generated_pages_know_all_methods_and_sets() -> None:
    generate = _script("generate")
    assert set(generate.METHODS) == set(methods.NAMES)
    published = set(data.NAMES) - set(data.FORMATS) - set(generate.GENERATED)
    assert set(generate.DATA_SETS) == published


def test_the_site_builds_without_warnings_and_fetches_nothing(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # that the theme has a successor
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for room in DOCS.parent.glob("calib_jax/*/__init__.py"):
        page = (tmp_path / "api" / f"{room.parent.name}.html").read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(room.read_text()))
        names = [a.asname for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
        for name in filter(None, names):
            name = f"calib_jax.{room.parent.name}.{name}"
            assert f'id="{name}"' in page, f"{name} is not in the API reference"
    assert (tmp_path / "search" / "search_index.js").exists()  # readable from a file
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert fetched == [], page


def test_config_lines_of_methods_are_right() -> None:
    generate = _script("generate")
    for line, names in generate.CONFIGS.items():
        name, _, argument = line.partition(":")
        path = ROOT / "configs" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"configs_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config = module.get_config(*([argument] if argument else []))
        assert set(names) <= set(methods.NAMES)
        assert set(names) <= set(config.method)
