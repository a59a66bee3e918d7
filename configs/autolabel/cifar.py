"""CIFAR-10 and CIFAR-100 x WRN-28-10: RandAug, AugMix, mixup (AutoLabel, tables II, V and VI, fig. 5).

    python -m calib_jax.main --config configs/autolabel/cifar.py:cifar100 --workdir runs/autolabel

After the colon: cifar10 or cifar100. --config.model.name=resnet20 is for a machine without an
accelerator. Needs the binary version of the set in CALIB_JAX_DATA; corruptions are generated from the
test images if the published files are missing.

Published: 5,000 of the 50,000 training images are the validation set; ten magnitudes of ten
operations, or depths 1 to 3 x 5, or 5 buckets of mixup; alpha 0.01, 0.02 and 0.008 (0.005 on
CIFAR-10); smoothing of 0.02 over all classes; mixup with beta 0.2 and 1.
Our choice: magnitude 3 in AugMix; operations that get stronger with their magnitude; in mixup a
ratio per example, as in the code base that the paper names. RandAug's 100 buckets, of which 82
differ, would cost nine times the forward passes of an epoch: they are evaluated on 1,000 validation
images after every second epoch, and their labels then move by two steps at once.
The variants randaug_ls_01, ..., randaug_ls_10 and augmix_ls_01, ..., augmix_ls_10 sweep label
smoothing from 0.01 to 0.1; randaug_ls and augmix_ls have the published best. Shared settings: _base.py.
"""

import pathlib
import runpy

NETWORKS = ("cifar10", "cifar100")  # the arguments after the colon
_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config(data="cifar100"):
    if data not in NETWORKS:
        raise ValueError(f"data {data!r}: expected one of {', '.join(NETWORKS)}")
    config = _BASE["cifar_config"](data)
    config.seeds = (0, 1, 2, 3)
    config.method.variants = {
        "randaug_ls": {"of": "randaug", "smoothing": 0.02},
        "augmix_ls": {"of": "augmix", "smoothing": 0.02},
        "mixup_uniform": {"of": "mixup", "alpha": 1.0, "lam": "example"},
        **_BASE["smoothing_variants"](["randaug", "augmix"], range(1, 11)),
    }
    config.method.name = (
        "cross_entropy,randaug,randaug_ls,randaug_autolabel,augmix,augmix_ls,augmix_autolabel,"
        "mixup,mixup_uniform,mixup_autolabel"
    )
    config.method.mixup.lam = "example"
    config.method.randaug_autolabel.alpha = 0.01
    config.method.randaug_autolabel.validation_subset = 1000
    config.method.randaug_autolabel.update_every = 2
    config.method.augmix_autolabel.alpha = 0.02
    config.method.mixup_autolabel.alpha = 0.005 if data == "cifar10" else 0.008
    return config
