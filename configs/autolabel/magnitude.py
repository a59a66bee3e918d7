"""CIFAR-100 x WRN-28-10: five operations up to a largest magnitude (AutoLabel, figs. 2 and 3).

    python -m calib_jax.main --config configs/autolabel/magnitude.py:10 --workdir runs/magnitude_10

After the colon: the largest magnitude, 2, 4, 6, 8 or 10; each has a workdir of its own, and the points
of figure 3 are their summaries. Figure 2 is the panel of cross entropy, which trains on none of the
operations, in plots/operations.png.

Published: rotation, posterize, solarize, shear X and shear Y, one at a random magnitude from 1 to the
largest, with one-hot labels and with AutoLabel; 5 runs. Other settings as in configs/autolabel/cifar.py.
"""

from calib_jax import experiment

NETWORKS = ("2", "4", "6", "8", "10")  # what may stand after the colon


def get_config(largest="10"):
    if largest not in NETWORKS:
        raise ValueError(f"largest magnitude {largest!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,randaug,randaug_autolabel"
    for method in (config.method.randaug, config.method.randaug_autolabel):
        method.ops = "rotate,posterize,solarize,shear_x,shear_y"
        method.max_magnitude = int(largest)
    config.method.randaug_autolabel.alpha = 0.01
    config.method.randaug_autolabel.validation_subset = 1000
    config.data.name = "cifar100"
    config.data.augment = "pad_crop_flip"
    config.model.name = "wide_resnet_28_10"
    config.optimizer.learning_rate = 0.4
    config.optimizer.nesterov = True
    config.optimizer.weight_decay = 4e-4
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (60, 120, 160)
    config.optimizer.factor = 0.2
    config.optimizer.warmup = 1 / 200
    config.train.batch_size = 512
    config.train.epochs = 200
    config.robustness.corruptions = ("autolabel",)
    config.robustness.operations = ("rotate", "posterize", "solarize", "shear_x", "shear_y")
    return config
