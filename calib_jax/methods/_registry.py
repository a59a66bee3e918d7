"""Methods by name, with their options."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from calib_jax._hints import check_choice
from calib_jax.methods import _augmentations
from calib_jax.methods._augmentations import Augmentation
from calib_jax.methods._augmented import augmented, augmix_jsd, ccat
from calib_jax.methods._autolabel import autolabel
from calib_jax.methods._base import Method, Objective
from calib_jax.methods._informed_mixup import informed_mixup
from calib_jax.methods._lcl import lcl
from calib_jax.methods._mixup import mixup
from calib_jax.methods._objectives import OBJECTIVES
from calib_jax.methods._recipe import Phase, Recipe
from calib_jax.methods._self_distillation import self_distillation
from calib_jax.methods._supervised import supervised

Options = dict[str, Any]  # numbers, texts and booleans, as in a config


class _Entry(NamedTuple):
    """A method by name.

    Attributes:
      build: Function of the options.
      options: Options with their defaults.
      documented_by: Functions whose docstrings describe the options.
    """

    build: Callable[..., Objective | Method | Recipe]
    options: Options
    documented_by: tuple[Callable[..., object], ...]


def _defaults(function: Callable[..., object]) -> Options:
    return {p.name: p.default for p in inspect.signature(function).parameters.values()}


def _entry(build: Callable[..., Objective | Method | Recipe], **defaults: Any) -> _Entry:
    """Return the entry of a builder, with other defaults where they are given."""
    return _Entry(build, _defaults(build) | defaults, (build,))


def _image_entry(
    train: Callable[..., Method],
    augmentation: Callable[..., Augmentation],
    hidden: str = "",
    **defaults: Any,
) -> _Entry:
    """Return the entry of a training on augmented images, with the options of both.

    Args:
      train: Builder whose first argument is the augmentation.
      augmentation: Builder of the augmentation.
      hidden: Option of the augmentation that this training has no use for.
      **defaults: Other defaults.
    """
    image_options = _defaults(augmentation)
    image_options.pop(hidden, None)
    train_options = _defaults(train)
    del train_options["augmentation"]

    def build(**options: Any) -> Method:
        of_images = {key: options.pop(key) for key in image_options}
        return train(augmentation(**of_images), **options)

    return _Entry(build, image_options | train_options | defaults, (augmentation, train))


_REGISTRY: dict[str, _Entry] = {
    **{name: _entry(objective) for name, objective in OBJECTIVES.items()},
    "mixup": _entry(mixup),
    "aum_mixup": _entry(informed_mixup),
    "sim_mixup": _entry(informed_mixup, categorize="data_map", alpha=5.0),
    "ea_mixup": _entry(
        informed_mixup, categorize="data_map", share=0.33, alpha=5.0, partners="random"
    ),
    "sd": _entry(self_distillation, calibrated=False),
    "csd": _entry(self_distillation),
    "lcl": _entry(lcl),
    "randaug": _image_entry(augmented, _augmentations.randaug),
    "randaug_autolabel": _image_entry(autolabel, _augmentations.randaug, alpha=0.01),
    "augmix": _image_entry(augmented, _augmentations.augmix, hidden="num_buckets"),
    "augmix_jsd": _entry(augmix_jsd),
    "augmix_autolabel": _image_entry(autolabel, _augmentations.augmix, alpha=0.02),
    "adversarial": _image_entry(
        augmented, _augmentations.adversarial, hidden="num_buckets", multiple=False
    ),
    "ccat": _entry(ccat),
    "adversarial_autolabel": _image_entry(
        autolabel, _augmentations.adversarial, hidden="multiple", alpha=0.5
    ),
    "mixup_autolabel": _image_entry(autolabel, _augmentations.mixup, alpha=0.005),
}
NAMES = tuple(_REGISTRY)


def recipe(name: str, **options: Any) -> Recipe:
    """Return the recipe of a method.

    Args:
      name: One of `NAMES`; the name of an objective means ordinary training with it.
      **options: Options of the method; see `options(name)`.

    >>> [phase.name for phase in methods.recipe("aum_mixup").phases]
    ['records', 'train']
    """
    check_name(name)
    entry = _REGISTRY[name]
    built = entry.build(**(entry.options | options))
    if isinstance(built, Recipe):
        return built
    method = supervised(built) if isinstance(built, Objective) else built
    return Recipe((Phase("train", method),))


def create(name: str, **options: Any) -> Method:
    """Return the method of the last phase of a recipe; see `recipe`.

    >>> methods.create("adafocal", num_bins=3).init(methods.Info(10, 2)).gamma.tolist()
    [1.0, 1.0, 1.0]
    """
    return recipe(name, **options).phases[-1].method


def options(name: str) -> Options:
    """Return the options of a method with their defaults.

    >>> methods.options("focal")
    {'gamma': 3.0}
    """
    check_name(name)
    return dict(_REGISTRY[name].options)


def option_docs(name: str) -> dict[str, str]:
    """Return what each option of a method means, from the `Args` of its docstring.

    Args:
      name: One of `NAMES`.

    >>> methods.option_docs("focal")
    {'gamma': 'Exponent of `1 - p`.'}
    """
    check_name(name)
    entry = _REGISTRY[name]
    docs: dict[str, str] = {}
    for function in entry.documented_by:
        docs |= _argument_docs(function)
    return {option: docs[option] for option in entry.options if option in docs}


def _argument_docs(function: Callable[..., object]) -> dict[str, str]:
    """Return the text of each argument in a docstring."""
    _, _, args = (inspect.getdoc(function) or "").partition("Args:\n")
    docs: dict[str, str] = {}
    for line in args.partition("\n\n")[0].splitlines():
        option, colon, text = line.strip().partition(": ")
        if colon and line.startswith("  ") and line[2] != " ":
            docs[option] = text
        elif docs:
            docs[next(reversed(docs))] += f" {line.strip()}"
    return docs


def check_name(name: str) -> None:
    """Raise a ValueError unless a method has this name.

    >>> methods.check_name("adafocal")
    """
    check_choice("method", name, NAMES)
