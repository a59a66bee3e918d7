"""Losses: arrays in, one value per example out; the batch-coupled ones return a scalar and say so.

Every loss works in log space, in float32 or in float64 if the logits have it: value and gradient are
finite for any finite logits. For all of them:

- A masked class (logit -inf) has probability 0 and no effect; a label on it costs about 1e30.
- An integer label outside 0 ... K-1 gives NaN for its row (and a NaN scalar), with a gradient of 0 in
  the losses per example; never another class's loss, never an exception.
- A row of weight 0 changes neither value nor gradient, whatever it holds; weights that are all 0 give
  NaN.
"""

from calib_jax.losses._adafocal import AdaFocalState as AdaFocalState
from calib_jax.losses._adafocal import adafocal as adafocal
from calib_jax.losses._adafocal import adafocal_init as adafocal_init
from calib_jax.losses._adafocal import adafocal_trajectory as adafocal_trajectory
from calib_jax.losses._adafocal import adafocal_update as adafocal_update
from calib_jax.losses._agreement import jensen_shannon as jensen_shannon
from calib_jax.losses._contrastive import label_aware_contrastive as label_aware_contrastive
from calib_jax.losses._coupled import mbls as mbls
from calib_jax.losses._coupled import mdca as mdca
from calib_jax.losses._coupled import mmce as mmce
from calib_jax.losses._coupled import mmce_weighted as mmce_weighted
from calib_jax.losses._distillation import distillation as distillation
from calib_jax.losses._distillation import teacher_annealing as teacher_annealing
from calib_jax.losses._entropy import brier as brier
from calib_jax.losses._entropy import bsce_gra as bsce_gra
from calib_jax.losses._entropy import cross_entropy as cross_entropy
from calib_jax.losses._entropy import logit_norm as logit_norm
from calib_jax.losses._focal import calfocal as calfocal
from calib_jax.losses._focal import dual_focal as dual_focal
from calib_jax.losses._focal import flsd53 as flsd53
from calib_jax.losses._focal import focal as focal
from calib_jax.losses._focal import inverse_focal as inverse_focal
from calib_jax.losses._sigmoid import sigmoid_adafocal as sigmoid_adafocal
from calib_jax.losses._sigmoid import sigmoid_focal as sigmoid_focal
