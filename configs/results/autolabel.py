"""A part of CIFAR-10 x a small ResNet: AutoLabel with RandAug, AugMix and mixup on two cores.

    python -m calib_jax.main --config configs/results/autolabel.py --workdir runs/results_autolabel

Differences from configs/autolabel/cifar.py: 3,000 random training images, 1,000 for validation, a
ResNet of one block per stage, 24 epochs of batch 64 at a rate of 0.05 with a fifth of it from epochs 12
and 18 on, five to ten times the step size of label confidences (they move for 24 epochs instead of
200), nine corruptions of 500 test images, two seeds. Results: docs/results.md.
"""

import pathlib
import runpy

_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config():
    config = _BASE["autolabel_config"]()
    config.method.variants = {
        "randaug_ls": {"of": "randaug", "objective": "label_smoothing"},
        "augmix_ls": {"of": "augmix", "objective": "label_smoothing"},
        "mixup_uniform": {"of": "mixup", "alpha": 1.0, "lam": "example"},
    }
    config.method.name = (
        "augmix,augmix_ls,augmix_autolabel,randaug,randaug_ls,randaug_autolabel,"
        "mixup_uniform,mixup_autolabel"
    )
    config.method.label_smoothing.smoothing = 0.02
    config.method.label_smoothing.kind = "all"
    config.method.randaug_autolabel.alpha = 0.05
    config.method.randaug_autolabel.validation_subset = 200
    config.method.randaug_autolabel.update_every = 2
    config.method.augmix_autolabel.alpha = 0.1
    config.method.augmix_autolabel.validation_subset = 500
    config.method.mixup_autolabel.alpha = 0.05
    config.optimizer.milestones = (12, 18)
    config.train.epochs = 24
    config.robustness.corruptions = (
        *("gaussian_noise", "impulse_noise", "defocus_blur", "gaussian_blur", "fog"),
        *("brightness", "contrast", "pixelate", "jpeg_compression"),
    )
    config.robustness.num_corrupted = 500
    return config
