"""ResNet-20 on a few augmented digits: batch statistics, crops and flips in half a minute.

python -m calib_jax.main --config configs/smoke/resnet.py --workdir runs/smoke_resnet
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.method.name = "adafocal"
    config.data.options.num_train = 64
    config.data.augment = "pad_crop_flip"
    config.data.padding = 1
    config.model.name = "resnet20"
    config.optimizer.weight_decay = 5e-4
    config.train.batch_size = 32
    config.train.epochs = 2
    config.calibrate = ("temperature",)
    config.num_bootstrap = 20
    return config
