"""A perceptron on a hundred digits: seconds.

python -m calib_jax.main --config configs/smoke/digits.py --workdir runs/smoke
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.data.options.num_train = 100
    config.model.options.widths = (32,)
    config.train.batch_size = 24
    config.train.epochs = 3
    config.calibrate = ("temperature",)
    config.num_bootstrap = 20
    return config
