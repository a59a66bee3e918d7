"""Numbers of examples in a config's docstring are the config's own, or a published number named here."""

import ast
import importlib.util
import pathlib
import re
from typing import Any

import pytest

from calib_jax.data import _counts

CONFIGS = pathlib.Path(__file__).parent.parent / "configs"
FILES = {
    p.relative_to(CONFIGS).with_suffix("").as_posix(): p
    for p in CONFIGS.rglob("*.py")
    if not p.name.startswith("_")
}
_CIFAR, _IMAGENET = _counts.ROWS["cifar10"]["train"], _counts.ROWS["imagenet"]["validation"]
# What no value of the config says: sizes of published files, and of the parts that readers cut from them.
OTHERS = {
    "adafocal/cifar10": {_CIFAR - 5_000, 5_000},  # num_val of the reader
    "adafocal/imagenet": {50_000},  # num_val of the reader
    "adafocal/newsgroups_cnn": {20_000, 1_000},  # words, published for this network by others
    "autolabel/cifar": {_CIFAR, 5_000},
    "autolabel/imagenet": {_IMAGENET // 2, 50_000},
    "results/newsgroups_cnn": {60_000},  # rows of the file of vectors
}


def _values(config: Any) -> set[int]:
    found: set[int] = set()
    for value in config.values():
        if hasattr(value, "values"):
            found |= _values(value)
        elif isinstance(value, int):
            found.add(value)
    return found


@pytest.mark.parametrize("name", sorted(FILES))
def test_numbers_of_a_docstring(name: str) -> None:
    path = FILES[name]
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    told = {int(n.replace(",", "")) for n in re.findall(r"\d{1,3}(?:,\d{3})+", text)}
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(*list(getattr(module, "NETWORKS", ()))[:1])
    assert told - _values(config) <= OTHERS.get(name, set())
