"""Your own files: texts, images and features with their labels, in all formats."""

import dataclasses
import pathlib
from collections.abc import Mapping

from calib_jax.data import _hub, _tfds
from calib_jax.data._columns import Columns, read_examples
from calib_jax.data._dataset import Dataset
from calib_jax.data._examples import Examples, Shares, build_dataset
from calib_jax.data._image_folder import read_image_folders
from calib_jax.data._npz import read_arrays
from calib_jax.data._records import SUFFIXES, Records, read_records
from calib_jax.data._sources import by_split, given_files

_NO_OPTIONS = {"npz": (*Columns._fields, "size"), "image_folder": Columns._fields}
Named = Mapping[str, str]  # split -> its file, folder or name; '' if none is given


def own_files(
    kind: str,
    split: str,
    data_dir: pathlib.Path | None,
    *,
    path: str = "",
    train: str = "",
    val: str = "",
    test: str = "",
    val_share: float = 0.1,
    test_share: float = 0.2,
    split_seed: int = 0,
    text: str = "",
    pair: str = "",
    choices: str = "",
    image: str = "",
    label: str = "",
    size: int = 0,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read texts, images or features, and their labels.

    Splits without a file are drawn from the training file: see `build_dataset`. Of a set on the Hugging
    Face Hub only parquet files are downloaded, to Hugging Face's cache; nothing is executed.

    Args:
      kind: `'csv'` (or tsv), `'jsonl'`, `'parquet'`, `'npz'`, `'image_folder'`, `'tfds'` or
        `'huggingface'`.
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Folder of relative paths that are not found in the working directory.
      path: File with all examples, or folder with `train`, `val` and `test` files. `'image_folder'`:
        folder of a subfolder for each class, or of folders `train`, `val` and `test` of such. `'tfds'`:
        folder of a set prepared with `file_format='array_record'`, or its name in the data folder.
        `'huggingface'`: folder with parquet files or of `save_to_disk`, or id on the Hub, `OWNER/NAME`,
        perhaps with a subset and a revision, `OWNER/NAME/SUBSET@REVISION`.
      train: Training file, instead of `path`; name of the training split of `'tfds'` and `'huggingface'`,
        if it is not the usual one.
      val: Validation file or split.
      test: Test file or split.
      val_share: Fraction of the training file for validation, if there is no validation file.
      test_share: Fraction of the training file for test, if there is no test file.
      split_seed: Seed of the draw.
      text: Column of texts.
      pair: Column of second texts.
      choices: Columns of a multiple choice, separated by commas, or one column of lists.
      image: Column of images: paths relative to the file, or encoded images.
      label: Column of classes: names or numbers.
      size: Side to which images are scaled; 0 if all have the same size.
      max_malformed: Largest fraction of malformed examples.
    """
    named = {"train": train, "val": val, "test": test}
    columns = Columns(text, pair, choices, image, label)
    for option, value in (columns._asdict() | {"size": size}).items():
        if value and option in _NO_OPTIONS.get(kind, ()):
            raise ValueError(f"{kind}: {option}={value!r}: only other formats have this option")
    revision = ""
    if kind == "npz":
        examples = read_arrays(data_dir, path, named, max_malformed)
    elif kind == "image_folder":
        examples = read_image_folders(data_dir, path, named)
    elif kind == "tfds":
        examples = _read(kind, _open_tfds(data_dir, path, named), columns, max_malformed)
    elif kind == "huggingface":
        folder, revision = _hub.find_folder(path, data_dir)
        files = by_split(kind, str(folder), _hub.split_files(folder), named)
        examples = _read(kind, _open_files(files), columns, max_malformed)
    else:
        files = given_files(kind, SUFFIXES[kind], data_dir, path, named)
        examples = _read(kind, _open_files(files), columns, max_malformed)
    shares = Shares(val_share, test_share, split_seed)
    dataset = build_dataset(kind, split, examples, shares, size=size, max_malformed=max_malformed)
    if not revision:
        return dataset
    notes = (*dataset.notes, f"{path} is at revision {revision}")
    return dataclasses.replace(dataset, notes=notes, revision=revision)


def _read(
    kind: str, given: Mapping[str, list[Records]], columns: Columns, max_malformed: float
) -> dict[str, Examples]:
    return {key: read_examples(kind, files, columns, max_malformed) for key, files in given.items()}


def _open_files(files: Mapping[str, list[pathlib.Path]]) -> dict[str, list[Records]]:
    return {key: [read_records(path) for path in paths] for key, paths in files.items()}


def _open_tfds(data_dir: pathlib.Path | None, path: str, named: Named) -> dict[str, list[Records]]:
    """Open the splits of a prepared tfds set."""
    folder = _tfds.find_prepared(path, data_dir)
    available = {name: name for name in _tfds.split_names(folder)}
    chosen = by_split("tfds", str(folder), available, named)
    return {key: [_tfds.records(folder, name)] for key, name in chosen.items()}
