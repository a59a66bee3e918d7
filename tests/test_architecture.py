"""docs/architecture.md: its graph is the code's, every room is described, and a run has few steps."""

import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def _import_graph():
    spec = importlib.util.spec_from_file_location("import_graph", ROOT / "docs" / "import_graph.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_graph_is_current() -> None:
    assert _import_graph().document() == TEXT, "run: python docs/import_graph.py --write"


def test_implied_edges_are_left_out() -> None:
    edges = {("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")}
    assert _import_graph().reduced(edges) == {("a", "b"), ("b", "c"), ("c", "d")}


def test_every_room_is_described() -> None:
    rooms = {path.parent.name for path in (ROOT / "calib_jax").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", TEXT, flags=re.M)) == rooms


def test_a_run_has_at_most_twenty_steps() -> None:
    steps = [int(number) for number in re.findall(r"^\| (\d+) \|", TEXT, flags=re.M)]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) <= 20


def test_the_files_of_a_run_exist() -> None:
    (rows,) = re.findall(r"^## The path of one run\n(.*)", TEXT, flags=re.M | re.DOTALL)
    files = re.findall(r"`([\w/]+\.py)`", rows)
    assert len(files) > 20
    assert [f for f in files if not (ROOT / "calib_jax" / f).is_file()] == []
