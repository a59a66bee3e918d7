"""A part of SNLI, and of MNLI out of domain: mixup guided by AUM on two cores.

    python -m calib_jax.main --config configs/results/snli.py:roberta --workdir runs/results_snli_roberta

After the colon: bert or roberta. As configs/aum_mixup/snli.py but for: all-MiniLM-L6-v2 or a RoBERTa of
30 million parameters (six layers, 384 wide each) in models/, 1,500 random training pairs, 1,000 of each
other set, batches of 16, a rate of 1e-4, two seeds. What came of it is in docs/results.md.
"""

from calib_jax import experiment

NETWORKS = {"bert": "models/all-MiniLM-L6-v2", "roberta": "models/roberta-30m"}


def get_config(network="roberta"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0, 1)
    config.data.name = "snli"
    config.data.num_train = 1500
    config.data.num_eval = 1000
    config.data.max_length = 64
    config.data.shift = ("mnli",)
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
    config.method.name = "cross_entropy,mixup,m_mixup,aum_mixup,aum_mixup_ls,aum_mixup_each"
    config.method.mixup.alpha = 0.4
    config.method.variants = {
        "m_mixup": {"of": "mixup", "place": "features"},
        "aum_mixup_ls": {"of": "aum_mixup", "smoothing": 0.01 if network == "bert" else 0.003},
        # A batch of each half in a step, as in the published code: half as many updates.
        "aum_mixup_each": {"of": "aum_mixup", "batch_split": "each"},
    }
    return config
