"""ImageNet x ResNet-50, ResNet-110, DenseNet-121 (AdaFocal, tables 1 and 2, figs. 4 and 5).

    python -m calib_jax.main --config configs/adafocal/imagenet.py:resnet50 --workdir runs/imagenet

After the colon: resnet50, resnet110 or densenet121. Needs in CALIB_JAX_DATA imagenet2012 as
prepared by tensorflow_datasets in the array_record format. Worker processes read the images during
training.

Published: AdaFocal's switch at 0.2, as in all tables, and for figs. 4d and 5b also at 0.5 (the
variant adafocal_05: studies.py:switch); nothing else.
Our choice: the usual recipe of these networks, SGD 0.1 for batch 256, momentum 0.9, weight decay
1e-4, 90 epochs, a tenth of the rate at 30, 60 and 80, random resized crops and flips; a mean loss
without clipping; 50,000 training images are the validation set, and the official validation set is
the test set. Shared settings: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("resnet50", "resnet110", "densenet121")
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(network="resnet50"):
    config = _BASE["image_config"](network, NETWORKS)
    config.method.variants = {"adafocal_05": {"of": "adafocal", "switch": 0.5}}
    config.data.name = "imagenet"
    config.model.name = f"{network}_imagenet"
    config.model.dtype = "bfloat16"
    config.optimizer.milestones = (30, 60, 80)
    config.optimizer.weight_decay = 1e-4
    config.train.batch_size = 256
    config.train.epochs = 90
    config.train.workers = 16
    return config
