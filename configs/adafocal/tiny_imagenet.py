"""Tiny-ImageNet x ResNet-50, ResNet-110 (AdaFocal, tables 1 and 2, fig. 4).

    python -m calib_jax.main --config configs/adafocal/tiny_imagenet.py:resnet50 --workdir runs/tiny

After the colon: resnet50 or resnet110. Needs in CALIB_JAX_DATA the folder tiny-imagenet-200.

Published: batch 64, 100 epochs, a tenth of the rate at 40 and 60; the Brier loss starts at a rate of
0.035. Shared settings: _base.py.
Our choice: validation is a part of the training set, so that neither gamma nor temperature sees the
test set (published: both are fitted on the official validation set, which is also the test set);
crops and flips are drawn anew in every epoch.
"""

import pathlib
import runpy

NETWORKS = ("resnet50", "resnet110")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="resnet50"):
    config = _BASE["small_image_config"](network, NETWORKS)
    config.method.variants.brier.optimizer = {"learning_rate": 0.035}
    config.data.name = "tiny_imagenet"
    config.model.name = f"{network}_tiny"
    config.optimizer.milestones = (40, 60)
    config.train.batch_size = 64
    config.train.epochs = 100
    return config
