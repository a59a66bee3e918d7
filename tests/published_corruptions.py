"""The published procedures of corruption in NumPy, SciPy and Pillow: an oracle for `augment.corrupt`.

Written from the description of the procedures, one image at a time in float64, with none of our code.
What is random is drawn by `draw` and given to `corrupt`, so that ours can be given the same. Frost needs
photographs that are not here; `corrupt` takes what stands for one as a draw.

The constants are those of CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C, per severity (Hendrycks and
Dietterich, arXiv:1903.12261).
"""

import io

import matplotlib.colors
import numpy as np
from PIL import Image
from scipy import ndimage

# fmt: off
CONSTANTS = {
    32: {
        "gaussian_noise": [.04, .06, .08, .09, .10],
        "shot_noise": [500, 250, 100, 75, 50],
        "impulse_noise": [.01, .02, .03, .05, .07],
        "speckle_noise": [.06, .1, .12, .16, .2],
        "gaussian_blur": [.4, .6, .7, .8, 1],
        "glass_blur": [(.05, 1, 1), (.25, 1, 1), (.4, 1, 1), (.25, 1, 2), (.4, 1, 2)],
        "defocus_blur": [(.3, .4), (.4, .5), (.5, .6), (1, .2), (1.5, .1)],
        "motion_blur": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
        "zoom_blur": [(1.06, .01), (1.11, .01), (1.16, .01), (1.21, .01), (1.26, .01)],
        "fog": [(.2, 3), (.5, 3), (.75, 2.5), (1, 2), (1.5, 1.75)],
        "frost": [(1, .2), (1, .3), (.9, .4), (.85, .4), (.75, .45)],
        "snow": [(.1, .2, 1, .6, 8, 3, .95), (.1, .2, 1, .5, 10, 4, .9),
                 (.15, .3, 1.75, .55, 10, 4, .9), (.25, .3, 2.25, .6, 12, 6, .85),
                 (.3, .3, 1.25, .65, 14, 12, .8)],
        "spatter": [(.62, .1, .7, .7, .5, 0), (.65, .1, .8, .7, .5, 0), (.65, .3, 1, .69, .5, 0),
                    (.65, .1, .7, .69, .6, 1), (.65, .1, .5, .68, .6, 1)],
        "contrast": [.75, .5, .4, .3, .15],
        "brightness": [.05, .1, .15, .2, .3],
        "saturate": [(.3, 0), (.1, 0), (1.5, 0), (2, .1), (2.5, .2)],
        "jpeg_compression": [80, 65, 58, 50, 40],
        "pixelate": [.95, .9, .85, .75, .65],
        "elastic_transform": [(0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6),
                              (3.2, .96, .96)],
    },
    64: {
        "gaussian_noise": [.04, .08, .12, .15, .18],
        "shot_noise": [250, 100, 50, 30, 15],
        "impulse_noise": [.01, .02, .05, .08, .14],
        "speckle_noise": [.15, .2, .25, .3, .35],
        "gaussian_blur": [.5, .75, 1, 1.25, 1.5],
        "glass_blur": [(.1, 1, 1), (.5, 1, 1), (.6, 1, 2), (.7, 2, 1), (.9, 2, 2)],
        "defocus_blur": [(.5, .6), (1, .1), (1.5, .1), (2.5, .01), (3, .1)],
        "motion_blur": [(10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)],
        "zoom_blur": [(1.06, .01), (1.11, .01), (1.16, .01), (1.21, .01), (1.26, .01)],
        "fog": [(.4, 3), (.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)],
        "frost": [(1, .3), (.9, .4), (.8, .45), (.75, .5), (.7, .55)],
        "snow": [(.1, .2, 1, .6, 8, 3, .8), (.1, .2, 1, .5, 10, 4, .8),
                 (.15, .3, 1.75, .55, 10, 4, .7), (.25, .3, 2.25, .6, 12, 6, .65),
                 (.3, .3, 1.25, .65, 14, 12, .6)],
        "spatter": [(.62, .1, .7, .7, .6, 0), (.65, .1, .8, .7, .6, 0), (.65, .3, 1, .69, .6, 0),
                    (.65, .1, .7, .68, .6, 1), (.65, .1, .5, .67, .6, 1)],
        "contrast": [.4, .3, .2, .1, .05],
        "brightness": [.1, .2, .3, .4, .5],
        "saturate": [(.3, 0), (.1, 0), (2, 0), (5, .1), (30, .2)],
        "jpeg_compression": [65, 58, 50, 40, 25],
        "pixelate": [.9, .8, .7, .6, .5],
        "elastic_transform": [(0, 0, 5.12), (3.2, 19.2, 3.84), (6.4, 5.12, 3.84), (6.4, 1.92, 1.92),
                              (10.24, 1.92, 1.28)],
    },
    224: {
        "gaussian_noise": [.08, .12, .18, .26, .38],
        "shot_noise": [60, 25, 12, 5, 3],
        "impulse_noise": [.03, .06, .09, .17, .27],
        "speckle_noise": [.15, .2, .35, .45, .6],
        "gaussian_blur": [1, 2, 3, 4, 6],
        "glass_blur": [(.7, 1, 2), (.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
        "defocus_blur": [(3, .1), (4, .5), (6, .5), (8, .5), (10, .5)],
        "motion_blur": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
        "zoom_blur": [(1.11, .01), (1.16, .01), (1.21, .02), (1.26, .02), (1.31, .03)],
        "fog": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
        "frost": [(1, .4), (.8, .6), (.7, .7), (.65, .7), (.6, .75)],
        "snow": [(.1, .3, 3, .5, 10, 4, .8), (.2, .3, 2, .5, 12, 4, .7),
                 (.55, .3, 4, .9, 12, 8, .7), (.55, .3, 4.5, .85, 12, 8, .65),
                 (.55, .3, 2.5, .85, 12, 12, .55)],
        "spatter": [(.65, .3, 4, .69, .6, 0), (.65, .3, 3, .68, .6, 0), (.65, .3, 2, .68, .5, 0),
                    (.65, .3, 1, .65, 1.5, 1), (.67, .4, 1, .65, 1.5, 1)],
        "contrast": [.4, .3, .2, .1, .05],
        "brightness": [.1, .2, .3, .4, .5],
        "saturate": [(.3, 0), (.1, 0), (2, 0), (5, .1), (20, .2)],
        "jpeg_compression": [25, 18, 15, 10, 7],
        "pixelate": [.6, .5, .4, .3, .25],
        "elastic_transform": [(488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88),
                              (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)],
    },
}
# fmt: on
NAMES = tuple(CONSTANTS[32])
WITHOUT_DRAWS = (
    "gaussian_blur", "defocus_blur", "zoom_blur", "contrast", "brightness", "saturate",
    "jpeg_compression", "pixelate",
)  # fmt: skip


def draw(name, rng, shape, c):
    """All that is random about an image of a shape, for a row of the constants."""
    height, width, _ = shape
    if name in ("gaussian_noise", "speckle_noise"):
        return rng.standard_normal(shape)
    if name == "shot_noise":
        return rng  # a Poisson number hangs on the image
    if name == "impulse_noise":
        return rng.random(shape) < c, rng.random(shape) < 0.5
    if name == "glass_blur":
        return rng.integers(-c[1], c[1], (c[2], 2, height, width))
    if name == "motion_blur":
        return np.deg2rad(rng.uniform(-45, 45))
    if name == "snow":
        return rng.standard_normal((height, width)), np.deg2rad(rng.uniform(-135, -45))
    if name == "spatter":
        return rng.standard_normal((height, width))
    if name == "fog":
        rounds = int(np.ceil(np.log2(max(height, width))))
        return [rng.uniform(-1, 1, (3, 2**i, 2**i)) for i in range(rounds)]
    if name == "elastic_transform":
        return rng.uniform(-1, 1, (3, 2)), rng.uniform(-1, 1, (height, width, 2))
    return None


def corrupt(name, image, draws, c):
    """One image `[h, w, 3]` of bytes, corrupted: floats from 0 to 255, not yet cut to whole levels."""
    made = globals()[f"_{name}"](image / 255.0, draws, c)
    return 255 * np.clip(made, 0, 1)


def _gaussian_noise(x, noise, c):
    return x + c * noise


def _speckle_noise(x, noise, c):
    return x + x * c * noise


def _shot_noise(x, rng, c):
    return rng.poisson(x * c) / c


def _impulse_noise(x, draws, c):
    hit, white = draws
    return np.where(hit, white, x)


def _blurred(x, sigma, **options):
    sigmas = (sigma, sigma, 0)[: x.ndim]
    return ndimage.gaussian_filter(x, sigmas, **{"mode": "nearest"} | options)


def _gaussian_blur(x, _, c):
    return _blurred(x, c)


def _glass_blur(x, shifts, c):
    sigma, reach, _ = c
    x = _blurred(x, sigma)
    height, width, _ = x.shape
    for dy, dx in shifts:
        for i in range(height - reach, reach, -1):
            for j in range(width - reach, reach, -1):
                x[i, j] = x[i + dy[i, j], j + dx[i, j]]
    return _blurred(x, sigma)


def _defocus_blur(x, _, c):
    radius, soft = c
    reach, edge = (8, 1) if radius <= 8 else (radius, 2)
    grid = np.hypot(*np.mgrid[-reach : reach + 1, -reach : reach + 1])
    kernel = (grid <= radius) / np.sum(grid <= radius)
    bell = np.exp(-0.5 * (np.arange(-edge, edge + 1) / soft) ** 2)
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, bell / bell.sum(), axis, mode="mirror")
    return np.stack([ndimage.correlate(x[..., i], kernel, mode="mirror") for i in range(3)], -1)


def _motion_blur(x, angle, c):
    radius, sigma = c
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    total = np.zeros_like(x)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        dy, dx = (int(np.ceil(step * f(angle) - 0.5)) for f in (np.sin, np.cos))
        shift = (-dy, -dx, 0)[: x.ndim]
        total += weight * ndimage.shift(x, shift, order=0, mode="nearest")
    return total


def _zoomed(x, factor):
    size = x.shape[0]
    part = int(np.ceil(size / factor))
    first = (size - part) // 2
    x = x[first : first + part, first : first + part]
    x = ndimage.zoom(x, (factor, factor, 1)[: x.ndim], order=1)
    first = (x.shape[0] - size) // 2
    return x[first : first + size, first : first + size]


def _zoom_blur(x, _, c):
    layers = [_zoomed(x, factor) for factor in np.arange(1, *c)]
    return np.mean([x, *layers], axis=0)


def _plasma(noise, decay):
    """Diamonds and squares on a torus, the coarsest first."""
    size = 2 ** len(noise)
    field = np.zeros((size, size))
    for i, (squares, rights, downs) in enumerate(noise):
        step, wobble = size >> i, (100 / decay**i) ** 2
        half = step // 2
        places = range(0, size, step)
        at = np.ix_(places, places)
        for (y, x), z in zip(np.ndindex(2**i, 2**i), squares.ravel(), strict=True):
            y, x = y * step, x * step
            ends = [field[(y + a) % size, (x + b) % size] for a in (0, step) for b in (0, step)]
            field[y + half, x + half] = np.mean(ends) + wobble * z
        middles = field[half::step, half::step]
        corners = field[at]
        right = corners + np.roll(corners, -1, 1) + middles + np.roll(middles, 1, 0)
        down = corners + np.roll(corners, -1, 0) + middles + np.roll(middles, 1, 1)
        field[0::step, half::step] = right / 4 + wobble * rights
        field[half::step, 0::step] = down / 4 + wobble * downs
    field -= field.min()
    return field / field.max()


def _fog(x, noise, c):
    strength, decay = c
    clouds = _plasma(noise, decay)[: x.shape[0], : x.shape[1], None]
    return (x + strength * clouds) * x.max() / (x.max() + strength)


def _frost(x, ice, c):
    return c[0] * x + c[1] * ice


def _luma(x):
    return x @ [0.299, 0.587, 0.114]


def _snow(x, draws, c):
    mean, std, zoom, threshold, radius, sigma, kept = c
    noise, angle = draws
    flakes = _zoomed(mean + std * noise, zoom)
    flakes[flakes < threshold] = 0
    flakes = _motion_blur(np.clip(flakes, 0, 1), angle, (radius, sigma))[..., None]
    pale = np.maximum(x, 1.5 * _luma(x)[..., None] + 0.5)
    return kept * x + (1 - kept) * pale + flakes + np.rot90(flakes, 2)


def _spatter(x, noise, c):
    mean, std, sigma, threshold, strength, mud = c
    liquid = _blurred(mean + std * noise, sigma)
    if mud:
        drops = _blurred((liquid > threshold).astype(float), strength)
        drops = np.where(drops < 0.8, 0, drops)[..., None]
        return x * (1 - drops) + drops * np.array([63, 42, 20]) / 255
    liquid = np.floor(255 * np.where(liquid < threshold, 0, np.clip(liquid, 0, 1)))
    drops = liquid * _shading(liquid)
    drops = strength * drops / max(drops.max(), 1e-6)
    return x + drops[..., None] * np.array([175, 238, 238]) / 255


def _shading(liquid):
    box = np.ones((3, 3)) / 9
    distance = np.minimum(_path_lengths(canny(liquid, 50, 150)), 20)
    steps = np.floor(ndimage.correlate(distance, box, mode="mirror") + 1e-4).astype(int)
    counts = np.bincount(steps.ravel())
    if counts.max() < steps.size:
        first = counts[steps.min()]
        steps = np.round(255 * (np.cumsum(counts) - first) / (steps.size - first))[steps]
    lit = ndimage.correlate(
        steps.astype(float), np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror"
    )
    return np.round(ndimage.correlate(np.clip(lit, 0, 255), box, mode="mirror"))


def canny(levels, low, high):
    """Edges by the detector of Canny, with the sum of both slopes as the slope."""
    dx, dy = (ndimage.sobel(levels, axis, mode="nearest") for axis in (1, 0))
    slope = np.pad(np.abs(dx) + np.abs(dy), 1)
    possible = np.zeros(levels.shape, bool)
    for i, j in np.argwhere(slope[1:-1, 1:-1] > low):
        x, y = abs(dx[i, j]), abs(dy[i, j])
        if y < np.tan(np.pi / 8) * x:
            a, b, tie = (0, -1), (0, 1), True
        elif y > np.tan(3 * np.pi / 8) * x:
            a, b, tie = (-1, 0), (1, 0), True
        else:
            side = -1 if dx[i, j] * dy[i, j] < 0 else 1
            a, b, tie = (-1, -side), (1, side), False
        here = slope[i + 1, j + 1]
        before, after = (slope[i + 1 + k[0], j + 1 + k[1]] for k in (a, b))
        possible[i, j] = here > before and (here > after or (tie and here == after))
    parts, _ = ndimage.label(possible, np.ones((3, 3)))
    strong = np.unique(parts[possible & (slope[1:-1, 1:-1] > high)])
    return possible & np.isin(parts, strong)


def _path_lengths(edges):
    """Length of the shortest path to an edge, by steps of 1, 1.4 and 2.1969."""
    moves = {(0, 1): 1, (1, 1): 1.4, (1, 2): 2.1969}
    lengths = np.pad(np.where(edges, 0, 1e4), 2, constant_values=1e4)
    while True:
        before = lengths.copy()
        for (a, b), cost in moves.items():
            for dy, dx in {
                (s * p, t * q) for p, q in ((a, b), (b, a)) for s in (1, -1) for t in (1, -1)
            }:
                near = np.roll(before, (dy, dx), (0, 1)) + cost
                lengths[2:-2, 2:-2] = np.minimum(lengths, near)[2:-2, 2:-2]
        if (lengths == before).all():
            return lengths[2:-2, 2:-2]


def _contrast(x, _, c):
    return x.mean((0, 1)) + c * (x - x.mean((0, 1)))


def _brightness(x, _, c):
    hsv = matplotlib.colors.rgb_to_hsv(x)
    hsv[..., 2] = np.clip(hsv[..., 2] + c, 0, 1)
    return matplotlib.colors.hsv_to_rgb(hsv)


def _saturate(x, _, c):
    hsv = matplotlib.colors.rgb_to_hsv(x)
    hsv[..., 1] = np.clip(hsv[..., 1] * c[0] + c[1], 0, 1)
    return matplotlib.colors.hsv_to_rgb(hsv)


def _as_pillow(x):
    return Image.fromarray(np.round(255 * x).astype(np.uint8))


def _jpeg_compression(x, _, c):
    file = io.BytesIO()
    _as_pillow(x).save(file, "JPEG", quality=c)
    return np.asarray(Image.open(file)) / 255.0


def _pixelate(x, _, c):
    size = x.shape[0]
    small = _as_pillow(x).resize((int(size * c), int(size * c)), Image.Resampling.BOX)
    return np.asarray(small.resize((size, size), Image.Resampling.BOX)) / 255.0


def _elastic_transform(x, draws, c):
    strength, sigma, shift = c
    points, field = draws  # both as (y, x)
    size = x.shape[0]
    middle, reach = size // 2, size // 3
    corners = np.array([[reach, reach], [-reach, reach], [-reach, -reach]]) + middle
    # The map that takes the corners to where they have moved, and its inverse for each pixel.
    forward = np.eye(3)
    forward[:2] = np.linalg.solve(np.c_[corners, np.ones(3)], corners + shift * points).T
    rows, columns = np.mgrid[:size, :size].astype(float)
    places = np.linalg.inv(forward) @ [rows.ravel(), columns.ravel(), np.ones(size**2)]
    x = _sampled(x, places[:2].reshape(2, size, size), "mirror")
    field = [strength * _blurred(field[..., i], sigma, mode="reflect", truncate=3) for i in (0, 1)]
    return _sampled(x, np.array([rows, columns]) + field, "reflect")


def _sampled(x, places, border):
    channels = np.moveaxis(x, -1, 0)
    found = [ndimage.map_coordinates(a, places, order=1, mode=border) for a in channels]
    return np.stack(found, -1)
