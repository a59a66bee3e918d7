"""Your own images: a folder with a subfolder for each class."""

import pathlib
from collections.abc import Mapping

from calib_jax.data import _images
from calib_jax.data._examples import Examples
from calib_jax.data._rows import Row
from calib_jax.data._sources import ALIASES, SPLITS, by_split, resolve, training_root


def read_image_folders(
    data_dir: pathlib.Path | None, path: str, named: Mapping[str, str]
) -> dict[str, Examples]:
    """Read the paths of images in folders that have a subfolder for each class, named after it.

    Args:
      data_dir: Data folder.
      path: Folder of the class folders, or of folders `train`, `val` and `test` of class folders.
      named: Folders of the splits instead.

    Returns:
      The examples of each split that has a folder.
    """
    root = training_root("image_folder", data_dir, path, named)
    folders = {f.name: f for f in sorted(root.iterdir()) if f.is_dir()} if root.is_dir() else {}
    if path and any(name.lower() in ALIASES["train"] for name in folders):
        given = by_split("image_folder", str(root), folders, dict.fromkeys(SPLITS, ""))
    else:
        given = {"train": root}
    given |= {key: resolve("image_folder", key, n, data_dir) for key, n in named.items() if n}
    return {key: _read_folder(folder) for key, folder in given.items()}


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
