"""Shifted sets to evaluate on: other data sets, and the test set corrupted."""

import ast
import dataclasses
import os

import numpy as np

from calib_jax import augment, data
from calib_jax._hints import expected_one_of
from calib_jax.data import Dataset
from calib_jax.evaluation import corrupted_images
from calib_jax.experiment._keys import Value


def load_shift(
    entry: str, test: Dataset, data_dir: str | os.PathLike[str] | None
) -> tuple[str, Dataset]:
    """Load a set to evaluate on besides the test set.

    Args:
      entry: Name of a set (`'svhn'`), perhaps with options of its reader
        (`'hellaswag?source=wikihow'`), or a corruption and its severity (`'gaussian_noise:5'`) for
        the test set so corrupted: from the files of CIFAR-10-C, CIFAR-100-C or ImageNet-C, if it is
        theirs and they are there, else made here, the same for every run and never under the
        name of the published set.
      test: Test set.
      data_dir: Folder of the data sets, as in `data.load`.

    Returns:
      The name of the set in results and file names, and the set.
    """
    corruption, colon, severity = entry.partition(":")
    if not colon:
        name, _, given = entry.partition("?")
        pairs = [option.partition("=") for option in given.split("&") if option]
        options = {key: _literal(value) for key, _, value in pairs}
        title = "_".join([name, *(value for _, _, value in pairs)])
        return title, data.load(name, "test", data_dir, **options)
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
            f"shift={entry!r}: {expected_one_of(corruption, augment.CORRUPTIONS)} "
            "(for cifar10 and cifar100 also the published files in the data folder)"
        )
    if "image" not in test.inputs:
        raise ValueError(f"shift={entry!r}: {test.name} has no images in memory to corrupt")
    return name, _corrupted(test, corruption, int(severity))


def corruption_source(
    test: Dataset, corruption: str, severity: int, data_dir: str | os.PathLike[str] | None
) -> str:
    """Return where a corrupted test set comes from: published files, or what strengths."""
    files = data.corrupted_set(test.name, corruption, severity, data_dir)
    return f"from the files of {files}" if files else _made_with(test)


def _made_with(test: Dataset) -> str:
    height, width = test.inputs["image"].shape[1:3]
    return f"made with the {augment.corruption_strengths(height, width)}"


def _literal(text: str) -> Value:
    """Return `5` and `True` as what they look like, and a word as a word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _official(
    test: Dataset, corruption: str, severity: int, data_dir: str | os.PathLike[str] | None
) -> Dataset:
    """Return the published corrupted edition of the images of the test set."""
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
    corrupted = everything.take(test.ids)
    if not np.array_equal(corrupted.labels, test.labels):
        raise ValueError(f"{name}: labels.npy disagrees with the labels of {test.name}'s test set")
    return dataclasses.replace(
        corrupted, label_names=test.label_names, notes=(*everything.notes, note)
    )


def _same_images(everything: Dataset, test: Dataset) -> Dataset:
    """Return the images with the test set's ids, in its order."""
    position = {number: i for i, number in enumerate(everything.ids.tolist())}
    missing = [number for number in test.ids.tolist() if number not in position]
    if missing:
        raise ValueError(
            f"{everything.name}: {len(missing)} of the {len(test)} test images are not there, the "
            f"first is number {missing[0]}; get the complete files"
        )
    return everything.take([position[number] for number in test.ids.tolist()])


def _corrupted(test: Dataset, corruption: str, severity: int) -> Dataset:
    """Return the test set corrupted here, under a name that is not the published set's."""
    images = corrupted_images(test.inputs["image"], test.ids, corruption, severity)
    note = f"{corruption} {severity} {_made_with(test)}"
    return dataclasses.replace(
        test,
        name=f"{test.name}_corrupted",
        inputs=test.inputs | {"image": images},
        notes=(*test.notes, note),
    )
