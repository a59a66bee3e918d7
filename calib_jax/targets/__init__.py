"""Targets: what a loss compares the prediction with, as `[batch, num_classes]`.

Float32, or float64 if one of the arrays has it. The target of an integer label outside 0 ... K-1 is NaN,
and so is every loss of it.
"""

from calib_jax.targets._targets import autolabel as autolabel
from calib_jax.targets._targets import autolabel_mixup as autolabel_mixup
from calib_jax.targets._targets import autolabel_update as autolabel_update
from calib_jax.targets._targets import ccat as ccat
from calib_jax.targets._targets import mix as mix
from calib_jax.targets._targets import one_hot as one_hot
from calib_jax.targets._targets import smooth as smooth
