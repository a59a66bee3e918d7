"""Every key of a config: its default, its meaning and the values that make sense."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ml_collections import ConfigDict

from calib_jax import methods, report, train
from calib_jax._hints import expected_one_of

Config: TypeAlias = ConfigDict
JsonDict: TypeAlias = dict[str, Any]  # what a JSON file holds
Value: TypeAlias = bool | int | float | str | Sequence["Value"] | Mapping[str, "Value"] | ConfigDict


class Check(NamedTuple):
    """What is expected of a value.

    Attributes:
      holds: Function from a value to whether it is as expected.
      expected: Function from a value to the words for what is expected.
    """

    holds: Callable[[Value], bool]
    expected: Callable[[Value], str]


class Key(NamedTuple):
    """A key of the config.

    Attributes:
      default: Value that a config starts with; values of other types are rejected.
      meaning: What the key is for, in one line.
      check: What is expected of the value; `None` for any value of the type.
    """

    default: Value
    meaning: str
    check: Check | None = None


def _range(low: float, high: float = math.inf, *, above: bool = False, below: bool = True) -> Check:
    """Return the check of a number, or of all numbers of a tuple.

    Args:
      low: Smallest value.
      high: Largest value.
      above: Whether the value must be more than `low`.
      below: Whether the value must be less than `high`.
    """
    words = f"{'more than' if above else 'at least'} {low:g}"
    if not above and not below and not math.isinf(high):
        words = f"{low:g} to {high:g}"
    elif not math.isinf(high):
        words += f" and {'less than' if below else 'at most'} {high:g}"

    def holds(value: Value) -> bool:
        numbers = value if isinstance(value, tuple) else (value,)
        return all(
            isinstance(x, int | float)
            and (x > low if above else x >= low)
            and (x < high if below else x <= high)
            for x in numbers
        )

    return Check(holds, lambda _: f"expected {words}")


def _one_of(*names: str) -> Check:
    """Return the check of one of some names."""
    return Check(lambda value: value in names, lambda value: expected_one_of(str(value), names))


_POSITIVE = _range(0, above=True)
_NOT_NEGATIVE = _range(0)
_AT_LEAST_ONE = _range(1)
_BELOW_ONE = _range(0, 1)
_SHARE = _range(0, 1, below=False)
_SOME_SHARE = _range(0, 1, above=True, below=False)

# Two kinds of sections have keys that are not here: `options` (of the network, of the reader) have those
# that the config or the command line gives them, and `method.NAME` has the options of that method.
KEYS: Mapping[str, Key] = {
    "seeds": Key((0,), "seeds, one run each; tables show mean ± std over them"),
    "seeds_in_parallel": Key(False, "train all seeds of a method at once, in one program"),
    "method.name": Key("cross_entropy", "method, or several to compare: cross_entropy,adafocal"),
    "method.watch_bins": Key(False, "log how training follows validation, bin by bin"),
    "method.variants": Key(
        {},
        "more rows: {'m_mixup': {'of': 'mixup', 'place': 'features'}}; see --variant",
    ),
    "model.name": Key("mlp", "network; --list names all"),
    "model.options": Key({}, "attributes of the network"),
    "model.pretrained": Key(
        "", "folder in the Hugging Face layout (†), or a Hub id: org/name@revision"
    ),
    "model.dtype": Key("float32", "type of the activations", _one_of("float32", "bfloat16")),
    "data.name": Key("digits", "data set; --list names all"),
    "data.options": Key({}, "options of the data set's reader"),
    "data.num_train": Key(0, "size of a random subset to train on; 0 for all", _NOT_NEGATIVE),
    "data.num_eval": Key(
        0, "size of a random subset of each other set to evaluate; 0 for all", _NOT_NEGATIVE
    ),
    "data.dir": Key("", "folder of the data sets; else $CALIB_JAX_DATA"),
    "data.shift": Key((), "other sets to evaluate on: names, or corruptions as 'gaussian_noise:5'"),
    "data.augment": Key(
        "none", "augmentation of training images", _one_of("none", "pad_crop_flip")
    ),
    "data.padding": Key(4, "pixels of padding for pad_crop_flip", _NOT_NEGATIVE),
    "data.tokenizer": Key("", "folder (†) or Hub id of a tokenizer; else model.pretrained"),
    "data.max_length": Key(128, "largest number of tokens of a text", _AT_LEAST_ONE),
    "data.word_vectors": Key("", "file of word vectors (†), for text_cnn; '': they are learned"),
    "data.vocabulary_size": Key(20_000, "number of words that have a vector", _AT_LEAST_ONE),
    "optimizer.name": Key("sgd", "optimizer", _one_of(*train.OPTIMIZERS)),
    "optimizer.learning_rate": Key(0.1, "learning rate after warm-up", _POSITIVE),
    "optimizer.schedule": Key("constant", "learning rate schedule", _one_of(*train.SCHEDULES)),
    "optimizer.warmup": Key(0.0, "share of all steps with linear warm-up", _BELOW_ONE),
    "optimizer.milestones": Key((), "epochs at which schedule=milestones drops", _NOT_NEGATIVE),
    "optimizer.factor": Key(0.1, "factor of each milestone", _POSITIVE),
    "optimizer.momentum": Key(0.9, "momentum of SGD; b1 of Adam", _BELOW_ONE),
    "optimizer.nesterov": Key(False, "Nesterov momentum"),
    "optimizer.weight_decay": Key(0.0, "weight decay", _NOT_NEGATIVE),
    "optimizer.decay_all": Key(True, "decay biases and the scales of normalization, too"),
    "optimizer.clip_norm": Key(0.0, "largest norm of the gradient; 0 for any", _NOT_NEGATIVE),
    "optimizer.b2": Key(0.999, "decay rate of Adam's second moment", _BELOW_ONE),
    "optimizer.eps": Key(1e-8, "term in the denominator of Adam", _POSITIVE),
    "train.batch_size": Key(128, "examples of a step, over all devices"),
    "train.epochs": Key(1, "passes over the training set", _AT_LEAST_ONE),
    "train.eval_batch_size": Key(0, "batch size of evaluation; 0: batch_size", _NOT_NEGATIVE),
    "train.evaluate_every": Key(0, "steps between validations; 0: an epoch", _NOT_NEGATIVE),
    "train.steps_per_call": Key(
        0, "steps in one program; 0: what suits the backend", _NOT_NEGATIVE
    ),
    "train.workers": Key(0, "processes that read a streamed set", _NOT_NEGATIVE),
    "train.accumulate": Key(1, "parts of a batch whose gradients are averaged", _AT_LEAST_ONE),
    "train.sharding": Key(
        "replicated", "or fsdp: parameters sharded over the devices", _one_of("replicated", "fsdp")
    ),
    "train.sum_loss": Key(False, "minimize the sum over the batch instead of the mean"),
    "train.log_test": Key(False, "log the test set's metrics, too; nothing is selected by them"),
    "checkpoint.seconds": Key(
        60.0, "least number of seconds between checkpoints", _range(0, below=False)
    ),
    "checkpoint.best": Key(
        "val/nll", "metric by which one more checkpoint is kept", _one_of(*train.SELECTION)
    ),
    "checkpoint.select": Key("last", "checkpoint that is evaluated", _one_of("last", "best")),
    "checkpoint.keep": Key(True, "keep all checkpoints of a finished run, not only its results'"),
    "fine_tune.data": Key("", "one of data.shift to adapt to with a few of its examples; '': none"),
    "fine_tune.shares": Key(
        (0.03,), "shares of its training split; each begins with the same network", _SOME_SHARE
    ),
    "fine_tune.epochs": Key(4, "epochs of fine-tuning", _AT_LEAST_ONE),
    "fine_tune.batch_size": Key(
        8, "examples of a step, and as many that were hard to learn, to mix with", _AT_LEAST_ONE
    ),
    "fine_tune.learning_rate": Key(
        0.0, "learning rate of fine-tuning; 0: optimizer.learning_rate", _NOT_NEGATIVE
    ),
    "fine_tune.alpha": Key(5.0, "Beta parameter of the mixtures", _POSITIVE),
    "fine_tune.mixed": Key(0.5, "weight of the mixtures' loss", _SHARE),
    "robustness.corruptions": Key(
        (), "corruptions of the test set: names, all, standard, autolabel"
    ),
    "robustness.severities": Key((1, 2, 3, 4, 5), "severities of each", _range(1, 5, below=False)),
    "robustness.operations": Key(
        (), "RandAug operations, each at magnitudes 1 to 10 on the test set: names, or all"
    ),
    "robustness.num_corrupted": Key(0, "test images to corrupt; 0 for all", _NOT_NEGATIVE),
    "robustness.attack_eps": Key(
        0.0, "radius of a PGD attack, for pixels in [0, 1]; 0 for none", _NOT_NEGATIVE
    ),
    "robustness.attack_steps": Key(50, "steps of a quarter of the radius", _AT_LEAST_ONE),
    "robustness.attack_restarts": Key(3, "attacks from random points", _AT_LEAST_ONE),
    "robustness.num_attacked": Key(0, "test images to attack; 0 for all", _NOT_NEGATIVE),
    "calibrate": Key(("temperature", "ets", "spline"), "calibrators, fitted on validation"),
    "plot_format": Key(
        "png",
        "format of the files in plots/; none: no files",
        _one_of(*report.PLOT_FORMATS, "none"),
    ),
    "interactive": Key(
        True, "report.html has a figure with sliders, for which it embeds 5,000 rows"
    ),
    "tensorboard": Key(False, "write TensorBoard files, too; needs the extra of that name"),
    "num_bootstrap": Key(500, "bootstrap samples of the intervals of a single run", _AT_LEAST_ONE),
}
FOOTNOTE = "†: a path from here, or from the folder of the data sets"

# Options that mean the same in every method that has them.
_OPTIONS: Mapping[str, Check] = {
    **dict.fromkeys(("alpha", "beta", "norm", "rho", "tau", "width"), _POSITIVE),
    **dict.fromkeys(("eps", "validation_subset", "weight"), _NOT_NEGATIVE),
    **dict.fromkeys(
        ("generations", "max_magnitude", "num_bins", "num_buckets", "steps", "update_every"),
        _AT_LEAST_ONE,
    ),
    **dict.fromkeys(("smoothing",), _BELOW_ONE),
    **dict.fromkeys(("replaced", "share"), _SHARE),
}


def check_values(config: Config, title: str = "config") -> None:
    """Raise a ValueError for the first value that makes no sense, with what was expected.

    Args:
      config: Config, or a part of one.
      title: Name of the config in the message.
    """
    for path, value in flatten(config).items():
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"{title}.{path}={value}: expected a number")
        section, _, option = path.rpartition(".")
        check = KEYS[path].check if path in KEYS else None
        if section.startswith("method.") and section.count(".") == 1:
            check = _OPTIONS.get(option)
        if check is not None and not check.holds(value):
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise ValueError(f"{title}.{path}={shown}: {check.expected(value)}")


def flatten(config: Config, prefix: str = "") -> dict[str, Value]:
    """Return the values of a config by their paths, such as `train.epochs`, in its order."""
    values: dict[str, Value] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, ConfigDict) and path not in KEYS:
            values |= flatten(value, f"{path}.")
        else:
            values[path] = value
    return values


def meanings() -> dict[str, str]:
    """Return the meaning of each key by its path, the options of methods included."""
    described = {path: key.meaning for path, key in KEYS.items()}
    for name in methods.NAMES:
        described |= {f"method.{name}.{k}": text for k, text in methods.option_docs(name).items()}
    return described
