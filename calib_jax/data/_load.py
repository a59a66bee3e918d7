"""All data sets by name."""

import inspect
import os
import pathlib
from collections.abc import Callable
from functools import partial

from calib_jax._hints import expected_one_of
from calib_jax.data._choices import hellaswag, swag
from calib_jax.data._cifar import cifar10, cifar100
from calib_jax.data._cifar_c import FOLDERS, cifar10_c, cifar100_c
from calib_jax.data._dataset import Dataset
from calib_jax.data._digits import digits
from calib_jax.data._emotion import (
    dailydialog,
    emotion_stimulus,
    empathetic_dialogues,
    isear,
    ssec,
)
from calib_jax.data._fashion_mnist import fashion_mnist
from calib_jax.data._goemotions import goemotions
from calib_jax.data._imagenet import imagenet
from calib_jax.data._imagenet_c import corrupted_patterns, imagenet_c
from calib_jax.data._known_truth import known_truth
from calib_jax.data._newsgroups import newsgroups
from calib_jax.data._own_files import own_files
from calib_jax.data._pairs import mnli, msrp, qqp, snli, twitter_ppdb
from calib_jax.data._sources import SPLITS
from calib_jax.data._svhn import svhn
from calib_jax.data._tiny_imagenet import tiny_imagenet

Reader = Callable[..., Dataset]  # reader(split, data_dir, *, options)
# Formats of your own files.
FORMATS = ("csv", "jsonl", "parquet", "npz", "image_folder", "tfds", "huggingface")
_READERS: dict[str, Reader] = {
    "digits": digits,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "cifar10_c": cifar10_c,
    "cifar100_c": cifar100_c,
    "svhn": svhn,
    "tiny_imagenet": tiny_imagenet,
    "imagenet": imagenet,
    "imagenet_c": imagenet_c,
    "snli": snli,
    "mnli": mnli,
    "qqp": qqp,
    "twitter_ppdb": twitter_ppdb,
    "msrp": msrp,
    "swag": swag,
    "hellaswag": hellaswag,
    "goemotions": goemotions,
    "dailydialog": dailydialog,
    "empathetic_dialogues": empathetic_dialogues,
    "ssec": ssec,
    "isear": isear,
    "emotion_stimulus": emotion_stimulus,
    "newsgroups": newsgroups,
    "known_truth": known_truth,
    **{kind: partial(own_files, kind) for kind in FORMATS},
}
NAMES = _READERS.keys()  # a view: it includes what is registered later


def register(name: str, reader: Reader) -> None:
    """Add a data set, so that `load` and `config.data.name` know it by name.

    Args:
      name: New name.
      reader: Function `reader(split, data_dir, *, options) -> Dataset`. Splits are `'train'`, `'val'` and
        `'test'`; `data_dir` is a path or `None`; keyword-only parameters are the options.

    >>> def first_digits(split, data_dir, *, number=10):
    ...     return load("digits", split).take(range(number))
    >>> register("first_digits", first_digits)
    >>> len(load("first_digits", "test", number=3))
    3
    """
    known = _READERS.get(name)
    # A config file may be read twice: the same reader again is no mistake.
    if known is not None and _qualified_name(known) != _qualified_name(reader):
        raise ValueError(f"data set {name!r}: there is one of that name; register it under another")
    if not name or not callable(reader):
        raise ValueError(f"data set {name!r}: expected a name and a function, got {reader!r}")
    _READERS[name] = reader


def _qualified_name(reader: Reader) -> str:
    return f"{reader.__module__}.{getattr(reader, '__qualname__', type(reader).__qualname__)}"


def load(
    name: str, split: str, data_dir: str | os.PathLike[str] | None = None, **options: object
) -> Dataset:
    """Read one split of a data set.

    Args:
      name: Name of the set, one of `NAMES`; for your own files the name of their format.
      split: `'train'`, `'val'` or `'test'`. If a set has no official validation split, it is a seeded
        part of the training split; the docstring of each reader describes it.
      data_dir: Folder of the sets as their publishers distribute them; by default, the environment
        variable `CALIB_JAX_DATA`.
      **options: Keyword options of the reader.

    Returns:
      The split.

    >>> load("digits", "test").inputs["image"].shape
    (797, 8, 8, 1)
    """
    if name not in _READERS:
        raise ValueError(f"data set {name!r}: {expected_one_of(name, NAMES)}")
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: {expected_one_of(split, SPLITS)}")
    reader = _READERS[name]
    parameters = inspect.signature(reader).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for option in options:
        if option not in known and not takes_any:
            raise ValueError(f"{name}: option {option!r}: {expected_one_of(option, known)}")
    return reader(split, _folder(data_dir), **options)


def corrupted_set(
    name: str, corruption: str, severity: int, data_dir: str | os.PathLike[str] | None = None
) -> str:
    """Return the name of the set that has corrupted images of `name`; `''` if there is none.

    Args:
      name: Name of the clean set.
      corruption: Name of the corruption.
      severity: Severity, 1 to 5.
      data_dir: Data folder, as in `load`.
    """
    folder = _folder(data_dir)
    patterns: dict[str, str] = {}  # pattern -> name of the set
    if name in FOLDERS:
        patterns = {f"{FOLDERS[name]}/{corruption}.npy": f"{name}_c"}
    elif name == "imagenet":
        patterns = corrupted_patterns(corruption, severity)
    if folder is None:
        return ""
    return next((patterns[p] for p in patterns if any(folder.glob(p))), "")


def _folder(data_dir: str | os.PathLike[str] | None) -> pathlib.Path | None:
    named = data_dir or os.environ.get("CALIB_JAX_DATA")
    return pathlib.Path(named).expanduser() if named else None
