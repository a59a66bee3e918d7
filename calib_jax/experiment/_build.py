"""From a config to what it names: data sets, network, optimizer, trainer."""

import copy
import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax import augment, data, methods, models, train
from calib_jax._hints import check_choice
from calib_jax.data import Dataset
from calib_jax.experiment import _robustness
from calib_jax.experiment._custom import SPLITS, Custom
from calib_jax.experiment._keys import Config, JsonDict
from calib_jax.experiment._shift import load_shift
from calib_jax.experiment._validate import check_classes, check_dataset, check_kind
from calib_jax.experiment._variants import run_config

_NONE = Custom()
_CACHE = pathlib.Path("~/.cache/calib_jax/tokens")


class Data(NamedTuple):
    """The sets of an experiment.

    Attributes:
      train, val, test: Splits of its data set.
      shift: Other sets to evaluate on, by name.
      vectors: Word vectors, if the inputs are rows of such a table.
      tune: Examples of one of the other sets, to fine-tune with.
      texts: Texts of the test and shifted sets before they became tokens, to be shown.
      text_inputs: Shape of an example of each text input (`text`, `pair`, `choices`) before that.
      tokenizer: Folder of the tokenizer, if the inputs are tokens.
      words: Words of the vocabulary, if the inputs are rows of `vectors`, from row 1.
    """

    train: Dataset
    val: Dataset
    test: Dataset
    shift: dict[str, Dataset]
    vectors: np.ndarray | None = None
    tune: Dataset | None = None
    texts: Mapping[str, np.ndarray] = MappingProxyType({})
    text_inputs: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    tokenizer: str = ""
    words: tuple[str, ...] = ()

    def by_name(self) -> dict[str, Dataset]:
        """Return all sets by split or name."""
        tune = {} if self.tune is None else {f"{self.tune.name} to fine-tune": self.tune}
        return {"train": self.train, "val": self.val, "test": self.test, **self.shift, **tune}

    def all(self) -> list[Dataset]:
        """Return all sets."""
        return list(self.by_name().values())


def load_data(config: Config, custom: Custom = _NONE) -> Data:
    """Load all sets that the config names, as its network takes them, and check them.

    Args:
      config: Config of the experiment.
      custom: Objects in place of the config's.
    """
    folder = config.data.dir or None
    options = dict(config.data.options)

    def load(split: str) -> Dataset:
        if custom.data:
            return dataclasses.replace(custom.data[split], split=split)
        return data.load(config.data.name, split, folder, **options)

    test = load("test")
    _robustness.check_set(config.robustness, test)
    shift = {name: custom.data[name] for name in custom.data if name not in SPLITS}
    shift |= dict(load_shift(entry, test, folder) for entry in config.data.shift)

    def evaluated(dataset: Dataset) -> Dataset:
        return _subset(dataset, "num_eval", min(config.data.num_eval, len(dataset)))

    sets = Data(
        train=_subset(load("train"), "num_train", config.data.num_train),
        val=evaluated(load("val")),
        test=evaluated(test),
        shift={name: evaluated(dataset) for name, dataset in shift.items()},
    )
    if config.fine_tune.data:
        sets = sets._replace(tune=data.load(config.fine_tune.data, "train", folder))
    for dataset in sets.all():
        check_dataset(dataset)
    check_classes(sets.train, (sets.val, sets.test))
    tune = sets.tune
    if tune and (tune.label_names != sets.train.label_names or tune.read or sets.train.read):
        raise ValueError(
            f"config.fine_tune.data={tune.name!r}: expected a set in memory with the classes of "
            f"{sets.train.name}"
        )
    return _with_tokens(sets, config, custom) if "text" in sets.train.inputs else sets


def _with_tokens(sets: Data, config: Config, custom: Custom) -> Data:
    """Return the texts as tokens, or as rows of word vectors for `text_cnn`."""
    if custom.network is None and not config.model.pretrained:
        module = models.create(config.model.name, sets.train.num_classes)
        check_kind(f"config.model.name={config.model.name!r}", module, sets.train)
    kept = {"test": sets.test, **sets.shift}
    sets = sets._replace(
        texts={name: _shown(dataset) for name, dataset in kept.items()},
        text_inputs={name: rows.shape[1:] for name, rows in sets.train.inputs.items()},
    )
    if config.model.name == "text_cnn" and not config.model.pretrained:
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
    return _each(sets, tokenize)._replace(tokenizer=tokenizer)


def _subset(dataset: Dataset, key: str, number: int) -> Dataset:
    """Return a random subset of a set, the same in every run; 0 for all of it."""
    if not number:
        return dataset
    if not 0 < number <= len(dataset):
        raise ValueError(
            f"config.data.{key}={number}: expected at most {len(dataset)}, "
            f"the {dataset.split} examples of {dataset.name}, or 0 for all"
        )
    return dataset.take(data.random_subset(len(dataset), number, seed=0))


