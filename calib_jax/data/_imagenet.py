"""ImageNet and ImageNet-C as tfds prepares them, streamed: images are decoded and cropped when read."""

import hashlib
import io
import math
import os
import pathlib
from functools import partial
from typing import Any

import numpy as np

from calib_jax.data import _tfds
from calib_jax.data._cache import cached
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find, official, split_positions
from calib_jax.data._tiny_imagenet import MEAN, STD

_SIDE = 224  # of what the network sees
_RESIZED = 256  # the shorter side before the centre crop
_COUNT = {"train": 1_281_167, "validation": 50_000}
_CHUNK = 4096  # records per read of the scan for labels


def imagenet(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 50_000,
    cache_dir: str | os.PathLike[str] = "~/.cache/calib_jax",
) -> Dataset:
    """1,281,167 + 50,000 colour images of 1,000 classes, 224x224 when read.

    The official test images have no labels, so the official validation images are the test split.
    Validation: the first `num_val` training images in the order of numpy's
    `default_rng(0).permutation`. An id is the record's position in its tfds split.

    Training reads a random part of the image (8 to 100 % of its area, sides 3:4 to 4:3) and mirrors
    every second one; evaluation scales the shorter side to 256 and takes the centre.

    The labels lie among the images, so the first use reads through the whole split once (minutes);
    they are then kept in `cache_dir`.
    """
    info = find(
        "imagenet",
        data_dir,
        _tfds.patterns("imagenet2012"),
        "Get ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from image-net.org and prepare tfds's "
        "imagenet2012 in the data folder with file_format='array_record'.",
    )
    part = "validation" if split == "test" else "train"
    whole = _open("imagenet", split, info, part, cache_dir, cropped=False)
    return whole.take(split_positions("imagenet", split, len(whole), num_val))


def imagenet_c(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    corruption: str = "",
    severity: int = 5,
    cache_dir: str | os.PathLike[str] = "~/.cache/calib_jax",
) -> Dataset:
    """ImageNet's 50,000 test images under one of 19 corruptions at a severity of 1 to 5.

    There is a test split only. Ids are positions in it, which are not those of ImageNet's test split.
    """
    info = find(
        "imagenet_c",
        data_dir,
        corrupted_patterns(corruption, severity),
        "Get ImageNet-C from zenodo.org/records/2235448 and prepare tfds's "
        f"imagenet2012_corrupted/{corruption}_{severity} in the data folder with "
        "file_format='array_record'.",
    )
    if split != "test":
        raise ValueError(f"imagenet_c: split={split!r}: expected 'test', the only one there is")
    return _open("imagenet_c", split, info, "validation", cache_dir, cropped=True)


def corrupted_patterns(corruption: str, severity: int) -> tuple[str, ...]:
    """Where the corrupted images of that kind may lie."""
    return _tfds.patterns(f"imagenet2012_corrupted/{corruption}_{severity}")


def _open(
    name: str,
    split: str,
    info: pathlib.Path,
    part: str,
    cache_dir: str | os.PathLike[str],
    *,
    cropped: bool,
) -> Dataset:
    """All images of one split of a prepared folder; `cropped` if they were before they were stored."""
    source, names = _tfds.open_split(info.parent, part)
    # The fingerprint of a prepared set: versions, shard lengths and checksums are in this file.
    key = hashlib.sha256(info.read_bytes() + part.encode()).hexdigest()
    labels = cached(
        pathlib.Path(cache_dir), f"imagenet_labels_{key[:24]}", partial(_labels, source)
    )
    n = len(source)
    return Dataset(
        name=name,
        split=split,
        inputs={},
        labels=labels["labels"],
        ids=np.arange(n, dtype=np.int32),
        label_names=names,
        notes=official("images", n, _COUNT[part]),
        mean=MEAN,
        std=STD,
        read=partial(_read, source, cropped=cropped),
    )


def _labels(source: Any) -> dict[str, np.ndarray]:
    labels = np.empty(len(source), np.int32)
    for start in range(0, len(source), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(source)))
        labels[rows.start : rows.stop] = [record["label"] for record in source.__getitems__(rows)]
    return {"labels": labels}


def _read(
    source: Any, position: int, rng: np.random.Generator | None, *, cropped: bool = False
) -> dict[str, np.ndarray]:
    from PIL import Image

    record = source[position]
    try:
        with Image.open(io.BytesIO(record["image"])) as image:
            pixels = image.convert("RGB")
    except OSError as error:
        raise ValueError(f"imagenet: record {position} is no image ({error})") from error
    box = None if cropped else _box(*pixels.size, rng)
    pixels = pixels.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR, box=box)
    array = np.asarray(pixels)
    if rng is not None and rng.random() < 0.5:
        array = array[:, ::-1]
    return {"image": np.ascontiguousarray(array)}


def _box(
    width: int, height: int, rng: np.random.Generator | None
) -> tuple[float, float, float, float]:
    """What the network sees of an image: the centre, or in training a random part."""
    return _centre(width, height) if rng is None else _random_box(width, height, rng)


def _centre(width: int, height: int) -> tuple[float, float, float, float]:
    """What is left of the image when its shorter side is scaled to 256 and the middle 224 are kept."""
    side = min(width, height) * _SIDE / _RESIZED
    x, y = (width - side) / 2, (height - side) / 2
    return x, y, x + side, y + side


def _random_box(
    width: int, height: int, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """A random part of 8 to 100 % of the area and sides 3:4 to 4:3."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return x, y, x + w, y + h
    return _centre(width, height)  # a very long image, for which no draw fitted
