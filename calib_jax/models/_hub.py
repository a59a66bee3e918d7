"""Pretrained networks by folder or by Hugging Face id: which files are used, and their revision."""

import functools
import os
import pathlib
import re
from typing import NamedTuple

# All that a network and its tokenizer need. Nothing else is downloaded: no pickle, no code.
_FILES = (
    "config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_ID = re.compile(r"(?P<repo>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")


class Pretrained(NamedTuple):
    """Where a pretrained network is.

    Attributes:
      folder: Folder in the Hugging Face layout.
      revision: Commit of the Hub's repository; empty for other folders.
    """

    folder: pathlib.Path
    revision: str


def find_pretrained(path_or_id: str | os.PathLike[str]) -> Pretrained:
    """Return the folder of a pretrained network; one of the Hub is downloaded if it is not cached.

    Only configs, safetensors and tokenizer files are downloaded. Without a network, the cache of
    Hugging Face is used. The same id gives the same revision for as long as the process lives.

    Args:
      path_or_id: Folder in the Hugging Face layout, or an id of the Hub, `org/name` or
        `org/name@revision`: a commit, tag or branch.

    Raises:
      ValueError: If there is no such folder, and nothing on the Hub or no way to it; the message has
        the command for the download.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     find_pretrained(folder).revision
    ''
    """
    folder = pathlib.Path(path_or_id).expanduser()
    if folder.is_dir():
        return Pretrained(folder, _commit(folder))
    parsed = _ID.fullmatch(os.fspath(path_or_id))
    if parsed is None:
        raise ValueError(
            f"{path_or_id}: no such folder, and not a Hugging Face id (org/name@revision)"
        )
    return _download(parsed["repo"], parsed["revision"])


@functools.cache
def _download(repo: str, revision: str | None) -> Pretrained:
    # Imported here: it takes long, and most runs do not need it.
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(repo, revision=revision, allow_patterns=list(_FILES))
    except Exception as error:  # of network, server, cache or id: all mean that it is not here
        given = f"{repo}@{revision}" if revision else repo
        option = f" --revision {revision}" if revision else ""
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"{given}: no such folder, not in the Hugging Face cache, and not to be downloaded "
            f"({reason}); where there is a network: hf download {repo}{option}"
        ) from None
    return Pretrained(pathlib.Path(folder), _commit(pathlib.Path(folder)))


def _commit(folder: pathlib.Path) -> str:
    """Return the commit of a folder of the cache, `…/snapshots/COMMIT`; of others nothing."""
    return folder.name if folder.parent.name == "snapshots" else ""
