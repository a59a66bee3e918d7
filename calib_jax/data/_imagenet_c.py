"""ImageNet-C: corrupted test images of ImageNet, from the publishers' folders."""

import dataclasses
import os
import pathlib
import re
from functools import partial

import numpy as np

from calib_jax.data import _tfds
from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find, official
from calib_jax.data._imagenet import Records, find_imagenet, prepared, read
from calib_jax.data._tiny_imagenet import MEAN, STD

_TFDS = (
    "imagenet2012_corrupted"  # tfds's builder, which generates the images instead of reading them
)


def imagenet_c(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    corruption: str = "",
    severity: int = 5,
    cache_dir: str | os.PathLike[str] = "~/.cache/calib_jax",
) -> Dataset:
    """Read ImageNet-C: ImageNet's 50,000 test images under one of 19 corruptions.

    The published folders are `<corruption>/<severity>/<wnid>/<file>.JPEG`. Images are matched by file
    name to ImageNet's test images, which must also be available and provide ids and labels.

    tfds's `imagenet2012_corrupted` does not contain the published images: it generates images from
    ImageNet's by the published procedure. If only those are available, they are read under the name of
    that builder, with a note.

    Args:
      split: `'test'`, the only one.
      data_dir: Data folder.
      corruption: Name of the corruption.
      severity: Severity, 1 to 5.
      cache_dir: Folder of the cached labels.

    References:
      Hendrycks and Dietterich, 2019, arXiv:1903.12261.
    """
    path = find(
        "imagenet_c",
        data_dir,
        tuple(corrupted_patterns(corruption, severity)),
        "Get ImageNet-C (blur.tar, digital.tar, extra.tar, noise.tar, weather.tar) from "
        "zenodo.org/records/2235448 and unpack it to <data folder>/ImageNet-C/.",
    )
    if split != "test":
        raise ValueError(f"imagenet_c: split={split!r}: expected 'test', the only one there is")
    if not re.fullmatch("[a-z_]+", corruption):
        raise ValueError(f"imagenet_c: corruption={corruption!r}: expected a name such as 'fog'")
    clean = prepared(find_imagenet(data_dir), "validation", cache_dir)
    if path.name == _tfds.INFO:
        made = prepared(path, "validation", cache_dir)
        notes = (f"{corruption} {severity} made by tfds's {_TFDS}: not the published ImageNet-C",)
        return _matched(_TFDS, clean, made.source, made.files, notes)
    paths = np.array([f"{p.parent.name}/{p.name}" for p in sorted(path.glob("*/*.JPEG"))], str)
    files = np.array([name.partition("/")[2] for name in paths.tolist()], str)
    dataset = _matched("imagenet_c", clean, _Files(path, paths), files, ())
    _check_classes(path, paths, dataset, clean)
    return dataset


def corrupted_patterns(corruption: str, severity: int) -> dict[str, str]:
    """Return glob patterns of corrupted images, the published ones first, with the name of the set."""
    published = {
        f"{folder}{group}/{corruption}/{severity}": "imagenet_c"
        for folder in ("ImageNet-C", "imagenet-c")
        for group in ("", "/*")  # blur, digital, extra, noise or weather
    }
    return published | dict.fromkeys(_tfds.patterns(f"{_TFDS}/{corruption}_{severity}"), _TFDS)


@dataclasses.dataclass(frozen=True)
class _Files:
    """Images in a folder, with the interface of a prepared set's records."""

    folder: pathlib.Path
    paths: np.ndarray

    def __getitem__(self, position: int) -> dict[str, object]:
        path = self.folder / str(self.paths[position])
        return {"image": path.read_bytes(), "file_name": str(path)}


def _matched(
    name: str, clean: Records, source: _tfds.Indexed, files: np.ndarray, notes: tuple[str, ...]
) -> Dataset:
    """Give the images of `source` the ids and labels of the test images of the same file names."""
    position = {file: i for i, file in enumerate(clean.files.tolist())}
    ids = np.array([position.get(file, -1) for file in files.tolist()], np.int32)
    known = np.flatnonzero(ids >= 0)
    if not len(known):
        raise ValueError(
            f"{name}: none of its {len(files)} images has the file name of one of ImageNet's "
            f"{len(clean.files)} test images; get the files again"
        )
    if len(known) < len(files):
        notes += (f"{len(files) - len(known)} of {len(files)} images are not ImageNet's; left out",)
    everything = Dataset(
        name=name,
        split="test",
        inputs={},
        labels=clean.labels[ids],
        ids=ids,
        label_names=clean.label_names,
        notes=notes + official("images", len(known), ROWS["imagenet"]["validation"]),
        mean=MEAN,
        std=STD,
        read=partial(read, source, cropped=True),
    )
    return everything.take(known[np.argsort(ids[known], kind="stable")])


def _check_classes(
    folder: pathlib.Path, paths: np.ndarray, dataset: Dataset, clean: Records
) -> None:
    """Raise if the name of a folder is not the class of the images in it."""
    wnid = {path.partition("/")[2]: path.partition("/")[0] for path in paths.tolist()}
    files = clean.files[dataset.ids].tolist()
    for file, label in zip(files, dataset.labels, strict=True):
        if wnid[file] != dataset.label_names[label]:
            raise ValueError(
                f"{folder}/{wnid[file]}/{file}: expected in {dataset.label_names[label]}, "
                "the class of ImageNet's test image of that name; get the files again"
            )
