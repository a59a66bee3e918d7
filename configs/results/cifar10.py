"""A part of CIFAR-10 x a narrow ResNet-20: AdaFocal's table and fig. 6 on two cores.

    python -m calib_jax.main --config configs/results/cifar10.py --workdir runs/results_cifar10

Differences from configs/adafocal/cifar10.py: 10,000 random training images, 2,000 for validation,
half the width, 14 epochs with a tenth of the rate at 8 and 11, three methods, two seeds. Results:
docs/results.md.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1)
    config.method.name = "cross_entropy,flsd53,adafocal"
    config.method.watch_bins = True
    config.data.name = "cifar10"
    config.data.options.num_val = 2000
    config.data.num_train = 10_000
    config.data.augment = "pad_crop_flip"
    config.data.shift = ("svhn", "gaussian_noise:5")
    config.model.name = "resnet20"
    config.model.options.widths = (8, 16, 32)
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (8, 11)
    config.optimizer.weight_decay = 5e-4
    config.optimizer.clip_norm = 2.0
    config.train.batch_size = 128
    config.train.eval_batch_size = 500
    config.train.epochs = 14
    config.train.sum_loss = True
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
