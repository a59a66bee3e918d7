"""Cross entropy against AdaFocal on scikit-learn's digits; nothing to download, a minute or two.

    python -m calib_jax.main --config configs/quickstart.py --workdir runs/quickstart

The network memorizes two hundred training images within seconds: with cross entropy it ends
over-confident, with AdaFocal, which adapts to the validation set, it does not.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.seeds = (0, 1, 2)
    config.method.name = "cross_entropy,adafocal"
    config.data.options.num_train = 200
    config.model.name = "mlp"
    config.model.options.widths = (128,)
    config.optimizer.learning_rate = 0.05
    config.train.batch_size = 20
    config.train.epochs = 150
    config.num_bootstrap = 200
    return config
