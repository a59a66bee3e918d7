"""Atomic writes: a reader, or a run that was killed, never sees half a file."""

import json
import pathlib

import numpy as np


def write_atomic(path: pathlib.Path, content: str | bytes) -> None:
    """Write a file so that readers see either all of the old content or all of the new.

    Args:
      path: File to write, in a folder that exists.
      content: New content; text is encoded as UTF-8.
    """
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    temporary.replace(path)


def write_json(path: pathlib.Path, content: object) -> None:
    """Write `content` as indented JSON, atomically."""
    write_atomic(path, json.dumps(content, indent=2) + "\n")


def write_npz(path: pathlib.Path, **arrays: np.ndarray) -> None:
    """Write arrays as a compressed npz archive, atomically; create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    temporary.replace(path)
