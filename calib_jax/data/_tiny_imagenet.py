"""Tiny-ImageNet-200 from the publisher's folder."""

import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, lines, official, split_positions
from calib_jax.data._images import decode

# ImageNet's, as in the papers' code.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SIDE = 64


def tiny_imagenet(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 10_000,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read Tiny-ImageNet: 100,000 + 10,000 color 64x64 images of 200 classes.

    The official test images have no labels, so the official validation images are the test split, as in
    the papers. Paper: they are also the validation split; here: validation is the first `num_val`
    training images in the order of numpy's `default_rng(0).permutation`, because a temperature must not
    be fitted on test images.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      num_val: Number of validation images.
      max_malformed: Largest fraction of malformed rows.

    References:
      Le and Yang, 2015, CS 231N course report, Stanford.
    """
    wnids_path = find(
        "tiny_imagenet",
        data_dir,
        ("tiny-imagenet-200/wnids.txt",),
        "Get tiny-imagenet-200.zip (cs231n.stanford.edu) and unzip it "
        "to <data folder>/tiny-imagenet-200/.",
    )
    folder = wnids_path.parent
    wnids = lines(wnids_path, "it lists the classes")
    malformed = Malformed("tiny_imagenet", max_malformed)
    paths, labels = (_test_files if split == "test" else _train_files)(folder, wnids, malformed)
    n = len(paths)
    positions = split_positions("tiny_imagenet", split, n, num_val)
    labeled = positions[labels[positions] >= 0]
    images, ids = [], []
    with ThreadPoolExecutor() as pool:  # Pillow releases the interpreter lock
        decoded = pool.map(_decode, [paths[i] for i in labeled])
        for position, image in zip(labeled, decoded, strict=True):
            if isinstance(image, str):
                malformed.add(paths[position], 1, image)
            else:
                images.append(image)
                ids.append(position)
    notes = malformed.notes(len(positions))
    return Dataset(
        name="tiny_imagenet",
        split=split,
        inputs={"image": np.stack(images)},
        labels=labels[ids],
        ids=np.array(ids, np.int32),
        label_names=_names(folder, wnids),
        notes=notes
        + official("images", n, ROWS["tiny_imagenet"]["test" if split == "test" else "train"]),
        mean=MEAN,
        std=STD,
    )


def _train_files(
    folder: pathlib.Path, wnids: list[str], malformed: Malformed
) -> tuple[list[pathlib.Path], np.ndarray]:
    """Return paths and labels of the training images by class and number (n01443537_12.JPEG)."""
    paths: list[pathlib.Path] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        images = (folder / "train" / wnid / "images").glob("*.JPEG")
        class_paths = sorted(images, key=lambda path: (len(path.name), path.name))
        paths += class_paths
        labels += [label] * len(class_paths)
    return paths, np.array(labels, np.int32)


def _test_files(
    folder: pathlib.Path, wnids: list[str], malformed: Malformed
) -> tuple[list[pathlib.Path], np.ndarray]:
    """Return paths and labels in the order of `val_annotations.txt`; label -1 for a malformed line."""
    annotations = folder / "val" / "val_annotations.txt"
    classes = {wnid: label for label, wnid in enumerate(wnids)}
    paths, labels = [], []
    for number, line in enumerate(lines(annotations, "it labels the images"), 1):
        name, _, rest = line.partition("\t")
        labels.append(classes.get(rest.partition("\t")[0], -1))
        paths.append(folder / "val" / "images" / name)
        if labels[-1] < 0:
            malformed.add(annotations, number, "no class of wnids.txt")
    return paths, np.array(labels, np.int32)


def _decode(path: pathlib.Path) -> np.ndarray | str:
    """Return the image, uint8 `[64, 64, 3]`, or the reason why it is malformed."""
    try:
        pixels = decode(path)
    except ValueError as error:
        return str(error)
    if pixels.shape != (_SIDE, _SIDE, 3):
        return f"{pixels.shape[1]}x{pixels.shape[0]} pixels"
    return pixels


def _names(folder: pathlib.Path, wnids: list[str]) -> tuple[str, ...]:
    """Return the first name of each class ("goldfish" of "goldfish, Carassius auratus")."""
    entries = lines(folder / "words.txt", "it names the classes")
    words = dict(entry.split("\t", 1) for entry in entries if "\t" in entry)
    return tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)
