"""From a config to what it names: data sets, network, optimiser, trainer."""

import functools
import math
import os
import pathlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax import augment, data, methods, models, train
from calib_jax.data import Dataset
from calib_jax.experiment import _robustness
from calib_jax.experiment._shift import load_shift
from calib_jax.experiment._variants import run_config

_AUGMENTS = ("none", "pad_crop_flip")
_CACHE = pathlib.Path("~/.cache/calib_jax/tokens")


class Data(NamedTuple):
    """The sets of an experiment.

    Attributes:
      train, val, test: its own.
      shift: others to evaluate on, by name.
      vectors: of the words, if the inputs are rows of such a table.
      tune: examples of one of the others, to fine-tune with.
      texts: of the test and shifted sets as they were before they became tokens, to be shown.
    """

    train: Dataset
    val: Dataset
    test: Dataset
    shift: dict[str, Dataset]
    vectors: np.ndarray | None = None
    tune: Dataset | None = None
    texts: Mapping[str, np.ndarray] = MappingProxyType({})

    def parts(self) -> list[Dataset]:
        """All of them."""
        more = [self.tune] if self.tune is not None else []
        return [self.train, self.val, self.test, *self.shift.values(), *more]


def load_data(config: Any) -> Data:
    """All sets that the config names, as its network wants them."""
    folder = config.data.dir or None
    options = dict(config.data.options)

    def load(split: str) -> Dataset:
        return data.load(config.data.name, split, folder, **options)

    test = load("test")
    _robustness.check_set(config.robustness, test)
    shift = dict(load_shift(entry, test, folder) for entry in config.data.shift)

    def judged(part: Dataset) -> Dataset:
        return _part(part, "num_eval", min(config.data.num_eval, len(part)))

    sets = Data(
        train=_part(load("train"), "num_train", config.data.num_train),
        val=judged(load("val")),
        test=judged(test),
        shift={name: judged(part) for name, part in shift.items()},
    )
    if config.fine_tune.data:
        sets = sets._replace(tune=data.load(config.fine_tune.data, "train", folder))
    if "text" not in sets.train.inputs:
        return sets
    kept = {"test": sets.test, **sets.shift}
    sets = sets._replace(texts={name: _shown(part) for name, part in kept.items()})
    if config.model.name == "text_cnn":
        return _with_words(sets, config)
    key = "data.tokenizer" if config.data.tokenizer else "model.pretrained"
    tokenizer = _path(config, key)
    if not tokenizer:
        raise ValueError(
            "config.data.tokenizer='': text needs the folder of a tokenizer, "
            "here or as config.model.pretrained"
        )
    tokenize = functools.partial(
        data.tokenize,
        tokenizer_folder=tokenizer,
        max_length=config.data.max_length,
        cache_dir=_CACHE.expanduser(),
    )
    return _each(sets, tokenize)


def _part(dataset: Dataset, key: str, number: int) -> Dataset:
    """A random part of a set, the same in every run, or all of it."""
    if not number:
        return dataset
    if not 0 < number <= len(dataset):
        raise ValueError(
            f"config.data.{key}={number}: expected at most {len(dataset)}, "
            f"the {dataset.split} examples of {dataset.name}, or 0 for all"
        )
    chosen = np.sort(np.random.default_rng(0).permutation(len(dataset))[:number])
    return dataset.take(chosen)


def build_network(config: Any, sets: Data) -> train.Network:
    """The network that the config names, for its data."""
    model = config.model
    if model.dtype not in ("float32", "bfloat16"):
        raise ValueError(f"config.model.dtype={model.dtype!r}: expected float32 or bfloat16")
    dtype, classes = jnp.dtype(model.dtype), sets.train.num_classes
    if model.pretrained:
        path = _path(config, "model.pretrained")
        load = functools.partial(
            models.load_pretrained, path, classes, dtype=dtype, **model.options
        )
        # The weights are read again for every seed: small next to training, and nothing is kept.
        return train.Network(load()[0], pretrained=lambda seed: load(seed=seed)[1])
    options = dict(model.options)
    frozen = {}
    if sets.vectors is not None:
        options["vocab_size"], options["dim"] = sets.vectors.shape
        frozen["frozen"] = {"vectors": sets.vectors}
    module = models.create(model.name, classes, dtype=dtype, **options)
    return train.Network(module, sets.train.mean, sets.train.std, frozen)


def build_recipe(config: Any, name: str) -> methods.Recipe:
    """Return the recipe of a method or variant, with the config's options for it and its objective."""
    base, config = run_config(config, name)
    options = _with_objective(config, name, dict(config.method[base]), (base,))
    recipe = methods.recipe(base, **options)
    if not config.method.watch_bins:
        return recipe
    return recipe._replace(
        phases=tuple(
            phase
            if phase.provides == "dynamics"  # shared by all methods, whatever this one logs
            else phase._replace(method=methods.bin_monitor(phase.method))
            for phase in recipe.phases
        )
    )


