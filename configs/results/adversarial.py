"""A part of CIFAR-10 x a small ResNet: AutoLabel with adversarial training on two cores.

    python -m calib_jax.main --config configs/results/adversarial.py --workdir runs/results_adversarial

Differences from configs/autolabel/adversarial.py: a radius of 0.03 in training too, and five steps;
3,000 random training images, 1,000 for validation, a ResNet of one block per stage, 10 epochs of batch
64 at a rate of 0.05 with a fifth of it from epochs 5 and 8 on; 300 test images are attacked; two seeds.
Results: docs/results.md.
"""

import pathlib
import runpy

_BASE = runpy.run_path(str(pathlib.Path(__file__).with_name("_base.py")))


def get_config():
    config = _BASE["autolabel_config"]()
    config.method.variants = {"adversarial_multiple": {"of": "adversarial", "multiple": True}}
    config.method.name = "cross_entropy,adversarial,adversarial_multiple,ccat,adversarial_autolabel"
    for name in ("adversarial", "ccat", "adversarial_autolabel"):
        config.method[name].eps = 0.03
        config.method[name].steps = 5
    config.method.adversarial_autolabel.validation_subset = 100
    config.optimizer.milestones = (5, 8)
    config.train.epochs = 10
    config.robustness.attack_eps = 0.03
    config.robustness.num_attacked = 300
    return config
