"""Where your own files are, and which split each of them is."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from calib_jax._hints import expected_one_of

T = TypeVar("T")
SPLITS = ("train", "val", "test")
ALIASES = {
    "train": ("train", "training"),
    "val": ("val", "validation", "valid", "dev"),
    "test": ("test", "testing"),
}
_SHARD = re.compile(r"-\d+-of-\d+$")


def resolve(kind: str, key: str, path: str, data_dir: pathlib.Path | None) -> pathlib.Path:
    """Return a path from the working directory or, if there is nothing, from the data folder."""
    for candidate in (pathlib.Path(path).expanduser(), (data_dir or pathlib.Path()) / path):
        if candidate.exists():
            return candidate
    where = f" or in {data_dir}" if data_dir else ""
    raise ValueError(f"{kind}: {key}={path!r}: there is no such file or folder here{where}")


def training_root(
    kind: str, data_dir: pathlib.Path | None, path: str, named: Mapping[str, str]
) -> pathlib.Path:
    """Return the path that has the training examples."""
    if bool(path) == bool(named["train"]):
        raise ValueError(
            f"{kind}: path={path!r}, train={named['train']!r}: expected one of them, a file or folder "
            "(config.data.options.path)"
        )
    return resolve(kind, "path" if path else "train", path or named["train"], data_dir)


def given_files(
    kind: str,
    suffixes: Sequence[str],
    data_dir: pathlib.Path | None,
    path: str,
    named: Mapping[str, str],
) -> dict[str, list[pathlib.Path]]:
    """Return the files of each split that has some; `'train'` always has."""
    roots = {"train": training_root(kind, data_dir, path, named)}
    roots |= {key: resolve(kind, key, n, data_dir) for key, n in named.items() if n}
    given: dict[str, list[pathlib.Path]] = {}
    for key, root in roots.items():
        files = split_files(kind, root, suffixes) if root.is_dir() else {"": [root]}
        is_split = any(name in aliases for aliases in ALIASES.values() for name in files)
        if path and key == "train" and is_split:
            given |= by_split(kind, str(root), files, dict.fromkeys(SPLITS, ""))
        else:
            given[key] = [file for paths in files.values() for file in paths]
    return given


def split_files(
    kind: str, folder: pathlib.Path, suffixes: Sequence[str]
) -> dict[str, list[pathlib.Path]]:
    """Return the files of a folder, subfolders included, by split.

    The split `train` has files like `train.csv`, `data/train-00000-of-00002.parquet`,
    `train/0000.parquet` or `train/data-00000-of-00001.arrow`.
    """
    files: dict[str, list[pathlib.Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and not path.name.startswith((".", "cache-")):
            stem = _SHARD.sub("", path.stem)
            name = path.parent.name if stem == "data" or stem.isdigit() else stem
            files.setdefault(name, []).append(path)
    if not files:
        raise ValueError(f"{kind}: {folder} has no file that ends with {' or '.join(suffixes)}")
    return files


def by_split(
    kind: str, where: str, available: Mapping[str, T], named: Mapping[str, str]
) -> dict[str, T]:
    """Return what belongs to each split: by the names given, else by the usual ones."""
    chosen: dict[str, T] = {}
    for split, name in named.items():
        if name and name not in available:
            raise ValueError(
                f"{kind}: {split}={name!r}: {expected_one_of(name, available)}, in {where}"
            )
        free = [n for n in available if n.lower() in ALIASES[split] and n not in named.values()]
        if len(free) > 1 and not name:
            raise ValueError(
                f"{kind}: {where} has {' and '.join(free)}: set {split} to one of them"
            )
        if name or free:
            chosen[split] = available[name or free[0]]
    if "train" not in chosen and len(available) == 1 and not any(named.values()):
        return {"train": next(iter(available.values()))}
    if "train" not in chosen:
        raise ValueError(
            f"{kind}: {where} has no training split, only {', '.join(available)}: set train"
        )
    return chosen
