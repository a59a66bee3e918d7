"""Tiny-ImageNet x ResNet-50, ResNet-110 (AdaFocal, tables 1 and 2, fig. 4).

    python -m calib_jax.main --config configs/adafocal/tiny_imagenet.py:resnet50 --workdir runs/tiny

After the colon: resnet50 or resnet110. Needs in CALIB_JAX_DATA the folder tiny-imagenet-200.

Published: SGD 0.1, momentum 0.9, weight decay 5e-4, batch 64, 100 epochs, a tenth of the rate at 40
and 60, summed loss clipped to norm 2, crops of the image padded by 4, flips; the Brier loss is a mean and
starts at a rate of 0.035; MMCE has weight 2 and is normalised twice, as in the code that weight is of.
Our choice: validation is a part of the training set, so that neither gamma nor temperature sees the
test set (published: both are fitted on the official validation set, which is also what is tested
on); crops and flips are drawn anew every epoch.
"""

from calib_jax import experiment

NETWORKS = ("resnet50", "resnet110")


def get_config(network="resnet50"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.variants = {
        "brier": {"train": {"sum_loss": False}, "optimizer": {"learning_rate": 0.035}},
    }
    config.method.mmce.double_normalized = True  # as its weight of 2 is published for
    config.method.watch_bins = True
    config.data.name = "tiny_imagenet"
    config.data.augment = "pad_crop_flip"
    config.model.name = f"{network}_tiny"
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (40, 60)
    config.optimizer.weight_decay = 5e-4
    config.optimizer.clip_norm = 2.0
    config.train.batch_size = 64
    config.train.epochs = 100
    config.train.sum_loss = True
    config.train.log_test = True
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
