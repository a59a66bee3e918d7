"""The config of an experiment: every key there is, with its default."""

import importlib.util
from typing import Any

from ml_collections import ConfigDict

from calib_jax import methods, train
from calib_jax._hints import expected_one_of
from calib_jax.experiment import _robustness
from calib_jax.experiment._variants import run_config


def default_config() -> ConfigDict:
    """What a config file starts from. It may change values; keys that are not here do not exist.

    †: a path from here, or from the folder of the data sets.
    """
    config = ConfigDict(
        {
            "seeds": (0,),  # one run each; tables show mean ± std over them
            "seeds_in_parallel": False,  # train all seeds of a method at once, in one program
            "method": {
                "name": "cross_entropy",  # or several: 'cross_entropy,adafocal'
                "watch_bins": False,  # log how training follows validation, bin by bin
                # More rows for the tables: {"m_mixup": {"of": "mixup", "place": "features"}}, or
                # --variant m_mixup=mixup,place=features. A row may also have another optimizer, other
                # training or options of its objective ({"of": "mixup", "train": {"epochs": 9}, "method":
                # {"focal": {"gamma": 5.0}}}), and so may a method ({"brier": {"train": …}}).
                "variants": ConfigDict(),
                **{name: methods.options(name) for name in methods.NAMES},
            },
            "model": {
                "name": "mlp",
                "options": ConfigDict(),  # attributes of the network
                "pretrained": "",  # folder with weights in the Hugging Face layout (†)
                "dtype": "float32",  # of the activations; or bfloat16
            },
            "data": {
                "name": "digits",
                "options": ConfigDict(),  # of the reader
                "num_train": 0,  # train on a random part of so many examples; 0: on all
                "num_eval": 0,  # evaluate on a random part of so many of each other set; 0: on all
                "dir": "",  # where the sets are; else $CALIB_JAX_DATA
                "shift": (),  # other sets to evaluate on: their names, or 'gaussian_noise:5'
                "augment": "none",  # or pad_crop_flip
                "padding": 4,  # pixels, for pad_crop_flip
                "tokenizer": "",  # folder (†); else model.pretrained
                "max_length": 128,  # of tokenized text
                "word_vectors": "",  # file (†), for text_cnn
                "vocabulary_size": 20_000,  # of the words that have a vector
            },
            "optimizer": {
                "name": "sgd",
                "learning_rate": 0.1,
                "schedule": "constant",
                "warmup": 0.0,  # share of all steps
                "milestones": (),  # epochs
                "factor": 0.1,  # at each milestone
                "momentum": 0.9,  # Adam's b1
                "nesterov": False,
                "weight_decay": 0.0,
                "decay_all": True,  # false: not biases and normalisation
                "clip_norm": 0.0,
                "b2": 0.999,
                "eps": 1e-8,
            },
            "train": {
                "batch_size": 128,  # of all devices together
                "epochs": 1,
                "eval_batch_size": 0,  # 0: as batch_size
                "evaluate_every": 0,  # steps between validation passes; 0: an epoch
                "steps_per_call": 0,  # 0: what suits the backend
                "workers": 0,  # processes that read a streaming set
                "accumulate": 1,  # parts of a batch whose gradients are averaged
                "sharding": "replicated",  # or fsdp: parameters sharded over the devices
                "sum_loss": False,  # minimise the sum over the batch, not the mean
                "log_test": False,  # log the test set's metrics, too; nothing is selected by them
            },
            "checkpoint": {
                "seconds": 60.0,  # at least, between two
                # One more is kept by this metric: val/nll, refinement, ece, ece_mass, accuracy or f1.
                "best": "val/nll",
                "select": "last",  # or best: which of them is evaluated
                "keep": True,  # all of a finished run, not only those of networks that are results
            },
            "fine_tune": {  # then adapt to a shifted set with a few of its examples
                "data": "",  # one of data.shift; '' for no fine-tuning
                "shares": (0.03,),  # of its training split; each begins with the same network
                "epochs": 4,
                "batch_size": 8,  # and as many examples that were hard to learn, to mix with
                "learning_rate": 0.0,  # 0: as optimizer.learning_rate
                "alpha": 5.0,  # of the mixtures
                "mixed": 0.5,  # weight of the mixtures' loss
            },
            "robustness": {
                "corruptions": (),  # of the test set: names, or all, standard, autolabel
                "severities": (1, 2, 3, 4, 5),
                "operations": (),  # of RandAug, each on the test set at magnitudes 1 to 10; names, or all
                "num_corrupted": 0,  # test images to corrupt or to operate on; 0: all
                "attack_eps": 0.0,  # radius of a PGD attack, for pixels in [0, 1]; 0: none
                "attack_steps": 50,  # of a quarter of the radius
                "attack_restarts": 3,
                "num_attacked": 0,  # test images to attack; 0: all
            },
            "calibrate": ("temperature", "ets", "spline"),  # fitted on the validation set
            "tensorboard": False,  # needs the extra of that name
            "num_bootstrap": 500,  # samples behind the intervals of a single run
        }
    )
    config.lock()
    config.model.options.unlock()
    config.data.options.unlock()
    config.method.variants.unlock()
    return config


