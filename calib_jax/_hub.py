"""Downloads from the Hugging Face Hub: chosen files only, of a known commit, and no code."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Literal, NamedTuple


class Snapshot(NamedTuple):
    """Files of one commit.

    Attributes:
      folder: Folder of the files.
      revision: Commit; `''` for a folder that is not of the Hub's cache.
    """

    folder: pathlib.Path
    revision: str


def local(folder: pathlib.Path) -> Snapshot:
    """Return a folder with its commit, if it is one of the Hub's cache, `…/snapshots/COMMIT`."""
    return Snapshot(folder, folder.name if folder.parent.name == "snapshots" else "")


@functools.cache
def download(
    repo: str, revision: str = "", *, files: Sequence[str], kind: Literal["model", "dataset"]
) -> Snapshot:
    """Return files of a repository of the Hub, downloaded if they are not in its cache.

    Without a network the cache is used. The same arguments give the same commit for as long as the
    process lives.

    Args:
      repo: Name of the repository, `OWNER/NAME`.
      revision: Commit, tag or branch; `''` for the main branch.
      files: Glob patterns of the files, as a tuple.
      kind: Kind of the repository.

    Raises:
      ValueError: With one line that has the command for the download.
    """
    # Imported here: it takes long, and most runs do not need it.
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            repo, repo_type=kind, revision=revision or None, allow_patterns=list(files)
        )
    except Exception as error:  # of network, server, cache or id: all mean that it is not here
        command = f"hf download {repo}"
        if kind == "dataset":
            command += " --repo-type dataset"
        if revision:
            command += f" --revision {revision}"
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            "no such folder, not in the Hugging Face cache, and not to be downloaded "
            f"({reason}); where there is a network: {command}"
        ) from None
    return local(pathlib.Path(folder))
