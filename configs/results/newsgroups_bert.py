"""A part of 20 Newsgroups x a small pretrained BERT: AdaFocal's tables 1 and 2 on two cores.

    python -m calib_jax.main --config configs/results/newsgroups_bert.py --workdir runs/results_bert

Differences from configs/adafocal/newsgroups_bert.py: all-MiniLM-L6-v2 (six layers, 384 wide) in
models/all-MiniLM-L6-v2, 1,500 random training posts, their first 64 tokens, 1,500 test posts, a
rate of 3e-4, 8 epochs, three methods, one seed. Results: docs/results.md.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.method.name = "cross_entropy,flsd53,adafocal"
    config.data.name = "newsgroups"
    config.data.num_train = 1500
    config.data.num_eval = 1500
    config.data.max_length = 64
    config.model.name = "bert"
    config.model.pretrained = "models/all-MiniLM-L6-v2"
    config.optimizer.name = "adamw"
    config.optimizer.learning_rate = 3e-4
    config.optimizer.schedule = "linear"
    config.optimizer.warmup = 0.1
    config.optimizer.weight_decay = 0.01
    config.optimizer.decay_all = False
    config.optimizer.clip_norm = 1.0
    config.train.batch_size = 32
    config.train.epochs = 8
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
