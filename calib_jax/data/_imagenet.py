"""ImageNet from tfds or Hugging Face, streamed: images are decoded and cropped when read."""

import dataclasses
import hashlib
import io
import math
import os
import pathlib
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calib_jax.data import _tfds
from calib_jax.data._cache import cached
from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find, official, split_positions
from calib_jax.data._records import parquet_patterns, shards
from calib_jax.data._tfds import Indexed, RecordSource
from calib_jax.data._tiny_imagenet import MEAN, STD

if TYPE_CHECKING:
    import datasets

_SIDE = 224  # of what the network sees
_RESIZED = 256  # the shorter side before the center crop
_WNID = re.compile(r"_(n\d{8})\.(?=\w+$)")  # at the end of Hugging Face's file names
_NOT_THE_SET = (OSError, ValueError, LookupError, TypeError, AttributeError)
_CHUNK = 4096  # records per read of the scan for labels


def imagenet(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 50_000,
    halve_validation: bool = False,
    cache_dir: str | os.PathLike[str] = "~/.cache/calib_jax",
) -> Dataset:
    """Read ImageNet: 1,281,167 + 50,000 color images of 1,000 classes, 224x224 when read.

    The official test images have no labels, so the official validation images are the test split.
    Validation is the first `num_val` training images in the order of numpy's
    `default_rng(0).permutation`. An id is the record's position in its split of tfds or Hugging Face,
    which have different orders and therefore different validation images.

    With `halve_validation`, as in the AutoLabel paper, all training images are the training split, and
    the official validation images are halved at random (`default_rng(0).permutation`): 25,000 for
    validation, 25,000 for test.

    Training reads a random crop (8 to 100 % of the area, aspect ratio 3:4 to 4:3) and flips it with
    probability 0.5; evaluation scales the shorter side to 256 and takes the center.

    Labels are stored with the images, so the first use reads the whole split once (minutes) and caches
    them. The images are not available to the tests, which only check the numbers of examples.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      num_val: Number of validation images.
      halve_validation: Whether validation and test are halves of the official validation images.
      cache_dir: Folder of the cached labels.

    References:
      Russakovsky et al., 2015, arXiv:1409.0575.
    """
    official_train = split == "train" or (split == "val" and not halve_validation)
    file_split = "train" if official_train else "validation"
    records = prepared(find_imagenet(data_dir), file_split, cache_dir)
    n = len(records.labels)
    everything = Dataset(
        name="imagenet",
        split=split,
        inputs={},
        labels=records.labels,
        ids=np.arange(n, dtype=np.int32),
        label_names=records.label_names,
        notes=official("images", n, ROWS["imagenet"][file_split]),
        mean=MEAN,
        std=STD,
        read=partial(read, records.source),
    )
    if not halve_validation:
        return everything.take(split_positions("imagenet", split, n, num_val))
    if split == "train":
        return everything
    val, test = np.split(np.random.default_rng(0).permutation(n), [n // 2])
    return everything.take(val if split == "val" else test)


def find_imagenet(data_dir: pathlib.Path | None) -> pathlib.Path:
    """Find ImageNet: `dataset_info.json` of tfds, or a training file of Hugging Face."""
    return find(
        "imagenet",
        data_dir,
        (
            *_tfds.patterns("imagenet2012"),
            *parquet_patterns("ILSVRC/imagenet-1k", "data", "train"),
        ),
        "Get ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from image-net.org and prepare tfds's "
        "imagenet2012 in the data folder with file_format='array_record'; or get the parquet files of "
        "ILSVRC/imagenet-1k from huggingface.co.",
    )


class Records(NamedTuple):
    """One split of a prepared set.

    Attributes:
      source: Random access to the records by position.
      label_names: WordNet id of each class.
      labels: Classes, int32 `[n]`.
      files: Names of the image files, str `[n]`; empty for training images, whose names are not needed.
    """

    source: RecordSource
    label_names: tuple[str, ...]
    labels: np.ndarray
    files: np.ndarray


def prepared(info: pathlib.Path, tfds_split: str, cache_dir: str | os.PathLike[str]) -> Records:
    """Open one split of the folder that contains `info`, the result of `find_imagenet`."""
    if info.suffix == ".parquet":
        return _from_hub(info, tfds_split, pathlib.Path(cache_dir).expanduser())
    source, names = _tfds.open_split(info.parent, tfds_split)
    # The fingerprint of a prepared set: versions, shard lengths and checksums are in this file.
    key = hashlib.sha256(info.read_bytes() + tfds_split.encode()).hexdigest()
    index = cached(
        pathlib.Path(cache_dir), f"imagenet_index_{key[:24]}", partial(_index, source, tfds_split)
    )
    return Records(source, names, index["labels"], index["files"])


def _index(source: RecordSource, tfds_split: str) -> dict[str, np.ndarray]:
    """Read through a split for its labels and, but for the training split, the names of its files."""
    labels = np.empty(len(source), np.int32)
    files: list[str] = []
    for start in range(0, len(source), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(source)))
        records = source.__getitems__(rows)
        labels[rows.start : rows.stop] = [record["label"] for record in records]
        if tfds_split != "train":
            files += [os.fsdecode(record["file_name"]) for record in records]
    return {"labels": labels, "files": np.array(files, str)}


@dataclasses.dataclass(frozen=True)
class _HubRows:
    """Rows of a Hugging Face set, with the interface of a prepared set's records."""

    rows: "datasets.Dataset"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> dict[str, object]:
        cells = self.rows[position]
        name = _WNID.sub(".", cells["image"]["path"] or "")
        return {"image": cells["image"]["bytes"], "label": cells["label"], "file_name": name}

    def __getitems__(self, positions: Sequence[int]) -> list[dict[str, object]]:
        return [self[position] for position in positions]


def _from_hub(path: pathlib.Path, split: str, cache_dir: pathlib.Path) -> Records:
    """Open one split of the Hugging Face edition; its first use copies the files to `cache_dir`.

    Parquet files have no random access: `datasets` writes them as arrow files, which have.
    """
    try:
        import datasets
        import pyarrow.compute
    except ImportError:
        raise ValueError(f"{path}: needs datasets: pip install 'calib_jax[data]'") from None
    some = sorted(path.parent.glob(f"{split}-*.parquet"))
    if not some:
        raise ValueError(f"{path.parent} has no file {split}-*.parquet; get all files of the set")
    files = shards(some[-1])
    try:
        rows = datasets.load_dataset(
            "parquet", data_files=[str(f) for f in files], split="train", cache_dir=str(cache_dir)
        ).cast_column("image", datasets.Image(decode=False))
        labels = np.array(rows["label"], np.int32)
        paths = pyarrow.compute.struct_field(rows.data.column("image"), "path").to_pylist()
        names = rows.features["label"].names
    except (datasets.exceptions.DatasetsError, pyarrow.ArrowException, *_NOT_THE_SET) as error:
        why = str(error).partition("\n")[0]
        raise ValueError(
            f"{path.parent}: not the files of imagenet-1k ({why}); get them again"
        ) from error
    # Classes are called by their WordNet ids, as tfds has them: "n01440764_18_n01440764.JPEG".
    wnids = {label: _WNID.search(p or "") for label, p in zip(labels.tolist(), paths, strict=True)}
    label_names = [m[1] if (m := wnids.get(i)) else name for i, name in enumerate(names)]
    stored = [_WNID.sub(".", p or "") for p in paths] if split != "train" else []
    return Records(_HubRows(rows), tuple(label_names), labels, np.array(stored, str))


def read(
    source: Indexed, position: int, rng: np.random.Generator | None, *, cropped: bool = False
) -> dict[str, np.ndarray]:
    """Decode the image of a record; `cropped` if it was cropped before it was stored."""
    from PIL import Image

    record = source[position]
    try:
        with Image.open(io.BytesIO(record["image"])) as image:
            pixels = image.convert("RGB")
    except OSError as error:
        name = os.fsdecode(record.get("file_name", "without a name"))
        raise ValueError(f"imagenet: record {position}, {name}, is no image ({error})") from error
    box = None if cropped else _box(*pixels.size, rng)
    pixels = pixels.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR, box=box)
    array = np.asarray(pixels)
    if rng is not None and rng.random() < 0.5:
        array = array[:, ::-1]
    return {"image": np.ascontiguousarray(array)}


def _box(
    width: int, height: int, rng: np.random.Generator | None
) -> tuple[float, float, float, float]:
    """Return the crop box of an image: the center, or in training a random part."""
    return _center(width, height) if rng is None else _random_box(width, height, rng)


def _center(width: int, height: int) -> tuple[float, float, float, float]:
    """Return the box of the center 224 pixels after scaling the shorter side to 256."""
    side = min(width, height) * _SIDE / _RESIZED
    x, y = (width - side) / 2, (height - side) / 2
    return x, y, x + side, y + side


def _random_box(
    width: int, height: int, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Draw a box of 8 to 100 % of the area and an aspect ratio of 3:4 to 4:3."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return x, y, x + w, y + h
    return _center(width, height)  # a very long image, into which no draw fits
