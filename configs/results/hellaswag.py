"""A part of HellaSWAG, videos in domain and how-to articles out of it: mixup guided by AUM on two cores.

    python -m calib_jax.main --config configs/results/hellaswag.py:roberta --workdir runs/hellaswag

After the colon: bert or roberta. As configs/aum_mixup/swag.py but for: all-MiniLM-L6-v2 or a RoBERTa of
30 million parameters (six layers, 384 wide each) in models/, 120 random training situations, 120 of each
other set, at most 96 tokens, batches of 8, a rate of 1e-4, one seed. What came of it is in
docs/results.md.
"""

from calib_jax import experiment

NETWORKS = {"bert": "models/all-MiniLM-L6-v2", "roberta": "models/roberta-30m"}


def get_config(network="roberta"):
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    config = experiment.default_config()
    config.seeds = (0,)
    config.data.name = "hellaswag"
    config.data.options.source = "activitynet"
    # The training rows have the start of the ending in the context; so the others must.
    config.data.options.whole_context = True
    config.data.num_train = 120
    config.data.num_eval = 120
    config.data.max_length = 96
    config.data.shift = ("hellaswag?source=wikihow&whole_context=True",)
    config.model.name = network
    config.model.pretrained = NETWORKS[network]
    config.model.options.head = "multiple_choice"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 1e-4
    config.optimizer.weight_decay = 0.0 if network == "bert" else 0.1
    config.optimizer.decay_all = False
    config.optimizer.clip_norm = 1.0
    config.train.batch_size = 8
    config.train.eval_batch_size = 20
    config.train.epochs = 3
    config.checkpoint.select = "best"
    config.calibrate = ("temperature",)
    config.method.name = "cross_entropy,mixup,m_mixup,aum_mixup,aum_mixup_ls"
    config.method.mixup.alpha = 0.4
    config.method.variants = {
        "m_mixup": {"of": "mixup", "place": "features"},
        "aum_mixup_ls": {"of": "aum_mixup", "smoothing": 0.3},
    }
    return config
