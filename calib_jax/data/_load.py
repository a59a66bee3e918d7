"""One door to all sets."""

import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Any

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
    goemotions,
    isear,
    ssec,
)
from calib_jax.data._fashion_mnist import fashion_mnist
from calib_jax.data._imagenet import imagenet
from calib_jax.data._imagenet_c import corrupted_patterns, imagenet_c
from calib_jax.data._newsgroups import newsgroups
from calib_jax.data._pairs import mnli, msrp, qqp, snli, twitter_ppdb
from calib_jax.data._svhn import svhn
from calib_jax.data._tiny_imagenet import tiny_imagenet

# name -> reader(split, data_dir, **options)
_READERS: dict[str, Callable[..., Dataset]] = {
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
}
NAMES = tuple(_READERS)
SPLITS = ("train", "val", "test")


def load(
    name: str, split: str, data_dir: str | os.PathLike[str] | None = None, **options: Any
) -> Dataset:
    """Reads one split of a data set.

    Args:
      name: one of `NAMES`.
      split: `'train'`, `'val'` or `'test'`. Where a set has no validation split of its own, it is a
        seeded part of its training split; each reader says how it is drawn.
      data_dir: the folder that holds the sets as their publishers distribute them; without it, the
        environment variable `CALIB_JAX_DATA`.
      options: of the reader, by keyword.
    """
    if name not in _READERS:
        raise ValueError(f"data set {name!r}: {expected_one_of(name, NAMES)}")
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: expected one of {', '.join(SPLITS)}")
    reader = _READERS[name]
    known = [
        p.name for p in inspect.signature(reader).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            raise ValueError(f"{name}: option {option!r}: {expected_one_of(option, known)}")
    return reader(split, _folder(data_dir), **options)


def corrupted_set(
    name: str, corruption: str, severity: int, data_dir: str | os.PathLike[str] | None = None
) -> str:
    """Return the name of the set whose corrupted images of `name` are there; '' if there are none.

    Args:
      name: of the clean set.
      corruption: name of the corruption.
      severity: 1 to 5.
      data_dir: as in `load`.
    """
    folder = _folder(data_dir)
    patterns: dict[str, str] = {}  # to the set's name
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
