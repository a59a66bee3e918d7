"""Your own feature vectors or small images, from an npz file: calibrated probabilities and a report.

    python -m calib_jax.main --config configs/own/arrays.py --config.data.options.path=a.npz --workdir run

The file has `features`, numbers [n, dim], or `image`, uint8 [n, height, width, channels], and `labels`,
names or whole numbers [n]: np.savez("a.npz", features=x, labels=y). 20 % of the examples are the test
split and 10 % validation, unless there are files for them (--config.data.options.val=… and test=…).
Features are standardized by the training split.

Expect accuracy and calibration before and after temperature scaling and other calibrators, in a minute on
a CPU; to compare methods add --config.method.name=cross_entropy,adafocal.
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.data.name = "npz"
    config.data.options = {
        "path": "", "train": "", "val": "", "test": "",
        "val_share": 0.1, "test_share": 0.2, "split_seed": 0, "max_malformed": 0.01,
    }  # fmt: skip
    config.model.name = "mlp"
    config.model.options.widths = (256, 256)
    config.optimizer.name = "adam"
    config.optimizer.learning_rate = 1e-3
    config.train.batch_size = 128
    config.train.epochs = 30
    config.num_bootstrap = 200
    return config
