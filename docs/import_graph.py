"""Print which packages of calib_jax import which, as a Mermaid graph: the one in docs/architecture.md.

python docs/import_graph.py          print the graph
python docs/import_graph.py --write  put it into docs/architecture.md
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "calib_jax"
DOCUMENT = ROOT / "docs" / "architecture.md"


def imports(path: pathlib.Path) -> set[str]:
    """Return the names after `calib_jax.` of all imports in a file, wherever they stand."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "calib_jax":
            names |= {f"calib_jax.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.split(".")[1] for name in names if name.startswith("calib_jax.")}


def edges() -> set[tuple[str, str]]:
    """Return pairs (importer, imported) of packages and commands, without private modules."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0].startswith("_"):
            continue
        names = {name for name in imports(path) if not name.startswith("_")}
        found |= {(parts[0], name) for name in names if name != parts[0]}
    return found


def reduced(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges that no longer path implies (the transitive reduction of an acyclic graph)."""

    def reachable(start: str, without: tuple[str, str]) -> set[str]:
        seen: set[str] = set()
        pending = [start]
        while pending:
            node = pending.pop()
            for a, b in pairs - {without}:
                if a == node and b not in seen:
                    seen.add(b)
                    pending.append(b)
        return seen

    return {edge for edge in pairs if edge[1] not in reachable(edge[0], edge)}


def graph() -> str:
    """Return the Mermaid source of the reduced import graph."""
    lines = [f"    {a} --> {b}" for a, b in sorted(reduced(edges()))]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def document() -> str:
    """Return the text of docs/architecture.md with its graph replaced by the current one."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.sub(r"```mermaid\n.*?```", lambda _: graph(), text, flags=re.DOTALL)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(document(), encoding="utf-8")
    else:
        print(graph())
