"""What the site adds to the files in docs/: API pages, notebooks as pages, files of the repository."""

import ast
import base64
import pathlib
import re
import sys

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # MkDocs loads this file by itself

from graph import graph_svg

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "calib_jax"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
# Files of the repository that are pages, too.
REPOSITORY = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "launch/README.md": "launch.md",
}
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+)\)")
_CODE_LINK = re.compile(r"`((?:docs/[\w/]+|CONTRIBUTING|CHANGELOG|launch/README)\.md)`")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of all rooms in the navigation."""
    for entry in config.nav or []:
        if "API reference" in entry:
            entry["API reference"] = ["api/index.md", *(f"api/{room}.md" for room in ROOMS)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no file in docs/."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            for uri, content in notebook_files(file.src_uri).items():
                files.append(File.generated(config, uri, content=content))
    files.append(File.generated(config, "api/index.md", content=api_index()))
    for room in ROOMS:
        files.append(File.generated(config, f"api/{room}.md", content=api_page(room)))
    for source, uri in REPOSITORY.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw graphs, make links of names of documents, and let links to notebooks find their pages."""
    uri = page.file.src_uri
    if uri == "changelog.md":  # names files as they were
        return markdown
    markdown = _MERMAID.sub(lambda found: graph_svg(found.group(1)), markdown)
    markdown = _CODE_LINK.sub(lambda found: _page_link(found, uri, files), markdown)
    return _LINK.sub(lambda found: f"]({_target(found.group(1), uri)})", markdown)


def public_names(room: str) -> list[str]:
    """Return the names that a room exports: those imported as themselves in its `__init__.py`."""
    tree = ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in imports for alias in node.names if alias.name == alias.asname]


def api_page(room: str) -> str:
    """Return the page of a room: all public names from their docstrings."""
    members = "".join(f"        - {name}\n" for name in public_names(room))
    return f"# {room}\n\n::: calib_jax.{room}\n    options:\n      members:\n{members}"


def api_index() -> str:
    """Return the page that lists the rooms."""
    rows = []
    for room in ROOMS:
        doc = (
            ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))) or ""
        )
        rows.append(f"| [`calib_jax.{room}`]({room}.md) | {doc.splitlines()[0]} |")
    head = "# API reference\n\nEvery public name: shapes, references, examples that tests run.\n"
    return "\n".join([head, "| package | content |", "|---|---|", *rows, ""])


def notebook_files(uri: str) -> dict[str, str | bytes]:
    """Return a notebook as a Markdown page, and its pictures, by their addresses."""
    notebook = nbformat.read(ROOT / "docs" / uri, as_version=4)
    stem = uri.removesuffix(".ipynb")
    name = stem.rpartition("/")[2]
    parts: list[str] = []
    pictures: dict[str, str | bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        text = ""
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}_{len(pictures)}.png"
                pictures[f"{stem}_{len(pictures)}.png"] = base64.b64decode(data["image/png"])
                parts += [*_text_block(text), f"![Output of the code above]({picture})"]
                text = ""
            else:
                text += output.get("text") or data.get("text/plain", "")
        parts += _text_block(text)
    title, _, rest = "\n\n".join(parts).partition("\n")
    file = f'<p><a href="{name}.ipynb">This page as a notebook</a></p>'
    return {f"{stem}.md": f"{title}\n\n{file}\n{rest}\n", **pictures}


def _text_block(text: str) -> list[str]:
    return [f"```{{.text .output}}\n{text.rstrip()}\n```"] if text.strip() else []


def _page_link(found: re.Match[str], uri: str, files: Files) -> str:
    """Return `docs/x.md` in code type as a link to the page."""
    name = found.group(1)
    target = REPOSITORY.get(name, name.removeprefix("docs/"))
    if files.get_file_from_path(target) is None or target == uri:
        return found.group(0)
    up = "../" * uri.count("/")
    return f"[{found.group(0)}]({up}{target})"


def _target(link: str, uri: str) -> str:
    """Return a link that works on GitHub as one that works on the site."""
    path, hash_, anchor = link.partition("#")
    path = re.sub(r"\.ipynb$", ".md", path)
    if uri in REPOSITORY.values():
        path = path.removeprefix("../").removeprefix("docs/")
    return path + hash_ + anchor
