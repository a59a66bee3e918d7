"""Methods by name."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from calib_jax._hints import expected_one_of
from calib_jax.methods._augmented import AUGMENTED
from calib_jax.methods._base import Method
from calib_jax.methods._informed_mixup import informed_mixup
from calib_jax.methods._lcl import lcl
from calib_jax.methods._mixup import mixup
from calib_jax.methods._objectives import OBJECTIVES, Objective
from calib_jax.methods._recipe import Phase, Recipe
from calib_jax.methods._self_distillation import self_distillation
from calib_jax.methods._supervised import supervised

_BUILDERS: dict[str, Callable[..., Objective | Method | Recipe]] = {
    **OBJECTIVES,
    "mixup": mixup,
    "aum_mixup": informed_mixup,
    "sim_mixup": partial(informed_mixup, categorise="data_map", alpha=5.0),
    "ea_mixup": partial(
        informed_mixup, categorise="data_map", share=0.33, alpha=5.0, partners="random"
    ),
    "sd": partial(self_distillation, calibrated=False),
    "csd": self_distillation,
    "lcl": lcl,
    **AUGMENTED,
}
NAMES = tuple(_BUILDERS)


def recipe(name: str, **options: Any) -> Recipe:
    """Return the recipe of a method.

    Args:
      name: One of `NAMES`. The name of an objective means ordinary training with it.
      **options: Options of the method; see `options(name)`.
    """
    check_name(name)
    made = _BUILDERS[name](**options)
    if isinstance(made, Recipe):
        return made
    method = supervised(made) if isinstance(made, Objective) else made
    return Recipe((Phase("train", method),))


def create(name: str, **options: Any) -> Method:
    """Return the method of the last phase of a recipe; see `recipe`."""
    return recipe(name, **options).phases[-1].method


def options(name: str) -> dict[str, Any]:
    """The options of a method with their defaults."""
    check_name(name)
    parameters = inspect.signature(_BUILDERS[name]).parameters
    return {key: parameter.default for key, parameter in parameters.items()}


def check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"method={name!r}: {expected_one_of(name, NAMES)}")
