"""The calibrators by name."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from calib_jax.posthoc._binned import HistogramBinning, Isotonic
from calib_jax.posthoc._ensemble import EnsembleTemperature
from calib_jax.posthoc._scaling import Dirichlet, FocalTemperature, VectorScaling
from calib_jax.posthoc._spline import Spline
from calib_jax.posthoc._temperature import Temperature

# name -> fit(logits, labels). Reports show the first whose name begins with `temperature` as "+T".
CALIBRATORS: dict[str, Callable[..., Any]] = {
    "temperature": Temperature.fit,
    "ets": EnsembleTemperature.fit,
    "spline": Spline.fit,
    "vector": VectorScaling.fit,
    "dirichlet": Dirichlet.fit,
    "isotonic": Isotonic.fit,
    "histogram": HistogramBinning.fit,
    "focal_temperature": FocalTemperature.fit,
    # As in the paper on emotions: T of 0.01, 0.02, …, 5 with the least ECE of ten bins.
    "temperature_ece": functools.partial(
        Temperature.fit, criterion="ece", num_bins=10, closed="left"
    ),
    # As in AdaFocal's paper: T of 0.1, 0.2, …, 10 with the least equal-mass ECE.
    "temperature_ece_mass": functools.partial(
        Temperature.fit, criterion="ece_mass", grid=np.arange(1, 101) / 10
    ),
}
