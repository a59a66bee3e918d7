"""Images from files or bytes, decoded to uint8 pixels."""

import io
import pathlib
import struct

import numpy as np

Source = bytes | pathlib.Path | np.ndarray  # an encoded image, its file, or pixels
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
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
