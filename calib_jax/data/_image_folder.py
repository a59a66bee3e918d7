"""Your own images: a folder with a subfolder for each class."""

import pathlib

from calib_jax.data import _images
from calib_jax.data._dataset import Dataset
from calib_jax.data._examples import Examples, Shares, build_dataset
from calib_jax.data._rows import Row
from calib_jax.data._sources import ALIASES, SPLITS, by_split, resolve, training_root


def image_folder(
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
    size: int = 0,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read images from a folder that has a subfolder for each class, named after it.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      path: Folder of the class folders, or of folders `train`, `val` and `test` of class folders. The
        others as for `table`.
      train: Training folder, instead of `path`.
      val: Validation folder.
      test: Test folder.
      val_share: Fraction of the training images for validation, if there is no validation folder.
      test_share: Fraction of the training images for test, if there is no test folder.
      split_seed: Seed of the draw.
      size: Side to which images are scaled; 0 if all have the same size.
      max_malformed: Largest fraction of malformed images.
    """
    named = {"train": train, "val": val, "test": test}
    root = training_root("image_folder", data_dir, path, named)
    folders = {f.name: f for f in sorted(root.iterdir()) if f.is_dir()} if root.is_dir() else {}
    if path and any(name.lower() in ALIASES["train"] for name in folders):
        given = by_split("image_folder", str(root), folders, dict.fromkeys(SPLITS, ""))
    else:
        given = {"train": root}
    given |= {key: resolve("image_folder", key, n, data_dir) for key, n in named.items() if n}
    examples = {key: _read_folder(folder) for key, folder in given.items()}
    shares = Shares(val_share, test_share, split_seed)
    return build_dataset(
        "image_folder", split, examples, shares, size=size, max_malformed=max_malformed
    )


def _read_folder(folder: pathlib.Path) -> Examples:
    """Read the paths of the images in the class folders of a folder."""
    rows: list[Row] = []
    labels: list[str] = []
    others = 0
    classes = sorted(f for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []
    for class_folder in classes:
        for path in sorted(p for p in class_folder.rglob("*") if p.is_file()):
            if path.suffix.lower() in _images.SUFFIXES:
                rows.append(Row(path, 1, len(rows), ""))
                labels.append(class_folder.name)
            else:
                others += 1
    if not rows:
        raise ValueError(
            f"image_folder: {folder} has no images: expected a subfolder for each class with files that "
            f"end with one of {', '.join(sorted(_images.SUFFIXES))}"
        )
    notes = (f"{others} files are no images by their names; left out",) if others else ()
    return Examples(rows, {"image": [row.path for row in rows]}, labels, notes=notes)
