"""ImageNet x ResNet-50, ResNet-110, DenseNet-121 (AdaFocal, tables 1 and 2, figs. 4 and 5).

    python -m calib_jax.main --config configs/adafocal/imagenet.py:resnet50 --workdir runs/imagenet

After the colon: resnet50, resnet110 or densenet121. Needs in CALIB_JAX_DATA imagenet2012 as
prepared by tensorflow_datasets in the array_record format. Images are read by worker processes
while training goes on.

Published: AdaFocal's switch at 0.2, as everywhere, and for figs. 4d and 5b also at 0.5 (the variant
adafocal_05: studies.py:switch); nothing else.
Our choice: the usual recipe of these networks, SGD 0.1 for batch 256, momentum 0.9, weight decay
1e-4, 90 epochs, a tenth of the rate at 30, 60 and 80, random resized crops and flips; the mean
loss, not clipped; MMCE normalised twice, as in the code its weight of 2 is of; 50,000 training images
are the validation set, and the official validation set is the test set.
"""

from calib_jax import experiment

NETWORKS = ("resnet50", "resnet110", "densenet121")


def get_config(network="resnet50"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.variants = {"adafocal_05": {"of": "adafocal", "switch": 0.5}}
    config.method.mmce.double_normalized = True  # as its weight of 2 is published for
    config.method.watch_bins = True
    config.data.name = "imagenet"
    config.model.name = f"{network}_imagenet"
    config.model.dtype = "bfloat16"
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (30, 60, 80)
    config.optimizer.weight_decay = 1e-4
    config.train.batch_size = 256
    config.train.epochs = 90
    config.train.workers = 16
    config.train.log_test = True
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
