"""Post-hoc calibration: fit on held-out logits, then call on others to get probabilities.

Each calibrator is a frozen pytree dataclass: `calibrator = Temperature.fit(logits, labels)` and
`probs = calibrator(other_logits)`, which may be jitted, vmapped, saved and sharded like any array.
"""

from calib_jax.posthoc._binned import HistogramBinning as HistogramBinning
from calib_jax.posthoc._binned import Isotonic as Isotonic
from calib_jax.posthoc._common import logits_from_probs as logits_from_probs
from calib_jax.posthoc._common import looks_like_probabilities as looks_like_probabilities
from calib_jax.posthoc._ensemble import EnsembleTemperature as EnsembleTemperature
from calib_jax.posthoc._registry import CALIBRATORS as CALIBRATORS
from calib_jax.posthoc._scaling import Dirichlet as Dirichlet
from calib_jax.posthoc._scaling import FocalTemperature as FocalTemperature
from calib_jax.posthoc._scaling import VectorScaling as VectorScaling
from calib_jax.posthoc._spline import Spline as Spline
from calib_jax.posthoc._temperature import Temperature as Temperature
