"""Settings shared by the AdaFocal configs; the files beside this one load it.

Published: five seeds; AdaFocal switches at 0.2; temperature from (0, 10] in steps of 0.1 by ECE of
equal mass. MMCE has weight 2 and is normalized twice, as in the code for which that weight was
published. On CIFAR and Tiny-ImageNet: crops of the image padded by 4, flips; SGD 0.1, momentum 0.9,
weight decay 5e-4 on all parameters; the loss is summed over the batch and its gradient clipped to
norm 2 (for batch 128 equivalent to a mean loss with norm 2 / 128, rate 12.8 and weight decay
5e-4 / 128); the Brier loss is a mean over the batch.
Our choice: label smoothing spreads its mass over the other classes.
"""

from calib_jax import experiment


def base_config():
    """Return what all tables share: the six methods, five seeds, the calibrators."""
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.mmce.double_normalized = True  # the form for which its weight of 2 was published
    config.method.watch_bins = True
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config


def image_config(network, networks):
    """Return what the image tables share.

    Args:
      network: the argument after the colon of the config's path.
      networks: the arguments that the config accepts.
    """
    if network not in networks:
        raise ValueError(f"network {network!r}: expected one of {', '.join(networks)}")
    config = base_config()
    config.model.name = network
    config.optimizer.schedule = "milestones"
    config.train.log_test = True
    return config


def small_image_config(network, networks):
    """Return what CIFAR-10, CIFAR-100 and Tiny-ImageNet share; Args as for `image_config`."""
    config = image_config(network, networks)
    config.method.variants = {"brier": {"train": {"sum_loss": False}}}
    config.data.augment = "pad_crop_flip"
    config.optimizer.weight_decay = 5e-4
    config.optimizer.clip_norm = 2.0
    config.train.sum_loss = True
    return config
