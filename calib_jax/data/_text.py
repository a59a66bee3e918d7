"""Text to token ids with the tokenizer of a pretrained model."""

import dataclasses
import hashlib
import importlib.metadata
import logging
import os
import pathlib
from functools import partial
from typing import Any

import numpy as np

from calib_jax.data._cache import cached
from calib_jax.data._dataset import Dataset

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
    files = [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not any(path.name != "config.json" for path in files):
        raise ValueError(
            f"tokenizer folder {folder}: expected tokenizer.json or vocabulary files "
            "(the Hugging Face layout)"
        )
    shape = dataset.inputs.get("choices", dataset.inputs["text"]).shape
    texts = _columns(dataset.inputs)
    key = _hash(texts, files, max_length)
    make = partial(_encode, texts, folder, max_length)
    arrays = cached(pathlib.Path(cache_dir), f"tokens_{key[:32]}", make)
    cut = int(arrays.pop("num_truncated"))
    notes = dataset.notes
    if cut:
        notes += (f"{cut} of {len(texts[0])} texts are longer than {max_length} tokens: cut",)
    inputs = {name: rows.reshape(*shape, rows.shape[1]) for name, rows in arrays.items()}
    return dataclasses.replace(dataset, inputs=inputs, notes=notes)


def _columns(inputs: dict[str, np.ndarray]) -> list[list[str]]:
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
        digest.update(f"\n{len(column)}".encode())
        for text in column:
            content = text.encode("utf-8", "surrogatepass")
            digest.update(f"\n{len(content)} ".encode() + content)
    return digest.hexdigest()


def _encode(texts: list[list[str]], folder: pathlib.Path, max_length: int) -> dict[str, np.ndarray]:
    tokenizer = _tokenizer(folder, max_length)
    rows: list[Any] = []
    num_truncated = 0
    for start in range(0, len(texts[0]), _CHUNK):
        chunk = [column[start : start + _CHUNK] for column in texts]
        encoded = tokenizer(*chunk, truncation=True, max_length=max_length)
        num_truncated += sum(bool(encoding.overflowing) for encoding in encoded.encodings)
        types = encoded.get("token_type_ids")
        rows += [(ids, types and types[i]) for i, ids in enumerate(encoded["input_ids"])]
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
    _check_known(arrays, tokenizer, folder)
    return arrays | {"num_truncated": np.array(num_truncated, np.int32)}


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


def _check_known(arrays: dict[str, np.ndarray], tokenizer: Any, folder: pathlib.Path) -> None:
    """Raise if most tokens are unknown: the only sign of a missing vocabulary."""
    unknown = np.sum((arrays["input_ids"] == tokenizer.unk_token_id) & (arrays["mask"] == 1))
    if tokenizer.unk_token_id is not None and unknown > 0.5 * np.sum(arrays["mask"]):
        raise ValueError(
            f"tokenizer folder {folder}: knows fewer than half of the words; "
            "is its vocabulary complete, and of this language?"
        )
