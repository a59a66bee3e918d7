"""Hugging Face sets: their folders here, in the cache or on the Hub; parquet files only, no code."""

import pathlib
import re

from calib_jax import _hub
from calib_jax.data import _sources

_ID = re.compile(r"(\w[\w.-]*(?:/\w[\w.-]*)?)(/\w[\w.-]*)?(@\S+)?")  # OWNER/NAME/SUBSET@REVISION


def find_folder(path: str, data_dir: pathlib.Path | None) -> tuple[pathlib.Path, str]:
    """Return the folder of a set, downloaded first if it is on the Hub, and the commit of that.

    Args:
      path: Folder, or `OWNER/NAME/SUBSET@REVISION` on the Hub; the last two may be left out.
      data_dir: Folder of relative paths that are not found in the working directory.
    """
    for folder in (pathlib.Path(path).expanduser(), (data_dir or pathlib.Path()) / path):
        if path and folder.is_dir():
            return folder, ""
    match = _ID.fullmatch(path)
    if not match:
        raise ValueError(
            f"huggingface: path={path!r}: expected a folder, or an id of the Hub such as "
            "'nyu-mll/glue/mnli' (config.data.options.path)"
        )
    repo, subset, revision = (text or "" for text in match.groups())
    files = (f"{subset[1:]}/*.parquet" if subset else "*.parquet",)
    try:
        snapshot, commit = _hub.download(repo, revision[1:], files=files, kind="dataset")
    except ValueError as error:
        raise ValueError(f"huggingface: path={path!r}: {error} --local-dir FOLDER") from None
    folder = snapshot / subset[1:]
    if not folder.is_dir():
        raise ValueError(f"huggingface: path={path!r}: {repo} has no parquet files in {subset[1:]}")
    return folder, commit


def split_files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Return the files of each split of a set; raise if the folder has several sets."""
    files = _sources.split_files("huggingface", folder, (".parquet", ".arrow"))
    for paths in files.values():
        parents = sorted({path.parent.relative_to(folder).as_posix() for path in paths})
        if len(parents) > 1:
            raise ValueError(
                f"huggingface: {folder} has several sets: add one of {', '.join(parents)} to path"
            )
    return files
