"""Your own images, from a folder with a subfolder for each class: calibrated probabilities and a report.

    python -m calib_jax.main --config configs/own/images.py --config.data.options.path=a --workdir run

The images are a/cat/*.jpg, a/dog/*.jpg, … or a/train/cat/*.jpg, a/test/cat/*.jpg, …; without such folders
20 % of the images are the test split and 10 % validation. The center square of each image is scaled to
--config.data.options.size=32 pixels. docs/data.md has all options, and other formats.

Expect accuracy and calibration before and after temperature scaling and other calibrators; to compare
methods add --config.method.name=cross_entropy,adafocal. A ResNet-20 trains for minutes on a CPU with a
thousand images of 32x32 pixels; larger images and networks want a GPU (--config.data.options.size=224
--config.model.name=resnet50_imagenet).
"""

from calib_jax import experiment


def get_config():
    config = experiment.default_config()
    config.data.name = "image_folder"
    config.data.options = {
        "path": "", "train": "", "val": "", "test": "",
        "val_share": 0.1, "test_share": 0.2, "split_seed": 0, "max_malformed": 0.01,
        "size": 32,
    }  # fmt: skip
    config.data.augment = "pad_crop_flip"
    config.model.name = "resnet20"
    config.optimizer.learning_rate = 0.05
    config.optimizer.nesterov = True
    config.optimizer.weight_decay = 5e-4
    config.optimizer.schedule = "cosine"
    config.train.batch_size = 64
    config.train.epochs = 30
    config.num_bootstrap = 200
    return config
