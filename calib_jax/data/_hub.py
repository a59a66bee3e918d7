"""Hugging Face sets: their folders here, in the cache or on the Hub; parquet files only, no code."""

import pathlib
import re

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
    hub_id, subset, revision = (part or "" for part in match.groups())
    from huggingface_hub import snapshot_download

    try:
        snapshot = snapshot_download(
            hub_id,
            repo_type="dataset",
            revision=revision[1:] or None,
            allow_patterns=f"{subset[1:]}/*.parquet" if subset else "*.parquet",
        )
    except Exception as error:  # of network, server, cache or id: all mean that it is not here
        why = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"huggingface: path={path!r}: no such folder here, and nothing from the Hub ({why}); "
            f"where there is a network: hf download {hub_id} --repo-type dataset --local-dir FOLDER"
        ) from error
    commit = pathlib.Path(snapshot).name
    folder = pathlib.Path(snapshot) / subset[1:]
    if not folder.is_dir():
        raise ValueError(
            f"huggingface: path={path!r}: {hub_id} has no parquet files in {subset[1:]}"
        )
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