def build_network(config: Config, sets: Data, custom: Custom = _NONE) -> train.Network:
    """Build the network that the config names, for its data.

    Args:
      config: Config of the run.
      sets: Data of the run.
      custom: Objects in place of the config's.
    """
    if network := custom.build_network(sets.train):
        return network
    model = config.model
    dtype, classes = jnp.dtype(model.dtype), sets.train.num_classes
    if model.pretrained:
        path = _path(config, "model.pretrained")
        load = functools.partial(
            models.load_pretrained, path, classes, dtype=dtype, **model.options
        )
        # The weights are read again for every seed: small next to training, and nothing is kept.
        module = load()[0]
        check_kind(f"config.model.pretrained={model.pretrained!r}", module, sets.train)
        mean, std = models.image_statistics(path) or (sets.train.mean, sets.train.std)
        revision = models.find_pretrained(path).revision
        return train.Network(
            module, mean, std, pretrained=lambda seed: load(seed=seed)[1], revision=revision
        )
    options = dict(model.options)
    frozen = {}
    if sets.vectors is not None:
        options["vocab_size"], dim = sets.vectors.shape
        if dim:
            options["dim"] = dim
            frozen["frozen"] = {"vectors": sets.vectors}
        else:
            options["learned"] = True
    created = models.create(model.name, classes, dtype=dtype, **options)
    check_kind(f"config.model.name={model.name!r}", created, sets.train)
    return train.Network(created, sets.train.mean, sets.train.std, frozen)


def build_recipe(config: Config, name: str, custom: Custom = _NONE) -> methods.Recipe:
    """Return the recipe of a method or variant, with the config's options for it and its objective.

    Args:
      config: Config of the experiment.
      name: Name of the method or variant.
      custom: Objects in place of the config's.
    """
    if custom.recipe is not None and name == custom.name:
        recipe = custom.recipe
    else:
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
    config: Config, name: str, options: JsonDict, around: tuple[str, ...]
) -> JsonDict:
    """Return options with the objective that they name, built with the config's options for it.

    Args:
      config: Config of the run.
      name: Method or objective that has the options.
      options: Options of the method or objective.
      around: Names of the objectives that this one is inside of, which it cannot have itself.
    """
    if "objective" not in options:
        return options
    inner = options["objective"]
    known = [objective for objective in methods.OBJECTIVES if objective not in around]
    check_choice(f"config.method.{name}.objective", inner, known)
    inner_options = _with_objective(config, inner, dict(config.method[inner]), (*around, inner))
    return options | {"objective": methods.OBJECTIVES[inner](**inner_options)}


def build_trainer(
    config: Config,
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


def build_optimizer(config: Config, per_epoch: int, total: int) -> optax.GradientTransformation:
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


def pin_revisions(config: Config, identity: JsonDict) -> Config:
    """Return the config with the commits of the Hub in place of names that may have moved on since.

    Args:
      config: Config of the experiment.
      identity: What `config.json` has on data and network, with the commits that were used.
    """
    pinned = copy.deepcopy(config)
    for kind, section, key in (
        ("model", pinned.model, "pretrained"),
        ("data", pinned.data.options, "path"),
    ):
        revision, path = identity.get(kind, {}).get("revision"), section.get(key, "")
        if revision and path and not _local_path(config, path):
            section[key] = f"{path.partition('@')[0]}@{revision}"
    return pinned


def _data_folder(config: Config) -> str:
    return config.data.dir or os.environ.get("CALIB_JAX_DATA", "")


def _local_path(config: Config, path: str) -> str:
    """Return a path from here or from the data folder; `''` if there is nothing."""
    candidates = (pathlib.Path(path).expanduser(), pathlib.Path(_data_folder(config), path))
    return next((str(candidate) for candidate in candidates if candidate.exists()), "")


def _path(config: Config, key: str) -> str:
    """Return a path of the config, from here, from the data folder, or of a download from the Hub."""
    room, name = key.split(".")
    path = config[room][name]
    if not path:
        return ""
    if local := _local_path(config, path):
        return local
    folder = _data_folder(config)
    # Folders of networks are `models/…` in the data folder: no organization of the Hub has that name.
    if key in ("model.pretrained", "data.tokenizer") and not path.startswith("models/"):
        try:
            return str(models.find_pretrained(path).folder)
        except ValueError as error:
            raise ValueError(f"config.{key}: {error}") from None
    where = f"in {folder}" if folder else "in the folder CALIB_JAX_DATA, which is not set"
    raise ValueError(
        f"config.{key}={path!r}: there is no such path here or {where}; a network or tokenizer is "
        "a folder in the Hugging Face layout (config.json, model.safetensors, tokenizer.json) or an "
        "id of the Hub, org/name@revision"
    )


def _with_words(sets: Data, config: Config) -> Data:
    """Return the texts as rows of the vectors of the training set's most frequent words."""
    path = _path(config, "data.word_vectors")
    vectors = data.read_glove(path) if path else data.Vocabulary()
    vocabulary = vectors.most_frequent(sets.train, config.data.vocabulary_size)
    to_ids = functools.partial(
        data.word_ids, vocabulary=vocabulary, max_length=config.data.max_length
    )
    sets = _each(sets, lambda dataset: to_ids(dataset)[0])
    return sets._replace(vectors=vocabulary.vectors, words=tuple(vocabulary.rows))


def _each(sets: Data, change: Callable[[Dataset], Dataset]) -> Data:
    """Return the sets with each one changed."""
    return sets._replace(
        train=change(sets.train),
        val=change(sets.val),
        test=change(sets.test),
        shift={name: change(dataset) for name, dataset in sets.shift.items()},
        tune=None if sets.tune is None else change(sets.tune),
    )


def _shown(dataset: Dataset) -> np.ndarray:
    """Return the text of each example as a reader sees it."""
    texts = dataset.inputs["text"]
    pairs = dataset.inputs.get("pair")
    return texts if pairs is None else texts + " | " + pairs


def _augment(config: Config) -> train.Augment | None:
    if config.data.augment == "none":
        return None

    def pad_crop_flip(key: jax.Array, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        crop_key, flip_key = jax.random.split(key)
        images = inputs["image"]
        images = augment.pad_crop(crop_key, images, config.data.padding)
        return inputs | {"image": augment.flip(flip_key, images)}

    return pad_crop_flip
