"""Settings shared by the AutoLabel configs; the files beside this one load it.

Published, for CIFAR-10 and CIFAR-100 x WRN-28-10: SGD 0.1 x batch / 128, Nesterov momentum 0.9, batch
512, 200 epochs, a fifth of the rate at 60, 120 and 160, L2 2e-4 (a weight decay of 4e-4 on all
parameters); 17 corruption types.
Our choice: crops of the image padded by 4; images scaled as in configs/adafocal/; a warm-up of one
epoch, as in the code base that the paper names.
"""

from calib_jax import experiment


def cifar_config(data):
    """Return what the configs for CIFAR-10 and CIFAR-100 share; `data` is the name of the set."""
    config = experiment.default_config()
    config.data.name = data
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
    return config


def smoothing_variants(methods, hundredths):
    """Return variants `METHOD_ls_NN` whose labels are smoothed by NN hundredths."""
    return {
        f"{method}_ls_{n:02d}": {"of": method, "smoothing": n / 100}
        for method in methods
        for n in hundredths
    }
