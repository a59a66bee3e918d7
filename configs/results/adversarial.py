"""A part of CIFAR-10 x a small ResNet: AutoLabel with adversarial training on two cores.

    python -m calib_jax.main --config configs/results/adversarial.py --workdir runs/results_adversarial

As configs/autolabel/adversarial.py but for: a radius of 0.03 in training too, and five steps; 3,000
random training images, 1,000 for validation, a ResNet of one block per stage, 10 epochs of batch 64 at a
rate of 0.05 with a fifth of it from epochs 5 and 8 on; 300 test images are attacked; two seeds. What came
of it is in docs/results.md.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1)
    config.method.variants = {"adversarial_multiple": {"of": "adversarial", "multiple": True}}
    config.method.name = "cross_entropy,adversarial,adversarial_multiple,ccat,adversarial_autolabel"
    for name in ("adversarial", "ccat", "adversarial_autolabel"):
        config.method[name].eps = 0.03
        config.method[name].steps = 5
    config.method.adversarial_autolabel.validation_subset = 100
    config.data.name = "cifar10"
    config.data.options.num_val = 1000
    config.data.num_train = 3000
    config.data.augment = "pad_crop_flip"
    config.model.name = "resnet20"
    config.model.options.stages = (1, 1, 1)
    config.optimizer.learning_rate = 0.05
    config.optimizer.nesterov = True
    config.optimizer.weight_decay = 4e-4
    config.optimizer.schedule = "milestones"
    config.optimizer.milestones = (5, 8)
    config.optimizer.factor = 0.2
    config.train.batch_size = 64
    config.train.eval_batch_size = 500
    config.train.epochs = 10
    config.robustness.attack_eps = 0.03
    config.robustness.num_attacked = 300
    return config
