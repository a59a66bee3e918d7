"""The config of an experiment: its defaults, and the checks that need more than one key."""

import importlib.util

from ml_collections import ConfigDict

from calib_jax import methods
from calib_jax._hints import expected_one_of
from calib_jax.experiment import _robustness
from calib_jax.experiment._keys import (
    FOOTNOTE,
    KEYS,
    Config,
    Value,
    check_values,
    flatten,
    meanings,
)
from calib_jax.experiment._variants import run_config


def default_config() -> Config:
    """Return the config that a config file starts from: all keys of `KEYS` with their defaults.

    A config file changes values; keys that are not here do not exist, but for the options of a network
    or reader and for variants of methods.
    """
    sections: dict[str, dict[str, Value]] = {}
    for path, key in KEYS.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section, {})[name] = key.default
    top = sections.pop("")
    sections["method"] |= {name: methods.options(name) for name in methods.NAMES}
    config = ConfigDict(sections | top)
    config.lock()
    config.model.options.unlock()
    config.data.options.unlock()
    config.method.variants.unlock()
    return config


def config_text(config: Config) -> str:
    """Return all keys of a config with their values and meanings, one line each.

    Args:
      config: Config of an experiment.
    """
    described = meanings()
    lines = []
    for path, value in flatten(config).items():
        shown = value.to_dict() if isinstance(value, ConfigDict) else value
        setting = f"config.{path} = {shown!r}"
        lines.append(f"{setting:<48}  # {described[path]}" if path in described else setting)
    return "\n".join([*lines, FOOTNOTE])


def check(config: Config) -> None:
    """Raise a ValueError, with the key, its value and what was expected, for a config that cannot be run.

    Args:
      config: Config of an experiment.
    """
    check_values(config)
    _check_milestones(config, "config")
    for name in config.method.variants:
        title, changed = f"config.method.variants.{name}", run_config(config, name)[1]
        check_values(changed, title)
        _check_milestones(changed, title)
    _robustness.check(config.robustness)
    tune = config.fine_tune
    if tune.data and tune.data not in config.data.shift:
        raise ValueError(
            f"config.fine_tune.data={tune.data!r}: expected one of config.data.shift, "
            f"which is {tuple(config.data.shift)!r}"
        )
    if config.tensorboard and importlib.util.find_spec("tensorboardX") is None:
        raise ValueError(
            "config.tensorboard=True needs tensorboardX: pip install 'calib_jax[tensorboard]'"
        )


def _check_milestones(config: Config, title: str) -> None:
    optimizer = config.optimizer
    if optimizer.milestones and optimizer.schedule != "milestones":
        raise ValueError(
            f"{title}.optimizer.milestones={tuple(optimizer.milestones)!r}: expected () with "
            f"optimizer.schedule={optimizer.schedule!r}, or optimizer.schedule='milestones'"
        )


def method_names(config: Config, custom: str = "") -> list[str]:
    """Return the methods, and variants of methods, to compare.

    Args:
      config: Config of the experiment.
      custom: Name of a method that is given as an object; '' for none.
    """
    names = [name.strip() for name in config.method.name.split(",") if name.strip()]
    known = (*methods.NAMES, *config.method.variants)
    for name in names:
        if name not in known and name != custom:
            raise ValueError(f"config.method.name={name!r}: {expected_one_of(name, known)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"config.method.name={config.method.name!r}: expected different methods")
    return names


def seeds(config: Config) -> list[int]:
    """Return the seeds to run."""
    numbers = [config.seeds] if isinstance(config.seeds, int) else list(config.seeds)
    valid = all(isinstance(seed, int) and seed >= 0 for seed in numbers)
    if not numbers or not valid or len(set(numbers)) < len(numbers):
        raise ValueError(f"config.seeds={config.seeds!r}: expected different whole numbers from 0")
    return numbers
