"""Post-hoc calibration: fit on held-out logits, then call on others to get probabilities.

Each calibrator is a frozen pytree dataclass: `calibrator = Temperature.fit(logits, labels)` and
`probs = calibrator(other_logits)`, which may be jitted, vmapped, saved and sharded like any array.
Probabilities in place of logits are refused, unless `check=False` or inside jit.
"""

from calib_jax._arrays import looks_like_probabilities as looks_like_probabilities
from calib_jax.posthoc._auto import Auto as Auto
from calib_jax.posthoc._binary import Beta as Beta
from calib_jax.posthoc._binary import Platt as Platt
from calib_jax.posthoc._binned import HistogramBinning as HistogramBinning
from calib_jax.posthoc._common import Calibrator as Calibrator
from calib_jax.posthoc._common import logits_from_probs as logits_from_probs
from calib_jax.posthoc._conformal import ConformalSets as ConformalSets
from calib_jax.posthoc._ensemble import EnsembleTemperature as EnsembleTemperature
from calib_jax.posthoc._files import load as load
from calib_jax.posthoc._files import save as save
from calib_jax.posthoc._isotonic import Isotonic as Isotonic
from calib_jax.posthoc._labels import logits_from_binary_probs as logits_from_binary_probs
from calib_jax.posthoc._registry import CALIBRATORS as CALIBRATORS
from calib_jax.posthoc._registry import LABEL_CALIBRATORS as LABEL_CALIBRATORS
from calib_jax.posthoc._registry import Fit as Fit
from calib_jax.posthoc._scaling import Dirichlet as Dirichlet
from calib_jax.posthoc._scaling import FocalTemperature as FocalTemperature
from calib_jax.posthoc._scaling import VectorScaling as VectorScaling
from calib_jax.posthoc._spline import Spline as Spline
from calib_jax.posthoc._structured import StructuredMatrixScaling as StructuredMatrixScaling
from calib_jax.posthoc._structured import StructuredVectorScaling as StructuredVectorScaling
from calib_jax.posthoc._temperature import Temperature as Temperature