def check(config: Any) -> None:
    """Finds values that would only be noticed late, or never.

    Raises:
      ValueError: with the key, its value and what was expected.
    """
    _robustness.check(config.robustness)
    allowed = {"best": tuple(train.SELECTION), "select": ("last", "best")}
    for key, values in allowed.items():
        if config.checkpoint[key] not in values:
            raise ValueError(
                f"config.checkpoint.{key}={config.checkpoint[key]!r}: "
                f"expected one of {', '.join(values)}"
            )
    _check_training(config, "config")
    tune = config.fine_tune
    if tune.data and tune.data not in config.data.shift:
        raise ValueError(
            f"config.fine_tune.data={tune.data!r}: expected one of config.data.shift, "
            f"which is {tuple(config.data.shift)!r}"
        )
    if not all(0 < share <= 1 for share in tune.shares):
        raise ValueError(f"config.fine_tune.shares={tuple(tune.shares)!r}: expected shares of 1")
    if not 0 <= tune.mixed <= 1:
        raise ValueError(f"config.fine_tune.mixed={tune.mixed:g}: expected 0 to 1")
    if config.tensorboard and importlib.util.find_spec("tensorboardX") is None:
        raise ValueError(
            "config.tensorboard=True needs tensorboardX: pip install 'calib_jax[tensorboard]'"
        )


def _check_training(config: Any, where: str) -> None:
    least = {"epochs": 1, "accumulate": 1, "steps_per_call": 0, "evaluate_every": 0, "workers": 0}
    for key, smallest in least.items():
        if config.train[key] < smallest:
            raise ValueError(
                f"{where}.train.{key}={config.train[key]}: expected at least {smallest}"
            )
    warmup = config.optimizer.warmup
    if not 0 <= warmup < 1:
        raise ValueError(f"{where}.optimizer.warmup={warmup:g}: expected a share of all steps")


def method_names(config: Any) -> list[str]:
    """The methods, and variants of methods, to compare."""
    names = [name.strip() for name in config.method.name.split(",") if name.strip()]
    variants = config.method.variants
    for name in names:
        if name not in (*methods.NAMES, *variants):
            expected = expected_one_of(name, (*methods.NAMES, *variants))
            raise ValueError(f"config.method.name={name!r}: {expected}")
    for name in variants:
        _check_training(run_config(config, name)[1], f"config.method.variants.{name}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"config.method.name={config.method.name!r}: expected different methods")
    return names


def seeds(config: Any) -> list[int]:
    """The seeds to run."""
    found = [config.seeds] if isinstance(config.seeds, int) else list(config.seeds)
    whole = all(isinstance(seed, int) and seed >= 0 for seed in found)
    if not found or not whole or len(set(found)) < len(found):
        raise ValueError(f"config.seeds={config.seeds!r}: expected different whole numbers from 0")
    return found
