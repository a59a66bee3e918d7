"""Train classifiers whose confidence can be trusted, in JAX, and measure whether it can.

Rooms are imported on first use: `import calib_jax; calib_jax.metrics.ece(…)`.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calib_jax import augment as augment
    from calib_jax import data as data
    from calib_jax import dynamics as dynamics
    from calib_jax import evaluation as evaluation
    from calib_jax import experiment as experiment
    from calib_jax import llm as llm
    from calib_jax import losses as losses
    from calib_jax import methods as methods
    from calib_jax import metrics as metrics
    from calib_jax import models as models
    from calib_jax import posthoc as posthoc
    from calib_jax import report as report
    from calib_jax import targets as targets
    from calib_jax import train as train

__version__ = "0.2.0"

_ROOMS = (
    *("augment", "data", "dynamics", "evaluation", "experiment", "llm", "losses", "methods"),
    *("metrics", "models", "posthoc", "report", "targets", "train"),
)


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"calib_jax.{name}")
    raise AttributeError(f"module 'calib_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
