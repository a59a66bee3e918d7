"""Every public function of the arrays-only rooms and of methods has an example that is right."""

import doctest
import inspect
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import augment, dynamics, losses, methods, metrics, posthoc, targets

ROOMS = {
    "augment": augment,
    "dynamics": dynamics,
    "losses": losses,
    "methods": methods,
    "metrics": metrics,
    "posthoc": posthoc,
    "targets": targets,
}


def _has_behavior(public: Any) -> bool:
    """Whether it is a function or a calibrator; results and states are explained by what makes them."""
    if inspect.isclass(public):
        return hasattr(public, "fit")
    is_type = typing.get_origin(public) is not None
    return callable(public) and not is_type


PUBLIC = {
    f"{room}.{name}": public
    for room, module in ROOMS.items()
    for name, public in vars(module).items()
    if not name.startswith("_") and not inspect.ismodule(public) and _has_behavior(public)
}


@pytest.mark.parametrize("name", PUBLIC)
def test_example(name: str) -> None:
    public = PUBLIC[name]
    module = inspect.getmodule(inspect.unwrap(public))
    names = vars(module) | ROOMS | {"jax": jax, "jnp": jnp, "np": np}
    example = doctest.DocTestParser().get_doctest(public.__doc__ or "", names, name, None, 0)
    assert example.examples, f"{name} has no >>> example"
    report: list[str] = []
    failed = doctest.DocTestRunner().run(example, out=report.append).failed
    assert not failed, "".join(report)
