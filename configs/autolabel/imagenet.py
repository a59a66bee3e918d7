"""ImageNet x ResNet-50: RandAug and AugMix, with all and with less data (AutoLabel, table II, fig. 6).

    python -m calib_jax.main --config configs/autolabel/imagenet.py:100 --workdir runs/imagenet_100

After the colon: the percentage of training images, 100, 50, 25 or 10. Needs in CALIB_JAX_DATA
imagenet2012 as prepared by tensorflow_datasets in the array_record format.

Published: 90 epochs, batch 4096, SGD 0.1 x batch / 256, Nesterov momentum 0.9, a tenth of the rate
at 30, 60 and 80, L2 1e-4 (a weight decay of 2e-4), five epochs of warm-up, bfloat16; alpha 0.02 for
both; smoothing of 0.01; 2 runs. The labels are updated on 25,000 of the official validation images,
the others are the test set.
The variants randaug_ls_01, ..., randaug_ls_10 and augmix_ls_01, ..., augmix_ls_10 sweep label
smoothing from 0.01 to 0.1; randaug_ls and augmix_ls have the published best.
Our choice: 50,000 validation images are taken from the training set, as in all configs for ImageNet
(published split: --config.data.options.halve_validation=True); buckets are evaluated on 5,000 of
them, RandAug's 100 (of which 82 differ) after every fifth epoch by five steps at once; corruptions of
5,000 test images, from the published ImageNet-C or from tfds's imagenet2012_corrupted if one of them
is available, otherwise generated.
"""

import pathlib
import runpy

from calib_jax import experiment

NETWORKS = ("100", "50", "25", "10")  # the arguments after the colon
_TRAIN = 1_231_167  # images, less the 50,000 for validation
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(percent="100"):
    if percent not in NETWORKS:
        raise ValueError(f"percent {percent!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1)
    config.method.variants = {
        "randaug_ls": {"of": "randaug", "smoothing": 0.01},
        "augmix_ls": {"of": "augmix", "smoothing": 0.01},
        **_BASE["smoothing_variants"](["randaug", "augmix"], range(1, 11)),
    }
    config.method.name = (
        "cross_entropy,randaug,randaug_ls,randaug_autolabel,augmix,augmix_ls,augmix_autolabel"
    )
    config.method.randaug_autolabel.alpha = 0.02
    config.method.randaug_autolabel.validation_subset = 5000
    config.method.randaug_autolabel.update_every = 5
    config.method.augmix_autolabel.alpha = 0.02
    config.method.augmix_autolabel.validation_subset = 5000
    config.data.name = "imagenet"
    config.data.options.halve_validation = False
    config.data.num_train = 0 if percent == "100" else _TRAIN * int(percent) // 100
    config.model.name = "resnet50_imagenet"
    config.model.dtype = "bfloat16"
    config.optimizer.learning_rate = 1.6
    config.optimizer.nesterov = True
    config.optimizer.weight_decay = 2e-4
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (30, 60, 80)
    config.optimizer.warmup = 5 / 90
    config.train.batch_size = 4096
    config.train.epochs = 90
    config.train.workers = 16
    config.robustness.corruptions = ("standard",)
    config.robustness.num_corrupted = 5000
    return config
