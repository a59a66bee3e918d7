"""Sets prepared by TensorFlow Datasets, read without TensorFlow."""

import io
import pathlib
from typing import Any

import numpy as np

INFO = "dataset_info.json"  # marks a folder as a prepared tfds set


def patterns(name: str) -> tuple[str, ...]:
    """Return the glob patterns of a prepared set with that tfds name."""
    return f"{name}/*/{INFO}", f"tensorflow_datasets/{name}/*/{INFO}"


def open_split(folder: pathlib.Path, split: str) -> tuple[Any, tuple[str, ...]]:
    """Return random access to one split of a prepared folder, and its class names.

    Records are dicts as tfds defines them, but with `image` as stored (PNG or JPEG bytes).
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(folder))
    if builder.info.file_format != tfds.core.FileFormat.ARRAY_RECORD:
        raise ValueError(
            f"{folder} is prepared as {builder.info.file_format.value}, which only TensorFlow reads: "
            "prepare it again with file_format='array_record'"
        )
    if split not in builder.info.splits:
        raise ValueError(
            f"{folder} has no split {split!r}, only {', '.join(builder.info.splits)}: prepare it again"
        )
    skip = {"image": tfds.decode.SkipDecoding()}
    names = tuple(builder.info.features["label"].names)
    return builder.as_data_source(split=split, decoders=skip), names


def decode(content: bytes) -> np.ndarray:
    """Decode an image to uint8 `[h, w, 3]`."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))
