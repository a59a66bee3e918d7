"""CIFAR-100 x ResNet-50, ResNet-110, WRN-26-10, DenseNet-121 (AdaFocal, tables 1 and 2, fig. 4).

    python -m calib_jax.main --config configs/adafocal/cifar100.py:resnet50 --workdir runs/cifar100

After the colon as for CIFAR-10, and everything else as there (see cifar10.py), but for focal_3, which
the paper does not show here, and Brier's epochs: 430 with ResNet-110. Needs in CALIB_JAX_DATA the
binary edition of CIFAR-100.
"""

from calib_jax import experiment

NETWORKS = ("resnet50", "resnet110", "wide_resnet_26_10", "densenet121", "resnet20")


def get_config(network="resnet50"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.variants = {"brier": {"train": {"sum_loss": False}}}
    if network == "resnet110":
        config.method.variants.brier.train.epochs = 430
    config.method.mmce.double_normalized = True  # as its weight of 2 is published for
    config.method.watch_bins = True
    config.data.name = "cifar100"
    config.data.augment = "pad_crop_flip"
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
