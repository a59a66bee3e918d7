"""20 Newsgroups x a small text CNN: AdaFocal's tables 1 and 2 on two cores.

    python -m calib_jax.main --config configs/results/newsgroups_cnn.py --workdir runs/results_cnn

Differences from configs/adafocal/newsgroups_cnn.py: GloVe of 50 dimensions (the 60,000 most
frequent words as an npz file of `words` and `vectors`), the last 128 words of a post, 64 channels,
20 epochs, three seeds. With --config.train.evaluate_every=28 AdaFocal's gammas move four times an
epoch. Results: docs/results.md.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1, 2)
    config.method.name = "cross_entropy,brier,mmce,label_smoothing,flsd53,adafocal"
    config.method.mmce.double_normalized = True  # the form for which its weight of 2 was published
    config.method.watch_bins = True
    config.data.name = "newsgroups"
    config.data.options.by_date = False  # True: a shift in time
    config.data.max_length = 128
    config.data.word_vectors = "glove/glove_6B_50d_top60k_fp16.npz"
    config.model.name = "text_cnn"
    config.model.options.width = 64
    config.optimizer.name = "adam"
    config.optimizer.learning_rate = 1e-3
    config.train.batch_size = 128
    config.train.epochs = 20
    config.calibrate = ("temperature_ece_mass", "ets", "spline")
    return config
