"""20 Newsgroups x global-pooling CNN (AdaFocal, tables 1 and 2).

    python -m calib_jax.main --config configs/adafocal/newsgroups_cnn.py --workdir runs/newsgroups_cnn

Needs in CALIB_JAX_DATA the by-date folders of 20 Newsgroups, and glove/glove.6B.100d.txt (or other
vectors as config.data.word_vectors).

Published (for this network, by others): GloVe of 100 dimensions, frozen; 20,000 words; 1,000 words
of each post, the last ones; dropout 0.3; Adam 1e-3, batch 128, 22 epochs; 20 % of all posts are the
test set, 900 others validation. The paper names neither batch nor epochs.
Our choice: those; label smoothing spreads its mass over the other classes; MMCE is normalised twice,
as in the code its weight of 2 is of.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1, 2, 3, 4)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.mmce.double_normalized = True  # as its weight of 2 is published for
    config.method.watch_bins = True
    config.data.name = "newsgroups"
    config.data.options.by_date = False  # True: a shift in time
    config.data.max_length = 1000
    config.data.word_vectors = "glove/glove.6B.100d.txt"
    config.model.name = "text_cnn"
    config.model.options.width = 128
    config.optimizer.name = "adam"
    config.optimizer.learning_rate = 1e-3
    config.train.batch_size = 128
    config.train.epochs = 22
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
