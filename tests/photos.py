"""Real photographs that ship with packages we depend on, for tests of image operations."""

import pathlib

import matplotlib
import numpy as np
import sklearn.datasets
from PIL import Image

# Upper left corners (y, x) of the parts of 224 x 224 pixels.
_PARTS = {
    "china.jpg": ((0, 0), (100, 208), (203, 416)),
    "flower.jpg": ((0, 60), (110, 210), (203, 416)),
    "grace_hopper.jpg": ((0, 120), (300, 200)),
}


def photos(size: int) -> np.ndarray:
    """Eight parts of three photographs, uint8 `[8, size, size, 3]`.

    Two of the photographs ship with scikit-learn, one with matplotlib. A part is 224 pixels wide and
    is reduced by means over boxes.
    """
    made = []
    for name, corners in _PARTS.items():
        with Image.open(_folder(name) / name) as file:
            whole = file.convert("RGB")
        for y, x in corners:
            part = whole.crop((x, y, x + 224, y + 224))
            made.append(np.asarray(part.resize((size, size), Image.Resampling.BOX)))
    return np.stack(made)


def psnr(made: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """Peak signal-to-noise ratio in dB of each 8-bit image `[..., h, w, c]`."""
    error = np.mean((made.astype(float) - clean) ** 2, axis=(-3, -2, -1))
    return 10 * np.log10(255**2 / error)


def _folder(name: str) -> pathlib.Path:
    if name == "grace_hopper.jpg":
        return pathlib.Path(matplotlib.get_data_path()) / "sample_data"
    return pathlib.Path(sklearn.datasets.__file__).parent / "images"
