"""Settings shared by the configs for mixup guided by AUM and saliency; the files beside this one load it.

The default methods are the rows of tables 1 and 2. The rows of table 3 are
--config.method.name=aum_mixup_ls,no_saliency,no_aum,no_similar,no_dissimilar: the first is the
reference of the other four, as in the paper, and all five smooth the labels that they mix. Methods that
need to know how easy each example is share one recording phase per seed.

Published: 3 epochs, the one with the least validation loss; AdamW, clipping at 1; BERT with batch 16
and no weight decay, RoBERTa with batch 32 and 0.1; Beta(0.4, 0.4), weights 0.8 / 0.1 / 0.1;
temperature by likelihood; the same batch size for all methods.
Our choice: learning rates 2e-5 for BERT and 1e-5 for RoBERTa, as in the published programs (the
paper's text swaps them); baselines mix pairs of one batch and train on mixtures only. A step of AUM
mixup has one batch, half of it easy and half hard, so that its epochs have as many updates as those of
other methods; in the published code (aum_mixup_each) it has a whole batch of each, and half as many
updates.
"""

from calib_jax import experiment

NETWORKS = ("bert", "roberta")


def base_config(network, smoothing):
    """Return what SNLI, QQP and SWAG share.

    Args:
      network: `"bert"` or `"roberta"`.
      smoothing: the label smoothing of every row that smooths.
    """
    if network not in NETWORKS:
        raise ValueError(f"network {network!r}: expected one of {', '.join(NETWORKS)}")
    bert = network == "bert"
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.data.max_length = 256
    config.model.name = network
    config.model.pretrained = "models/bert-base-uncased" if bert else "models/roberta-base"
    config.model.options.head = "linear"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 2e-5 if bert else 1e-5
    config.optimizer.weight_decay = 0.0 if bert else 0.1
    config.optimizer.decay_all = False
    config.optimizer.clip_norm = 1.0
    config.train.batch_size = 16 if bert else 32
    config.train.epochs = 3
    config.checkpoint.select = "best"
    config.calibrate = ("temperature",)

    config.method.label_smoothing.smoothing = smoothing
    config.method.mixup.alpha = 0.4
    config.method.aum_mixup.batch_split = "halves"
    config.method.name = (
        "cross_entropy,label_smoothing,mixup,mixup_ls,m_mixup,m_mixup_ls,aum_mixup,aum_mixup_ls"
    )
    config.method.variants = {
        "mixup_ls": {"of": "mixup", "objective": "label_smoothing"},
        "m_mixup": {"of": "mixup", "place": "features"},
        "m_mixup_ls": {"of": "mixup", "place": "features", "objective": "label_smoothing"},
        "aum_mixup_ls": {"of": "aum_mixup", "smoothing": smoothing},
        # Table 3: aum_mixup_ls with one component removed.
        "no_aum": {"of": "aum_mixup", "smoothing": smoothing, "categorize": "random"},
        "no_saliency": {"of": "aum_mixup", "smoothing": smoothing, "partners": "random"},
        "no_similar": {"of": "aum_mixup", "smoothing": smoothing, "similar": 0.0},
        "no_dissimilar": {"of": "aum_mixup", "smoothing": smoothing, "dissimilar": 0.0},
        # As in the published code.
        "aum_mixup_each": {"of": "aum_mixup", "batch_split": "each"},
        "aum_mixup_clamp": {"of": "aum_mixup", "clamp": 1e-6},
        # Beyond the paper.
        "bank": {"of": "aum_mixup", "partners": "bank"},
    }
    return config
