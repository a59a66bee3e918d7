"""Your own texts and images: csv, jsonl and parquet files, Hugging Face and tfds sets."""

import pathlib
from collections.abc import Mapping

from calib_jax.data import _hub, _tfds
from calib_jax.data._columns import Columns, read_examples
from calib_jax.data._dataset import Dataset
from calib_jax.data._examples import Shares, build_dataset
from calib_jax.data._records import SUFFIXES, Records, read_records
from calib_jax.data._sources import by_split, given_files


def table(
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
    """Read texts or images, and their labels, from the columns of files.

    Splits without a file are drawn from the training file: see `build_dataset`. Of a set on the Hugging
    Face Hub only parquet files are downloaded, to Hugging Face's cache; nothing is executed.

    Args:
      kind: `'csv'` (or tsv), `'jsonl'`, `'parquet'`, `'tfds'` or `'huggingface'`.
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Folder of relative paths that are not found in the working directory.
      path: File with all examples, or folder with `train`, `val` and `test` files. `'tfds'`: folder of a
        set prepared with `file_format='array_record'`, or its name in the data folder. `'huggingface'`:
        folder with parquet files or of `save_to_disk`, or id on the Hub, `OWNER/NAME`, perhaps with a
        subset and a revision, `OWNER/NAME/SUBSET@REVISION`.
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
      max_malformed: Largest fraction of malformed rows.
    """
    named = {"train": train, "val": val, "test": test}
    notes: tuple[str, ...] = ()
    if kind == "tfds":
        given = _open_tfds(data_dir, path, named)
    elif kind == "huggingface":
        given, notes = _open_hub(data_dir, path, named)
    else:
        files = given_files(kind, SUFFIXES[kind], data_dir, path, named)
        given = {key: [read_records(p) for p in paths] for key, paths in files.items()}
    columns = Columns(text, pair, choices, image, label)
    examples = {key: read_examples(kind, f, columns, max_malformed) for key, f in given.items()}
    examples["train"] = examples["train"]._replace(notes=examples["train"].notes + notes)
    shares = Shares(val_share, test_share, split_seed)
    return build_dataset(kind, split, examples, shares, size=size, max_malformed=max_malformed)


def _open_tfds(
    data_dir: pathlib.Path | None, path: str, named: Mapping[str, str]
) -> dict[str, list[Records]]:
    """Open the splits of a prepared tfds set."""
    folder = _tfds.find_prepared(path, data_dir)
    available = {name: name for name in _tfds.split_names(folder)}
    chosen = by_split("tfds", str(folder), available, named)
    return {key: [_tfds.records(folder, name)] for key, name in chosen.items()}


def _open_hub(
    data_dir: pathlib.Path | None, path: str, named: Mapping[str, str]
) -> tuple[dict[str, list[Records]], tuple[str, ...]]:
    """Open the splits of a Hugging Face set; of one on the Hub, a note has the commit."""
    folder, commit = _hub.find_folder(path, data_dir)
    chosen = by_split("huggingface", str(folder), _hub.split_files(folder), named)
    given = {key: [read_records(p) for p in paths] for key, paths in chosen.items()}
    return given, (f"{path} is at revision {commit}",) if commit else ()
