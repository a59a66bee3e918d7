"""Text to token ids with the tokenizer of a pretrained model."""

import dataclasses
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from calib_jax.data._cache import cached
from calib_jax.data._dataset import Dataset, update_hash

# All files that can change the ids. In old folders config.json has the type of the tokenizer.
_TOKENIZER_FILES = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "spiece.model",
    "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
_CHUNK = 8192  # texts per call: the tokenizer's objects take far more memory than the ids
_MULTIPLE = 8  # lengths that are efficient on accelerators


def tokenize(
    dataset: Dataset,
    tokenizer_folder: str | os.PathLike[str],
    *,
    max_length: int,
    cache_dir: str | os.PathLike[str],
) -> Dataset:
    """Tokenize texts, pairs of texts, or texts with several choices.

    Inputs are padded on the right to the longest text, rounded up to a multiple of 8 but at most
    `max_length`. Longer ones are truncated (in a pair, the longer text first) and counted in `notes`.
    Each choice forms a pair with its text.

    Args:
      dataset: Set with inputs `text` and optionally `pair`, objects `[n]`, or `choices`, objects
        `[n, choices]`.
      tokenizer_folder: Folder in the Hugging Face layout (`tokenizer.json` or vocabulary files).
      max_length: Largest number of tokens, special tokens included.
      cache_dir: Folder of the cached ids, under a hash of the texts, the tokenizer's files and
        `max_length`.

    Returns:
      The set with inputs `input_ids`, `mask` and, if the tokenizer has them, `token_type_ids`, int32
      `[n, length]`, or `[n, choices, length]`.
    """
    if "text" not in dataset.inputs:
        raise ValueError(f"{dataset.name} has no text to tokenize, only {list(dataset.inputs)}")
    folder = pathlib.Path(tokenizer_folder).expanduser()
    files = tokenizer_files(folder)
    shape = dataset.inputs.get("choices", dataset.inputs["text"]).shape
    texts = _columns(dataset.inputs)
    key = _hash(texts, files, max_length)

    def make() -> dict[str, np.ndarray]:
        tokenizer = Tokenizer(folder, max_length)
        arrays = tokenizer.encode(texts)
        tokenizer.check_known(arrays)
        return arrays

    arrays = cached(pathlib.Path(cache_dir), f"tokens_{key[:32]}", make)
    cut = int(arrays.pop("num_truncated"))
    notes = dataset.notes
    if cut:
        notes += (f"{cut} of {len(texts[0])} texts are longer than {max_length} tokens: cut",)
    inputs = {name: rows.reshape(*shape, rows.shape[1]) for name, rows in arrays.items()}
    return dataclasses.replace(dataset, inputs=inputs, notes=notes)


def tokenizer_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a folder that a tokenizer is made of; raise if there are none."""
    files = [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not any(path.name != "config.json" for path in files):
        raise ValueError(
            f"tokenizer folder {folder}: expected tokenizer.json or vocabulary files "
            "(the Hugging Face layout)"
        )
    return files


def copy_tokenizer(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a tokenizer to a folder; a `config.json` that is there is a network's, and stays."""
    target.mkdir(parents=True, exist_ok=True)
    for path in tokenizer_files(source):
        if path.name != "config.json" or not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)


