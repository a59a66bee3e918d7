"""A part of CIFAR-10 x a small ResNet: AutoLabel with RandAug, AugMix and mixup on two cores.

    python -m calib_jax.main --config configs/results/autolabel.py --workdir runs/results_autolabel

As configs/autolabel/cifar.py but for: 3,000 random training images, 1,000 for validation, a ResNet
of one block per stage, 24 epochs of batch 64 at a rate of 0.05 with a fifth of it from epochs 12
and 18 on, five to ten times the step size of label confidences (they move for 24 epochs, not for
200), nine corruptions of 500 test images, two seeds. What came of it is in docs/results.md.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1)
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
    config.optimizer.milestones = (12, 18)
    config.optimizer.factor = 0.2
    config.train.batch_size = 64
    config.train.eval_batch_size = 500
    config.train.epochs = 24
    config.robustness.corruptions = (
        *("gaussian_noise", "impulse_noise", "defocus_blur", "gaussian_blur", "fog"),
        *("brightness", "contrast", "pixelate", "jpeg_compression"),
    )
    config.robustness.num_corrupted = 500
    return config
