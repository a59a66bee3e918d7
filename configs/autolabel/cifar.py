"""CIFAR-10 and CIFAR-100 x WRN-28-10: RandAug, AugMix, mixup (AutoLabel, tables II, V and VI, fig. 5).

    python -m calib_jax.main --config configs/autolabel/cifar.py:cifar100 --workdir runs/autolabel

After the colon: cifar10 or cifar100. --config.model.name=resnet20 is for a machine without
accelerator. Needs the binary edition of the set in CALIB_JAX_DATA; corruptions are made from the
test images where the published files are not there.

Published: 5,000 of the 50,000 training images are the validation set; SGD 0.1 x batch / 128,
Nesterov momentum 0.9, batch 512, 200 epochs, a fifth of the rate at 60, 120 and 160, L2 2e-4 (a
weight decay of 4e-4 on everything); 17 corruption types; ten magnitudes of ten operations, or
depths 1 to 3 x 5, or 5 buckets of mixup; alpha 0.01, 0.02 and 0.008 (0.005 on CIFAR-10); smoothing
of 0.02 over all classes; mixup with beta 0.2 and 1.
Our choice: crops of the image padded by 4; images scaled as in configs/adafocal/; magnitude 3 in
AugMix; operations that get stronger with their magnitude; a warm-up of one epoch, and in mixup a
ratio per example, as in the code base that the paper names. RandAug's 100 buckets, of which 82
differ, would cost nine times the forward passes of an epoch: they are evaluated on 1,000 validation
images after every second epoch, and their labels then move by two steps at once.
Label smoothing is swept from 0.01 to 0.1 by the variants randaug_ls_01, ..., randaug_ls_10 and
augmix_ls_01, ..., augmix_ls_10; randaug_ls and augmix_ls have the published best.
"""

from calib_jax import experiment

NETWORKS = ("cifar10", "cifar100")  # what may stand after the colon


def get_config(data="cifar100"):
    if data not in NETWORKS:
        raise ValueError(f"data {data!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3)
    config.method.variants = {
        "randaug_ls": {"of": "randaug", "smoothing": 0.02},
        "augmix_ls": {"of": "augmix", "smoothing": 0.02},
        "mixup_uniform": {"of": "mixup", "alpha": 1.0, "lam": "example"},
    }
    for name in ("randaug", "augmix"):
        for hundredths in range(1, 11):
            variant = {"of": name, "smoothing": hundredths / 100}
            config.method.variants[f"{name}_ls_{hundredths:02d}"] = variant
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
