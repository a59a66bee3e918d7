"""Pretrained networks by folder or by Hugging Face id: which files are used, and their revision."""

import os
import pathlib
import re

from calib_jax import _hub

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


def find_pretrained(path_or_id: str | os.PathLike[str]) -> _hub.Snapshot:
    """Return the folder of a pretrained network; one of the Hub is downloaded if it is not cached.

    Only configs, safetensors and tokenizer files are downloaded. Without a network, the cache of
    Hugging Face is used.

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
        return _hub.local(folder)
    parsed = _ID.fullmatch(os.fspath(path_or_id))
    if parsed is None:
        raise ValueError(
            f"{path_or_id}: no such folder, and not a Hugging Face id (org/name@revision)"
        )
    try:
        return _hub.download(parsed["repo"], parsed["revision"] or "", files=_FILES, kind="model")
    except ValueError as error:
        raise ValueError(f"{path_or_id}: {error}") from None
