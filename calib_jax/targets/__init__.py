"""Targets: what a loss compares the prediction with, as `[batch, num_classes]`."""

from calib_jax.targets._targets import autolabel as autolabel
from calib_jax.targets._targets import autolabel_mixup as autolabel_mixup
from calib_jax.targets._targets import autolabel_update as autolabel_update
from calib_jax.targets._targets import ccat as ccat
from calib_jax.targets._targets import mix as mix
from calib_jax.targets._targets import one_hot as one_hot
from calib_jax.targets._targets import smooth as smooth
