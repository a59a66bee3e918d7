"""CIFAR-100 x ResNet-50, ResNet-110, WRN-26-10, DenseNet-121 (AdaFocal, tables 1 and 2, fig. 4).

    python -m calib_jax.main --config configs/adafocal/cifar100.py:resnet50 --workdir runs/cifar100

Arguments after the colon and settings as for CIFAR-10 (cifar10.py, _base.py), except that the paper
shows no focal_3 here, and that the Brier loss trains for 430 epochs with ResNet-110. Needs in
CALIB_JAX_DATA the binary version of CIFAR-100.
"""

import pathlib
import runpy

NETWORKS = ("resnet50", "resnet110", "wide_resnet_26_10", "densenet121", "resnet20")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="resnet50"):
    config = _BASE["small_image_config"](network, NETWORKS)
    if network == "resnet110":
        config.method.variants.brier.train.epochs = 430
    config.data.name = "cifar100"
    config.optimizer.milestones = (150, 250)
    config.train.batch_size = 128
    config.train.epochs = 350
    return config
