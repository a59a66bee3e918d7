"""20 Newsgroups x BERT (AdaFocal, tables 1 and 2).

    python -m calib_jax.main --config configs/adafocal/newsgroups_bert.py --workdir runs/newsgroups_bert

Needs in CALIB_JAX_DATA the by-date folders of 20 Newsgroups, and models/bert-base-uncased in the
Hugging Face layout (or another BERT as config.model.pretrained).

Published: nothing but the name of the network.
Our choice: BERT's own head; the first 256 tokens; AdamW 2e-5 with linear decay after a tenth of
warm-up, weight decay 0.01 on matrices, clipping at 1; batch 32, 10 epochs, long enough for
over-confidence to grow; the split and the MMCE of newsgroups_cnn.py.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.mmce.double_normalized = True  # as its weight of 2 is published for
    config.data.name = "newsgroups"
    config.data.options.by_date = False  # True: a shift in time
    config.data.max_length = 256
    config.model.name = "bert"
    config.model.pretrained = "models/bert-base-uncased"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 2e-5
    config.optimizer.schedule = "linear"
    config.optimizer.warmup = 0.1
    config.optimizer.weight_decay = 0.01
    config.optimizer.decay_all = False
    config.optimizer.clip_norm = 1.0
    config.train.batch_size = 32
    config.train.epochs = 10
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
