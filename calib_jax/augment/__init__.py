"""Augmentation on the device: arrays `[batch, height, width, channels]` in and out."""

from calib_jax.augment._corrupt import CORRUPTIONS as CORRUPTIONS
from calib_jax.augment._corrupt import corrupt as corrupt
from calib_jax.augment._partners import partners as partners
from calib_jax.augment._partners import saliency as saliency
from calib_jax.augment._standard import flip as flip
from calib_jax.augment._standard import pad_crop as pad_crop
