"""Objects in place of what a config names: data sets, a network, a method; and what identifies them."""

import copy
import functools
import hashlib
import importlib.util
import pathlib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import NamedTuple, TypeAlias

import flax.linen as nn
import jax

from calib_jax import methods, train
from calib_jax.data import Dataset
from calib_jax.experiment._keys import Config, JsonDict
from calib_jax.methods import Method, Objective, Params, Phase, Recipe

SPLITS = ("train", "val", "test")
_ROW = "custom"
_DIGITS = 16  # of a hash

DataSets: TypeAlias = Mapping[str, Dataset] | Sequence[Dataset]
AnyNetwork: TypeAlias = train.Network | nn.Module | train.NNXModule


class Custom(NamedTuple):
    """Objects in place of what a config names.

    Attributes:
      data: Sets `train`, `val` and `test`, and others to evaluate on; empty for those of the config.
      network: Network or Flax module; `None` for the config's.
      recipe: Recipe of a method; `None` for those of the config only.
      name: Name of the recipe in `config.method.name`, in tables and of its folder.
      loss: Qualified name of the recipe's losses.
    """

    data: Mapping[str, Dataset] = MappingProxyType({})
    network: AnyNetwork | None = None
    recipe: Recipe | None = None
    name: str = ""
    loss: str = ""

    def build_network(self, training: Dataset) -> train.Network | None:
        """Return the network, with the normalization of the training set if it is a bare module."""
        if self.network is None or isinstance(self.network, train.Network):
            return self.network
        return train.Network(self.network, training.mean, training.std)

    def content(self, sets: Mapping[str, Dataset]) -> dict[str, str]:
        """Return a hash of the content of train, val, test and the sets in `data`.

        Shifted sets of the config may be computed, with results that differ in the last bit between
        devices.

        Args:
          sets: All data sets by split or name.
        """
        names = [name for name in sets if name in SPLITS or name in self.data]
        return {name: sets[name].content_hash[:_DIGITS] for name in names}

    def kinds(self) -> JsonDict:
        """Return which objects there are, for `config.json`."""
        kinds: JsonDict = {"data": bool(self.data), "network": self.network is not None}
        return kinds | {"methods": {self.name: self.loss} if self.recipe else {}}


def make_custom(
    config: Config,
    data: DataSets | None,
    network: AnyNetwork | None,
    method: Method | Objective | Recipe | None,
) -> tuple[Config, Custom]:
    """Return the objects given to `run`, and the config with a name for the method.

    The row of the method is the name in `config.method.name` that no other method has. If there is none,
    the method takes the place of those in `config.method.name`, under the name `custom`.
    """
    custom = Custom(_data_sets(data) if data is not None else {}, network)
    if method is None:
        return config, custom
    named = [name.strip() for name in config.method.name.split(",")]
    unknown = [n for n in named if n not in (*methods.NAMES, *config.method.variants)]
    if len(unknown) > 1 or not all(name.isidentifier() for name in unknown):
        raise ValueError(
            f"config.method.name={config.method.name!r}: expected one name for the given method, of "
            "letters, digits and _, alone or beside methods to compare it with"
        )
    if not unknown:
        config = copy.deepcopy(config)
        config.method.name = _ROW
    recipe, name = _as_recipe(method), (unknown or [_ROW])[0]
    return config, custom._replace(recipe=recipe, name=name, loss=_loss_names(method, recipe))


def custom_from_file(path: str, config: Config) -> JsonDict:
    """Return the objects that a config file makes beside its config, as arguments of `run`.

    Args:
      path: Config file, perhaps with an argument after a colon. Functions `get_data`, `get_network` and
        `get_method` in it, each from the config to the object, are called if they are there.
      config: Config with all overrides.
    """
    module = load_config_file(path)
    names = ("data", "network", "method")
    return {n: getattr(module, f"get_{n}")(config) for n in names if hasattr(module, f"get_{n}")}


def load_config_file(path: str) -> ModuleType:
    """Return the module of a config file; `path` may have an argument after a colon."""
    file = pathlib.Path(path.partition(":")[0])
    spec = importlib.util.spec_from_file_location(f"configs.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses, such as Flax modules, look their module up
    spec.loader.exec_module(module)
    return module


def identify(
    config: Config,
    custom: Custom,
    sets: Mapping[str, Dataset],
    network: train.Network,
    params: Params,
) -> JsonDict:
    """Return what tells data and network from others, for `config.json`.

    Args:
      config: Config of the experiment.
      custom: Objects in place of the config's.
      sets: Data sets by split or name.
      network: Network.
      params: Shapes of its parameters.
    """
    kind, training = network.module_type, sets["train"]
    name = pathlib.Path(config.model.pretrained).name or config.model.name
    if custom.network is not None:
        name = kind.__qualname__
    return {
        "data": {
            "name": training.name,
            "content": custom.content(sets),
            "examples": {split: len(sets[split]) for split in SPLITS},
            "label_names": training.label_names,
            **({"revision": training.revision} if training.revision else {}),
        },
        "model": {
            "name": name,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "num_parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            "shapes": _shapes_hash(params),
            **({"revision": network.revision} if network.revision else {}),
        },
    }


def _shapes_hash(params: Params) -> str:
    lines = [
        f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]


def _data_sets(data: DataSets) -> Mapping[str, Dataset]:
    sets = data if isinstance(data, Mapping) else dict(zip(SPLITS, data, strict=False))
    wrong = [name for name, dataset in sets.items() if not isinstance(dataset, Dataset)]
    missing = [split for split in SPLITS if split not in sets]
    if wrong or missing or len(sets) < len(data):
        raise ValueError(
            "data: expected calib_jax.data.Dataset objects train, val and test, as a tuple or by name "
            f"(others by name are evaluated, too), got {', '.join(sets) or 'nothing'}"
        )
    return sets


def _as_recipe(method: Method | Objective | Recipe) -> Recipe:
    if isinstance(method, Recipe):
        return method
    if isinstance(method, Objective):
        method = methods.supervised(method)
    if not isinstance(method, Method):
        raise ValueError(
            f"method={type(method).__name__}: expected a Method, Objective or Recipe of calib_jax.methods"
        )
    return Recipe((Phase("train", method),))


def _loss_names(method: Method | Objective | Recipe, recipe: Recipe) -> str:
    """Return the qualified names of an objective's loss, or of the losses of all phases."""
    losses = []
    for source in [method] if isinstance(method, Objective) else [p.method for p in recipe.phases]:
        loss = source.loss
        while isinstance(loss, functools.partial):
            loss = loss.func
        losses.append(f"{loss.__module__}.{getattr(loss, '__qualname__', type(loss).__qualname__)}")
    return ", ".join(losses)
