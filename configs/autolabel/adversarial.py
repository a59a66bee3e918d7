"""CIFAR-10 and CIFAR-100 x WRN-28-10: adversarial training (AutoLabel, tables III and IV, fig. 7).

    python -m calib_jax.main --config configs/autolabel/adversarial.py:cifar10 --workdir runs/attack

After the colon: cifar10 or cifar100. Table III trains at the radius 0.01 that stands here; table IV at
0.03, 0.05 and 0.1: --config.method.adversarial.eps=0.03, and likewise for ccat and
adversarial_autolabel, with --config.method.label_smoothing.smoothing=0.1, 0.2 or 0.3.
--config.model.name=resnet20 is for a machine without accelerator.

Published: PGD with 10 steps of a quarter of the radius; 10 buckets; alpha 0.5 on CIFAR-10 and 0.005 on
CIFAR-100 (for larger radii swept from 0.005 to 1); smoothing of 0.02 (for larger radii the best of 0.1,
0.2 and 0.3); CCAT with rho 10; the test attack has radius 0.03, 50 steps and 3 restarts. Other settings
as in configs/autolabel/cifar.py.
Our choice: a random start; the attack sees the network in evaluation mode and cross entropy with hard
labels; steps of a quarter of the radius in the test attack too; buckets on 1,000 validation images.
"""

from calib_jax import experiment

NETWORKS = ("cifar10", "cifar100")  # what may stand after the colon


def get_config(data="cifar10"):
    if data not in NETWORKS:
        raise ValueError(f"data {data!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1)
    config.method.variants = {
        "adversarial_ls": {"of": "adversarial", "objective": "label_smoothing"},
        "adversarial_multiple": {"of": "adversarial", "multiple": True},
    }
    config.method.name = (
        "cross_entropy,adversarial,ccat,adversarial_ls,adversarial_multiple,adversarial_autolabel"
    )
    config.method.label_smoothing.smoothing = 0.02
    config.method.label_smoothing.kind = "all"
    config.method.adversarial_autolabel.alpha = 0.5 if data == "cifar10" else 0.005
    config.method.adversarial_autolabel.validation_subset = 1000
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
    config.robustness.attack_eps = 0.03
    return config
