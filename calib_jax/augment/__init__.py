"""Image augmentation on the device, and the search for mixup partners."""

from calib_jax.augment._corrupt import CORRUPTIONS as CORRUPTIONS
from calib_jax.augment._corrupt import corrupt as corrupt
from calib_jax.augment._ops import OPS as OPS
from calib_jax.augment._partners import gradient_saliency as gradient_saliency
from calib_jax.augment._partners import partners as partners
from calib_jax.augment._partners import saliency as saliency
from calib_jax.augment._pgd import pgd as pgd
from calib_jax.augment._pgd import pgd_start as pgd_start
from calib_jax.augment._pgd import pgd_step as pgd_step
from calib_jax.augment._randaug import MAX_DEPTH as MAX_DEPTH
from calib_jax.augment._randaug import augmix as augmix
from calib_jax.augment._randaug import op_number as op_number
from calib_jax.augment._randaug import randaug as randaug
from calib_jax.augment._standard import flip as flip
from calib_jax.augment._standard import pad_crop as pad_crop
from calib_jax.augment._strengths import corruption_strengths as corruption_strengths
