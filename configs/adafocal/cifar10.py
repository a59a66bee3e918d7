"""CIFAR-10 x ResNet-50, ResNet-110, WRN-26-10, DenseNet-121 (AdaFocal, tables 1 and 2, figs. 4 to 6).

    python -m calib_jax.main --config configs/adafocal/cifar10.py:resnet50 --workdir runs/cifar10

After the colon: resnet50, resnet110, wide_resnet_26_10 or densenet121 (or resnet20, for a machine
without an accelerator). --config.method.name selects one of the six methods of the tables, or focal_3,
the baseline of fig. 6. Needs in CALIB_JAX_DATA the binary version of CIFAR-10, and SVHN for
out-of-distribution detection.

Published: 45,000 / 5,000 by the legacy shuffle with seed 1; batch 128, 350 epochs, a tenth of the rate
at 150 and 250; the last epoch is evaluated. The Brier loss trains for 550 epochs with the wide network.
Test error and ECE of every epoch are logged for fig. 4. Shared settings: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("resnet50", "resnet110", "wide_resnet_26_10", "densenet121", "resnet20")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="resnet50"):
    config = _BASE["small_image_config"](network, NETWORKS)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,focal_3,flsd53,adafocal"
    config.method.variants.focal_3 = {"of": "focal", "gamma": 3.0}
    if network == "wide_resnet_26_10":
        config.method.variants.brier.train.epochs = 550
    config.data.name = "cifar10"
    config.data.shift = ("svhn", "gaussian_noise:5")
    config.optimizer.milestones = (150, 250)
    config.train.batch_size = 128
    config.train.epochs = 350
    return config
