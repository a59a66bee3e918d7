"""The examples in docstrings of networks, and those of docs/networks.md."""

import doctest
import pathlib
import re
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from calib_jax.models import _create, _hub, _pretrained
from calib_jax.train import _network, _nnx

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "networks.md"


@pytest.mark.parametrize("module", [_create, _hub, _pretrained, _network, _nnx])
def test_docstrings(module: ModuleType) -> None:
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0


def test_modules_of_the_documentation() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S):
        exec(block, names)
    images = {"image": np.zeros((2, 8, 8, 1), np.float32)}
    for network in (names["linen_network"], names["nnx_network"]):
        params, state = jax.eval_shape(network.init, jax.random.key(0), images)
        logits = jax.eval_shape(lambda p, s, n=network: n.bind(s)(p, images)[0], params, state)
        assert logits.shape == (2, 10)
        assert network.cuts() == ()
