"""Make `augment/corruption_psnr.json`: the strength of the published corruption generators, in dB.

Run by hand, in an environment of its own, since the generator needs packages older than ours:

    python -m venv /tmp/generator
    /tmp/generator/bin/pip install numpy==1.23.5 scipy==1.10.1 scikit-image==0.20.0 numba==0.57.1 \\
        opencv-python-headless==4.7.0.72 pillow==9.5.0 scikit-learn==1.7.2 matplotlib==3.8.4 \\
        "setuptools<80"
    /tmp/generator/bin/pip install --no-deps imagecorruptions==1.1.2
    /tmp/generator/bin/python tests/make_corruption_table.py

At 224 pixels all 19 corruptions are those of the package. At 32 and 64 pixels the table holds those two
for which the tests have no version of their own of everything: frost, whose photographs ship with the
package, and spatter, whose edge detector is OpenCV's.
"""

import inspect
import json
import pathlib
import sys

import cv2
import imagecorruptions
import numpy as np
from imagecorruptions import corruptions
from photos import photos, psnr
from skimage import filters

# Drops at severity 1 are few: their PSNR has a standard deviation of 3.3 dB from draw to draw.
_DRAWS = {
    "fog": 24, "frost": 32, "snow": 8, "motion_blur": 8, "elastic_transform": 12, "spatter": 200,
    "gaussian_noise": 2, "shot_noise": 2, "impulse_noise": 2, "speckle_noise": 2,
}  # fmt: skip
_FROST = {
    32: (0.2, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    64: (0.3, ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55))),
}
_SPATTER = {
    32: (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0), (0.65, 0.1, 0.8, 0.7, 0.5, 0), (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1), (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    64: (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0), (0.65, 0.1, 0.8, 0.7, 0.6, 0), (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1), (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
}  # fmt: skip


def main() -> None:
    np.random.seed(0)
    corruptions.gaussian = _gaussian
    table: dict[str, dict[str, list[float]]] = {"224": {}, "64": {}, "32": {}}
    for name in imagecorruptions.get_corruption_names("all"):
        table["224"][name] = [_mean(name, 224, severity) for severity in range(1, 6)]
        print(name, table["224"][name], file=sys.stderr)
    for size in (32, 64):
        table[str(size)]["frost"] = [_mean_frost(size, severity) for severity in range(1, 6)]
        table[str(size)]["spatter"] = [
            _mean("spatter", size, severity, _spatter_at(size)) for severity in range(1, 6)
        ]
    path = pathlib.Path(__file__).parent / "augment" / "corruption_psnr.json"
    path.write_text(json.dumps(table, indent=1) + "\n")


def _mean(name, size, severity, corrupt=None) -> float:
    """Mean PSNR over photographs and draws."""
    corrupt = corrupt or getattr(corruptions, name)
    found = []
    for image in photos(size):
        for _ in range(_DRAWS.get(name, 1)):
            made = np.uint8(np.asarray(corrupt(_pil(image), severity)))
            found.append(psnr(made, image))
    return round(float(np.mean(found)), 3)


def _gaussian(image, sigma, multichannel=False, **options):
    """The filter under the name that its option had when the package was written."""
    return filters.gaussian(image, sigma, channel_axis=-1 if multichannel else None, **options)


def _pil(image):
    return corruptions.Image.fromarray(image)


def _spatter_at(size):
    """The package's spatter with the constants for another size."""
    source = inspect.getsource(corruptions.spatter)
    start, end = source.index("c = ["), source.index("[severity - 1]")
    source = f"{source[:start]}c = {list(_SPATTER[size])}{source[end:]}"
    made = {}
    exec(source, vars(corruptions), made)
    return made["spatter"]


def _mean_frost(size, severity) -> float:
    scale, settings = _FROST[size]
    kept, share = settings[severity - 1]
    folder = pathlib.Path(corruptions.__file__).parent / "frost"
    names = ["frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"]
    ices = [cv2.resize(cv2.imread(str(folder / n)), (0, 0), fx=scale, fy=scale) for n in names]
    found = []
    for image in photos(size):
        for _ in range(200):
            ice = ices[np.random.randint(5)]
            y, x = (np.random.randint(0, n - size) for n in ice.shape[:2])
            ice = ice[y : y + size, x : x + size, ::-1]
            found.append(psnr(np.uint8(np.clip(kept * image + share * ice, 0, 255)), image))
    return round(float(np.mean(found)), 3)


if __name__ == "__main__":
    main()