class Tokenizer:
    """A tokenizer that has been loaded, for texts that are not kept.

    Args:
      folder: Folder in the Hugging Face layout.
      max_length: Largest number of tokens, special tokens included.
    """

    def __init__(self, folder: str | os.PathLike[str], max_length: int) -> None:
        self._folder, self._max_length = pathlib.Path(folder), max_length
        self._tokenizer = _tokenizer(self._folder, max_length)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of `tokenize` for its inputs, padded to the largest length."""
        shape = inputs.get("choices", inputs["text"]).shape
        arrays = self.encode(_columns(inputs), self._max_length)
        del arrays["num_truncated"]
        return {name: rows.reshape(*shape, rows.shape[1]) for name, rows in arrays.items()}

    def encode(self, texts: list[list[str]], length: int = 0) -> dict[str, np.ndarray]:
        """Return arrays `[n, length]` of columns of texts, and how many were truncated.

        Without a length, they are as long as the longest text, rounded up to a multiple of 8.
        """
        tokenizer, max_length = self._tokenizer, self._max_length
        rows: list[Any] = []
        num_truncated = 0
        for start in range(0, len(texts[0]), _CHUNK):
            chunk = [column[start : start + _CHUNK] for column in texts]
            encoded = tokenizer(*chunk, truncation=True, max_length=max_length)
            num_truncated += sum(bool(encoding.overflowing) for encoding in encoded.encodings)
            types = encoded.get("token_type_ids")
            rows += [(ids, types and types[i]) for i, ids in enumerate(encoded["input_ids"])]
        if not length:
            longest = max((len(ids) for ids, _ in rows), default=1)
            length = min(-(-longest // _MULTIPLE) * _MULTIPLE, max_length)
        arrays = {
            "input_ids": np.full((len(rows), length), tokenizer.pad_token_id, np.int32),
            "mask": np.zeros((len(rows), length), np.int32),
        }
        if rows and rows[0][1] is not None:
            arrays["token_type_ids"] = np.zeros((len(rows), length), np.int32)
        for i, (ids, types) in enumerate(rows):
            arrays["input_ids"][i, : len(ids)] = ids
            arrays["mask"][i, : len(ids)] = 1
            if types is not None:
                arrays["token_type_ids"][i, : len(ids)] = types
        return arrays | {"num_truncated": np.array(num_truncated, np.int32)}

    def check_known(self, arrays: dict[str, np.ndarray]) -> None:
        """Raise if most tokens are unknown: the only sign of a missing vocabulary."""
        unknown_id = self._tokenizer.unk_token_id
        unknown = np.sum((arrays["input_ids"] == unknown_id) & (arrays["mask"] == 1))
        if unknown_id is not None and unknown > 0.5 * np.sum(arrays["mask"]):
            raise ValueError(
                f"tokenizer folder {self._folder}: knows fewer than half of the words; "
                "is its vocabulary complete, and of this language?"
            )


def _columns(inputs: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Return the first and, for pairs and choices, the second texts; choices are flattened."""
    if "choices" in inputs:
        text = np.repeat(inputs["text"], inputs["choices"].shape[1])
        return [text.tolist(), inputs["choices"].ravel().tolist()]
    return [inputs[name].tolist() for name in ("text", "pair") if name in inputs]


def _hash(texts: list[list[str]], files: list[pathlib.Path], max_length: int) -> str:
    versions = [importlib.metadata.version(name) for name in ("transformers", "tokenizers")]
    digest = hashlib.sha256(f"1 {max_length} {versions}".encode())
    for path in files:
        digest.update(f"\n{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    for column in texts:
        update_hash(digest, np.array(column, object))
    return digest.hexdigest()


def _tokenizer(folder: pathlib.Path, max_length: int) -> Any:
    logging.getLogger("transformers").addFilter(_not_about_pytorch)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    if not tokenizer.is_fast:
        raise ValueError(f"tokenizer folder {folder}: has no fast tokenizer; add tokenizer.json")
    if tokenizer.pad_token_id is None:
        raise ValueError(f"tokenizer folder {folder}: names no padding token")
    if not 0 < max_length <= tokenizer.model_max_length:
        raise ValueError(
            f"max_length={max_length}: expected 1 to {tokenizer.model_max_length}, "
            f"the longest input of the model in {folder}"
        )
    return tokenizer


def _not_about_pytorch(record: logging.LogRecord) -> bool:
    """Return false for the warning that PyTorch is missing: only tokenizers of transformers are used."""
    return "PyTorch was not found" not in record.getMessage()
