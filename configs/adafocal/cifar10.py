"""CIFAR-10 x ResNet-50, ResNet-110, WRN-26-10, DenseNet-121 (AdaFocal, tables 1 and 2, figs. 4 to 6).

    python -m calib_jax.main --config configs/adafocal/cifar10.py:resnet50 --workdir runs/cifar10

After the colon: resnet50, resnet110, wide_resnet_26_10 or densenet121 (or resnet20, for a machine
without accelerator). --config.method.name picks one of the six methods of the tables, or focal_3, which
fig. 6 compares with. Needs in CALIB_JAX_DATA the binary edition of CIFAR-10, and SVHN for the detection
of foreign images.

Published: 45,000 / 5,000 by the legacy shuffle with seed 1; crops of the image padded by 4, flips;
SGD 0.1, momentum 0.9, weight decay 5e-4 on everything, batch 128, 350 epochs, a tenth of the rate
at 150 and 250; the loss summed over the batch and its gradient clipped to norm 2, which for a mean
would be norm 2 / 128 and rate 12.8 with a weight decay of 5e-4 / 128. Temperature from (0, 10] in
steps of 0.1 by ECE of equal mass. The last epoch is evaluated. The Brier loss is a mean over the batch,
unlike the others, and has 550 epochs with the wide network. MMCE has weight 2 and is normalised twice,
as in the code that weight is of. Test error and ECE of every epoch are logged for fig. 4.
Our choice: label smoothing spreads its mass over the other classes.
"""

from calib_jax import experiment

NETWORKS = ("resnet50", "resnet110", "wide_resnet_26_10", "densenet121", "resnet20")


def get_config(network="resnet50"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,focal_3,flsd53,adafocal"
    config.method.variants = {
        "focal_3": {"of": "focal", "gamma": 3.0},
        "brier": {"train": {"sum_loss": False}},
    }
    if network == "wide_resnet_26_10":
        config.method.variants.brier.train.epochs = 550
    config.method.mmce.double_normalized = True  # as its weight of 2 is published for
    config.method.watch_bins = True
    config.data.name = "cifar10"
    config.data.augment = "pad_crop_flip"
    config.data.shift = ("svhn", "gaussian_noise:5")
    config.model.name = network
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (150, 250)
    config.optimizer.weight_decay = 5e-4
    config.optimizer.clip_norm = 2.0
    config.train.batch_size = 128
    config.train.epochs = 350
    config.train.sum_loss = True
    config.train.log_test = True
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
