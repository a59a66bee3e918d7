"""Sets that a network was not trained for: others', and its own test set corrupted."""

import ast
import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from calib_jax import augment, data
from calib_jax.data import Dataset

_AT_A_TIME = 256  # images corrupted together


def load_shift(
    entry: str, test: Dataset, data_dir: str | os.PathLike[str] | None
) -> tuple[str, Dataset]:
    """A set to evaluate on besides the test set.

    Args:
      entry: the name of a set (`'svhn'`), perhaps with options of its reader
        (`'hellaswag?source=wikihow'`), or a corruption and its severity (`'gaussian_noise:5'`) for
        the test set so corrupted: from the files of CIFAR-10-C, CIFAR-100-C or ImageNet-C, if it is
        theirs and they are there, else made here, the same for every run and never under the
        name of the published set.
      test: the test set.
      data_dir: as in `data.load`.

    Returns:
      Its name in results and file names, and the set.
    """
    corruption, colon, severity = entry.partition(":")
    if not colon:
        name, _, given = entry.partition("?")
        pairs = [option.partition("=") for option in given.split("&") if option]
        options = {key: _literal(value) for key, _, value in pairs}
        found = data.load(name, "test", data_dir, **options)
        return "_".join([name, *(value for _, _, value in pairs)]), found
    if severity not in tuple("12345"):
        raise ValueError(
            f"shift={entry!r}: expected a data set, or a corruption with a severity of 1 to 5 such as "
            "'gaussian_noise:5'"
        )
    name = f"{corruption}_{severity}"
    if data.corrupted_set(test.name, corruption, int(severity), data_dir):
        return name, _official(test, corruption, int(severity), data_dir)
    if corruption not in augment.CORRUPTIONS:
        raise ValueError(
            f"shift={entry!r}: expected one of {', '.join(augment.CORRUPTIONS)}, "
            "or for cifar10 and cifar100 one of the published files in the data folder"
        )
    if "image" not in test.inputs:
        raise ValueError(f"shift={entry!r}: {test.name} has no images in memory to corrupt")
    return name, _made(test, corruption, int(severity))


def corruption_source(
    test: Dataset, corruption: str, severity: int, data_dir: str | os.PathLike[str] | None
) -> str:
    """Where `load_shift` has a corrupted test set from: the publishers' files, or what strengths."""
    files = data.corrupted_set(test.name, corruption, severity, data_dir)
    return f"from the files of {files}" if files else _made_with(test)


def _made_with(test: Dataset) -> str:
    height, width = test.inputs["image"].shape[1:3]
    return f"made with the {augment.corruption_strengths(height, width)}"


def _literal(text: str) -> Any:
    """`5` and `True` are what they look like; a word is a word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _official(
    test: Dataset, corruption: str, severity: int, data_dir: str | os.PathLike[str] | None
) -> Dataset:
    """The publishers' edition of the images that the test set holds."""
    name = f"{test.name}_c"
    everything = data.load(name, "test", data_dir, corruption=corruption, severity=severity)
    note = f"{corruption} {severity} {corruption_source(test, corruption, severity, data_dir)}"
    if everything.read:  # matched by file name when it was read: its ids are the test set's
        return dataclasses.replace(_same_images(everything, test), notes=(*everything.notes, note))
    if test.ids.max() >= len(everything):
        raise ValueError(
            f"{name}: {len(everything)} images of {corruption}, but the test set has "
            f"number {test.ids.max()}; get the complete files"
        )
    part = everything.take(test.ids)
    if not np.array_equal(part.labels, test.labels):
        raise ValueError(f"{name}: labels.npy disagrees with the labels of {test.name}'s test set")
    return dataclasses.replace(part, label_names=test.label_names, notes=(*everything.notes, note))


def _same_images(everything: Dataset, test: Dataset) -> Dataset:
    """The images with the test set's ids, in its order."""
    position = {number: i for i, number in enumerate(everything.ids.tolist())}
    missing = [number for number in test.ids.tolist() if number not in position]
    if missing:
        raise ValueError(
            f"{everything.name}: {len(missing)} of the {len(test)} test images are not there, the "
            f"first is number {missing[0]}; get the complete files"
        )
    return everything.take([position[number] for number in test.ids.tolist()])


def _made(test: Dataset, corruption: str, severity: int) -> Dataset:
    """The test set corrupted here. An image's noise hangs on its id: a part is a part of the whole."""
    images = corrupted(test.inputs["image"], test.ids, corruption, severity)
    note = f"{corruption} {severity} {_made_with(test)}"
    return dataclasses.replace(
        test,
        name=f"{test.name}_corrupted",
        inputs=test.inputs | {"image": images},
        notes=(*test.notes, note),
    )


def corrupted(images: np.ndarray, ids: np.ndarray, corruption: str, severity: int) -> np.ndarray:
    """Images corrupted with the noise of their ids, a few at a time."""
    return _in_parts(
        lambda rows: _corrupt(ids[rows], images[rows], corruption, severity), len(images)
    )


def operated(test: Dataset, name: str, magnitude: int) -> Dataset:
    """The test set under one operation of RandAug; which way a warp goes hangs on an image's id."""
    images, number = test.inputs["image"], augment.op_number(name)
    made = _in_parts(
        lambda rows: _operate(test.ids[rows], images[rows], number, magnitude), len(test)
    )
    return dataclasses.replace(test, inputs=test.inputs | {"image": made})


def _in_parts(make: Callable[[np.ndarray], jax.Array], number: int) -> np.ndarray:
    """Images made a few at a time: one shape, one program."""
    parts = [
        np.asarray(make(np.arange(first, first + _AT_A_TIME) % number))
        for first in range(0, number, _AT_A_TIME)
    ]
    return np.concatenate(parts)[:number]


@jax.jit
def _operate(ids: jax.Array, images: jax.Array, op: int, magnitude: int) -> jax.Array:
    def one(number: jax.Array, image: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(0), number)
        return augment.randaug(key, image[None], magnitude, op)[0]

    return jax.vmap(one)(ids, images)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _corrupt(ids: jax.Array, images: jax.Array, corruption: str, severity: int) -> jax.Array:
    def one(number: jax.Array, image: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(0), number)
        return augment.corrupt(key, image[None], corruption, severity)[0]

    return jax.vmap(one)(ids, images)
