"""All methods on data whose p(y|x) is known, ten seeds: claims tested without label noise.

    python -m calib_jax.main --config configs/evidence/known_truth.py:gaussians --workdir runs/truth

After the colon: gaussians (five in 20 dimensions), texts (five topics) or digits (real images), all with
flipped labels; small networks that become over-confident within seconds. Other sizes and noise:
--config.data.options.num_train=500 --config.data.options.noise=0.3.
`python -m benchmarks.evidence train` runs all twelve, `python -m benchmarks.evidence claims` tests the
claims of benchmarks/evidence/hypotheses.json. Results: docs/results.md.
"""

from calib_jax import experiment

# The arguments after the colon, and the training-set sizes of `python -m benchmarks.evidence train`.
NETWORKS = {"gaussians": (500, 2000), "digits": (250, 500), "texts": (500, 2000)}
_LOSSES = "cross_entropy,adafocal,flsd53,brier,mmce,label_smoothing"
_MIXTURES = "mixup,aum_mixup,sim_mixup"
_STUDENTS = "sd,csd,sim_mixup_csd"
_OTHERS = "focal,m_mixup,ea_mixup"  # that no claim is about: last
_IMAGES = (
    "randaug,randaug_ls,randaug_autolabel,augmix,augmix_ls,augmix_autolabel,"
    "mixup_uniform,mixup_autolabel"
)


def get_config(source="gaussians"):
    if source not in NETWORKS:
        raise ValueError(f"source {source!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = tuple(range(10))
    config.seeds_in_parallel = True
    config.method.name = f"{_LOSSES},{_MIXTURES},{_STUDENTS},{_OTHERS}"
    config.data.name = "known_truth"
    config.data.options.source = source
    config.data.options.num_train = NETWORKS[source][0]
    config.data.options.noise = 0.1
    config.optimizer.learning_rate = 0.1
    config.train.batch_size = 100
    config.train.eval_batch_size = 1000
    config.train.epochs = 60
    config.checkpoint.keep = False
    config.checkpoint.seconds = 3600.0
    config.calibrate = ("temperature",)
    config.num_bootstrap = 1  # intervals are over seeds
    config.plot_format = "none"
    config.method.mmce.double_normalized = True  # the form for which its weight of 2 was published
    config.method.sd.generations = 2
    config.method.csd.generations = 2
    config.method.mixup.alpha = 0.4
    config.method.variants = {
        "m_mixup": {"of": "mixup", "place": "features"},
        "sim_mixup_csd": {"of": "csd", "teacher": "sim_mixup"},
    }
    if source != "texts":
        config.model.name = "mlp"
        config.model.options.widths = (64, 64)
    else:
        config.data.max_length = 24
        config.data.options.num_test = 10_000
        config.model.name = "text_cnn"
        config.model.options.width = 16
        config.model.options.dim = 16
        config.optimizer.name = "adam"
        config.optimizer.learning_rate = 3e-3
        config.train.epochs = 30
    if source == "digits":
        _add_images(config)
    return config


def _add_images(config):
    config.method.name = f"{_IMAGES},{_LOSSES}"
    config.train.batch_size = 50
    config.optimizer.learning_rate = 0.05
    config.method.variants = {
        "randaug_ls": {"of": "randaug", "objective": "label_smoothing"},
        "augmix_ls": {"of": "augmix", "objective": "label_smoothing"},
        "mixup_uniform": {"of": "mixup", "alpha": 1.0, "lam": "example"},
    }
    config.method.randaug_autolabel.alpha = 0.05  # 60 epochs, not 200, for labels to move in
    config.method.augmix_autolabel.alpha = 0.1
    config.method.mixup_autolabel.alpha = 0.05
    # p(y|x) of a corrupted image is that of the image.
    config.data.shift = ("gaussian_noise:3", "impulse_noise:3", "contrast:3")
