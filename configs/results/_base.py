"""Settings shared by small runs of the same paper; the files beside this one load it."""

from calib_jax import experiment

NETWORKS = {"bert": "models/all-MiniLM-L6-v2", "roberta": "models/roberta-30m"}


def mixup_config(network, smoothing):
    """Return what the small runs of guided mixup share.

    Args:
      network: a name of `NETWORKS`.
      smoothing: the label smoothing of aum_mixup_ls.
    """
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1)
    config.data.num_train = 1500
    config.data.num_eval = 1000
    config.data.max_length = 64
    config.model.name = network
    config.model.pretrained = NETWORKS[network]
    config.model.options.head = "linear"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 1e-4
    config.optimizer.weight_decay = 0.0 if network == "bert" else 0.1
    config.optimizer.decay_all = False
    config.optimizer.clip_norm = 1.0
    config.train.batch_size = 16
    config.train.eval_batch_size = 50
    config.train.epochs = 3
    config.checkpoint.select = "best"
    config.calibrate = ("temperature",)
    config.method.name = "cross_entropy,mixup,m_mixup,aum_mixup,aum_mixup_ls"
    config.method.mixup.alpha = 0.4
    config.method.variants = {
        "m_mixup": {"of": "mixup", "place": "features"},
        "aum_mixup_ls": {"of": "aum_mixup", "smoothing": smoothing},
    }
    return config


def autolabel_config():
    """Return what the small runs of AutoLabel share."""
    config = experiment.default_config()
    config.seeds = (0, 1)
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
    config.optimizer.factor = 0.2
    config.train.batch_size = 64
    config.train.eval_batch_size = 500
    return config
