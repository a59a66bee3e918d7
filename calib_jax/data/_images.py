"""Images from files or bytes, decoded to uint8 pixels."""

import dataclasses
import functools
import io
import pathlib
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed
from calib_jax.data._rows import Row

Source = bytes | pathlib.Path | np.ndarray  # an encoded image, its file, or pixels
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
_RESIDENT_BYTES = 4e9  # images beyond this are decoded when they are needed
_MODES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"))
# Exceptions of Pillow for files that are no images, truncated, damaged or suspiciously large.
_NOT_AN_IMAGE = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error)


def encoded(cell: object) -> object:
    """Return the encoded image, else the path, of a table's cell; Hugging Face has both in a struct."""
    return (cell.get("bytes") or cell.get("path")) if isinstance(cell, dict) else cell


def decode(source: Source, size: int = 0) -> np.ndarray:
    """Decode an image to uint8 `[height, width, 3]`, turned upright.

    Args:
      source: Encoded image, path of its file, or pixels, uint8 `[h, w]`, `[h, w, 1]` or `[h, w, 3]`.
      size: Side of the result: the center square is scaled to it. 0 keeps height and width.

    Raises:
      ValueError: With the reason, but not the name of the file.
    """
    from PIL import Image, ImageOps

    try:
        if isinstance(source, np.ndarray):
            pixels = source[..., 0] if source.ndim == 3 and source.shape[-1] == 1 else source
            opened = Image.fromarray(pixels)
        else:
            opened = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
        with opened as image:
            if image.mode not in _MODES:
                raise ValueError(f"pixels of type {image.mode}")
            upright = ImageOps.exif_transpose(image).convert("RGB")
    except FileNotFoundError:
        raise ValueError("missing") from None
    except (*_NOT_AN_IMAGE, Image.DecompressionBombError) as error:
        known = str(error).startswith("pixels of type")
        raise ValueError(str(error) if known else "not an image") from error
    if size and upright.size != (size, size):
        width, height = upright.size
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
        upright = upright.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(upright)


def add_images(
    dataset: Dataset,
    sources: Sequence[Source],
    rows: Sequence[Row],
    size: int,
    malformed: Malformed,
    fingerprint: str,
) -> Dataset:
    """Return a set with decoded images; with `read` instead if they are too large for memory.

    Args:
      dataset: Set without images.
      sources: Image of each example.
      rows: File and line of each example, for messages.
      size: Side of the images, as in `decode`.
      malformed: Counter of images that cannot be decoded, which are left out.
      fingerprint: Hash of the images, for those that are not in memory.
    """
    if 3 * size**2 * len(sources) > _RESIDENT_BYTES:
        read = functools.partial(_read_image, sources, rows, size)
        return dataclasses.replace(dataset, inputs={}, read=read, fingerprint=fingerprint)
    with ThreadPoolExecutor() as pool:  # Pillow releases the interpreter lock
        decoded = list(pool.map(functools.partial(_try_decode, size=size), sources))
    good: list[int] = []
    images: list[np.ndarray] = []
    for i, (row, image) in enumerate(zip(rows, decoded, strict=True)):
        if isinstance(image, str):
            malformed.add(row.path, row.line, image)
        else:
            good.append(i)
            images.append(image)
    notes = dataset.notes + malformed.notes(len(rows))
    if not good:
        raise ValueError(f"{dataset.name}: none of the {len(rows)} images can be used; {notes[-1]}")
    for i, image in zip(good, images, strict=True):
        if image.shape != images[0].shape:
            raise ValueError(
                f"{dataset.name}: {rows[good[0]].path} has {_pixels(images[0])} pixels, "
                f"{rows[i].path} has {_pixels(image)}: set size (config.data.options.size), the side "
                "of the square to which all are scaled"
            )
    dataset = dataclasses.replace(dataset, notes=notes).take(good)
    return dataclasses.replace(dataset, inputs=dataset.inputs | {"image": np.stack(images)})


def _try_decode(source: Source, size: int) -> np.ndarray | str:
    """Return the image, or the reason why it is malformed."""
    try:
        return decode(source, size)
    except ValueError as error:
        return str(error)


def _read_image(
    sources: Sequence[Source],
    rows: Sequence[Row],
    size: int,
    position: int,
    rng: np.random.Generator | None,
) -> dict[str, np.ndarray]:
    image = _try_decode(sources[position], size)
    if isinstance(image, str):
        raise ValueError(f"{rows[position].path}:{rows[position].line}: {image}")
    return {"image": image}


def _pixels(image: np.ndarray) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"
