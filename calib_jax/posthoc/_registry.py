"""The calibrators by name."""

import functools
from typing import Protocol

import numpy as np
from jax.typing import ArrayLike

from calib_jax.posthoc._auto import Auto
from calib_jax.posthoc._binary import Beta, Platt
from calib_jax.posthoc._binned import HistogramBinning
from calib_jax.posthoc._common import Calibrator
from calib_jax.posthoc._ensemble import EnsembleTemperature
from calib_jax.posthoc._isotonic import Isotonic
from calib_jax.posthoc._scaling import Dirichlet, FocalTemperature, VectorScaling
from calib_jax.posthoc._spline import Spline
from calib_jax.posthoc._structured import StructuredMatrixScaling, StructuredVectorScaling
from calib_jax.posthoc._temperature import Temperature


class Fit(Protocol):
    """How every calibrator is fitted."""

    def __call__(
        self,
        logits: ArrayLike,
        labels: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        check: bool = True,
    ) -> Calibrator: ...


#: How to fit each calibrator, by name. Reports show the first whose name begins with `temperature` as
#: "+T".
CALIBRATORS: dict[str, Fit] = {
    "temperature": Temperature.fit,
    "ets": EnsembleTemperature.fit,
    "spline": Spline.fit,
    "vector": VectorScaling.fit,
    "svs": StructuredVectorScaling.fit,
    "sms": StructuredMatrixScaling.fit,
    "dirichlet": Dirichlet.fit,
    "isotonic": Isotonic.fit,
    "histogram": HistogramBinning.fit,
    "focal_temperature": FocalTemperature.fit,
    "platt": Platt.fit,
    "beta": Beta.fit,
    "auto": Auto.fit,
    # As in the paper on emotions: T of 0.01, 0.02, …, 5 with the least ECE of ten bins.
    "temperature_ece": functools.partial(
        Temperature.fit, criterion="ece", num_bins=10, closed="left"
    ),
    # As in AdaFocal's paper: T of 0.1, 0.2, …, 10 with the least equal-mass ECE.
    "temperature_ece_mass": functools.partial(
        Temperature.fit, criterion="ece_mass", grid=np.arange(1, 101) / 10
    ),
}

#: Names of those that also take independent labels, `[n]` or `[n, num_labels]`.
LABEL_CALIBRATORS: tuple[str, ...] = ("platt", "beta", "isotonic")