def _with_objective(
    config: Any, name: str, options: dict[str, Any], around: tuple[str, ...]
) -> dict[str, Any]:
    """Options with the objective that they name, made with the config's options for it in turn."""
    if "objective" not in options:
        return options
    inner = options["objective"]
    if inner not in methods.OBJECTIVES or inner in around:
        expected = ", ".join(o for o in methods.OBJECTIVES if o not in around)
        raise ValueError(f"config.method.{name}.objective={inner!r}: expected one of {expected}")
    own = _with_objective(config, inner, dict(config.method[inner]), (*around, inner))
    return options | {"objective": methods.OBJECTIVES[inner](**own)}


def build_trainer(
    config: Any,
    sets: Data,
    phase: methods.Phase | methods.Method,
    artifacts: Mapping[str, np.ndarray],
    network: train.Network | None = None,
) -> train.Trainer:
    """Build the programs that are compiled once and used for all seeds.

    Args:
      config: Config of the run, with the settings of its variant (see `run_config`).
      sets: Data of the run.
      phase: Phase, or method, to train.
      artifacts: Arrays of earlier phases; see `methods.Info`.
      network: Network instead of the config's.
    """
    setup = dict(config.train)
    test = sets.test if setup.pop("log_test") else None
    return train.Trainer(
        network or build_network(config, sets),
        phase,
        functools.partial(build_optimizer, config),
        sets.train,
        sets.val,
        train.Setup(**setup),
        _augment(config),
        artifacts,
        test,
    )


def build_optimizer(config: Any, per_epoch: int, total: int) -> optax.GradientTransformation:
    """Build the config's optimizer for so many steps of an epoch and of the run."""
    options = dict(config.optimizer)
    schedule = train.make_schedule(
        options.pop("schedule"),
        options.pop("learning_rate"),
        total_steps=total,
        warmup_steps=math.ceil(options.pop("warmup") * total),
        milestones=[per_epoch * epoch for epoch in options.pop("milestones")],
        factor=options.pop("factor"),
    )
    return train.make_optimizer(options.pop("name"), schedule, **options)


def _path(config: Any, key: str) -> str:
    """A path of the config, from here or, if there is nothing, from the folder of the data sets."""
    room, name = key.split(".")
    path = config[room][name]
    if not path:
        return ""
    folder = config.data.dir or os.environ.get("CALIB_JAX_DATA", "")
    for place in (pathlib.Path(path).expanduser(), pathlib.Path(folder, path)):
        if place.exists():
            return str(place)
    where = f"in {folder}" if folder else "in the folder CALIB_JAX_DATA, which is not set"
    raise ValueError(
        f"config.{key}={path!r}: there is no such path here or {where}; a network or tokenizer is "
        "a folder as Hugging Face has it (config.json, model.safetensors, tokenizer.json)"
    )


def _with_words(sets: Data, config: Any) -> Data:
    """Texts as rows of the vectors of the training set's most frequent words."""
    path = _path(config, "data.word_vectors")
    if not path:
        raise ValueError("config.data.word_vectors='': text_cnn needs a file of word vectors")
    size = config.data.vocabulary_size
    vocabulary = data.read_glove(path).most_frequent(sets.train, size)
    to_ids = functools.partial(
        data.word_ids, vocabulary=vocabulary, max_length=config.data.max_length
    )
    return _each(sets, lambda part: to_ids(part)[0])._replace(vectors=vocabulary.vectors)


def _each(sets: Data, change: Any) -> Data:
    shift = {name: change(part) for name, part in sets.shift.items()}
    tune = None if sets.tune is None else change(sets.tune)
    own = {name: change(getattr(sets, name)) for name in ("train", "val", "test")}
    return sets._replace(**own, shift=shift, tune=tune)


def _shown(part: Dataset) -> np.ndarray:
    """What a reader sees of each example."""
    texts = part.inputs["text"]
    pairs = part.inputs.get("pair")
    return texts if pairs is None else texts + " | " + pairs


def _augment(config: Any) -> Any:
    name = config.data.augment
    if name not in _AUGMENTS:
        raise ValueError(f"config.data.augment={name!r}: expected one of {', '.join(_AUGMENTS)}")
    if name == "none":
        return None

    def pad_crop_flip(key: jax.Array, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        crop_key, flip_key = jax.random.split(key)
        images = inputs["image"]
        images = augment.pad_crop(crop_key, images, config.data.padding)
        return inputs | {"image": augment.flip(flip_key, images)}

    return pad_crop_flip
