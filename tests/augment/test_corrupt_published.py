"""Corruptions against the published procedures: the same values for the same draws, the same strength.

Oracles: `published_corruptions`, which is NumPy's and SciPy's, and a table that the published generator
made (`make_corruption_table.py`).
"""

import functools
import io
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import published_corruptions as published
import pytest
import scipy.stats
from photos import photos, psnr
from PIL import Image
from quick import quick_jit

from calib_jax import augment, data
from calib_jax.augment import _digital, _drops, _noise, _strengths, _weather

KEY = jax.random.key(7)
SIZES, SEVERITIES = (32, 64, 224), (1, 2, 3, 4, 5)
TABLE = json.loads((pathlib.Path(__file__).parent / "corruption_psnr.json").read_text())
# As many draws of each of the eight photographs make the mean PSNR known to 0.15 dB or better.
DRAWS = {
    "fog": 16, "frost": 40, "snow": 8, "motion_blur": 8, "elastic_transform": 16, "spatter": 12,
    "impulse_noise": 8,
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_constants_are_the_published_ones(size: int) -> None:
    assert set(published.NAMES) == set(augment.CORRUPTIONS) == set(_strengths.STRENGTHS)
    for name, expected in published.CONSTANTS[size].items():
        ours = _strengths.STRENGTHS[name][size]
        if name == "elastic_transform":
            ours = np.array(ours) * size  # from shares to pixels
        if name == "spatter":
            ours = [(*row[:5], ("water", "mud").index(row[5])) for row in ours]
        np.testing.assert_allclose(ours, expected, rtol=1e-12, err_msg=name)


def test_strengths_are_those_of_the_nearest_size() -> None:
    for longer, edition in (
        (8, 32), (28, 32), (32, 32), (48, 32), (49, 64), (64, 64), (96, 64), (144, 64), (145, 224),
        (224, 224), (299, 224),
    ):  # fmt: skip
        for shape in ((longer, longer), (4, longer), (longer, 4)):
            assert _strengths.nearest_edition(*shape) == edition, shape
    assert augment.corruption_strengths(32, 32) == "strengths of CIFAR-10-C, for 32 pixels"
    assert augment.corruption_strengths(64, 60) == "strengths of Tiny-ImageNet-C, for 64 pixels"
    assert augment.corruption_strengths(200, 256) == "strengths of ImageNet-C, for 224 pixels"
    grey = np.full((1, 60, 64, 3), 0.5, np.float32)
    noise = np.asarray(augment.corrupt(KEY, grey, "gaussian_noise", 2)) - 0.5
    assert noise.std() == pytest.approx(0.08, rel=0.05), "0.06 at 32 pixels, 0.12 at 224"


def _clouds(key, size):
    rounds = math.ceil(math.log2(size))
    noise = np.asarray(jax.random.uniform(key, (4**rounds,), minval=-1.0, maxval=1.0), float)
    return [noise[4**i : 4 ** (i + 1)].reshape(3, 2**i, 2**i) for i in range(rounds)]


def _draws(name, key, image, c):
    """What the corruption draws for an image, as the oracle takes it."""
    height, width, _ = image.shape
    first, second = jax.random.split(key)
    if name in ("gaussian_noise", "speckle_noise"):
        return np.asarray(jax.random.normal(key, image.shape))
    if name == "impulse_noise":
        draw = np.asarray(jax.random.uniform(key, image.shape))
        return draw < c, draw >= c / 2
    if name == "glass_blur":
        keys = [jax.random.fold_in(key, i) for i in range(c[2])]
        return [np.asarray(jax.random.randint(k, (2, height, width), -c[1], c[1])) for k in keys]
    if name == "motion_blur":
        return float(jax.random.uniform(key, minval=-math.pi / 4, maxval=math.pi / 4))
    if name == "snow":
        angle = jax.random.uniform(second, minval=-3 * math.pi / 4, maxval=-math.pi / 4)
        return np.asarray(jax.random.normal(first, (height, width, 1)))[..., 0], float(angle)
    if name == "spatter":
        return np.asarray(jax.random.normal(key, (height, width, 1)))[..., 0]
    if name == "fog":
        return _clouds(key, max(height, width))
    if name == "frost":
        return _ice(key, image)
    if name == "elastic_transform":
        uniform = functools.partial(jax.random.uniform, minval=-1.0, maxval=1.0)
        return np.asarray(uniform(first, (3, 2))), np.asarray(uniform(second, (height, width, 2)))
    return None


def _ice(key, image):
    """Our own frost, once more: levels of a kind of ice, brighter at the ridges of a cloud."""
    kinds = [
        ((77, 148, 164), 10, 14.5), ((198, 202, 212), 7, 18.5), ((198, 202, 212), 7, 18.5),
        ((144, 159, 172), 8, 25), ((101, 113, 125), 13, 33),
    ]  # fmt: skip
    kind_key, level_key, coarse_key, fine_key = jax.random.split(key, 4)
    color, between, within = kinds[int(jax.random.randint(kind_key, (), 0, 5))]
    size = max(image.shape)
    coarse, fine = (
        published._plasma(_clouds(k, size), decay)[: image.shape[0], : image.shape[1]]
        for k, decay in ((coarse_key, 1.6), (fine_key, 1.25))
    )
    crystals = coarse + (1 - abs(2 * fine - 1)) ** 2
    level = between * float(jax.random.normal(level_key)) + within * scipy.stats.zscore(
        crystals, None
    )
    return np.clip(color + level[..., None], 0, 255) / 255


# How far ours may be from the oracle: in levels, and the share of the values that may be farther
# because float32 puts them on the other side of a threshold.
CLOSE = {"pixelate": (1.01, 0), "spatter": (0.05, 0.01), "snow": (0.05, 0.02)}


def _values(name: str, size: int, severities=SEVERITIES, number: int = 2) -> None:
    """Asserts that ours are the published values, of some photographs."""
    images = photos(size)[[1, 6][:number]]
    given = (images / 255).astype(np.float32)

    def made_at_all(key, images):
        return [augment.corrupt(key, images, name, severity) for severity in severities]

    found = quick_jit(made_at_all)(KEY, given)
    keys = jax.random.split(KEY, len(images))
    for severity, made in zip(severities, found, strict=True):
        c = published.CONSTANTS[size][name][severity - 1]
        for key, image, ours in zip(keys, images, np.asarray(made), strict=True):
            theirs = published.corrupt(name, image, _draws(name, key, image, c), c)
            atol, share = CLOSE.get(name, (0.05, 0))
            away = np.abs(255 * ours - theirs)
            assert (away > atol).mean() <= share, (severity, away.max(), (away > atol).mean())


VALUES = [n for n in augment.CORRUPTIONS if n not in ("shot_noise", "jpeg_compression")]


# Severities are but rows of constants, which have a test of their own; those that take another course
# are here: water and mud, no bending at all, one round of shuffling and two.
SOME = {
    "spatter": (3, 4), "frost": (3,), "fog": (4,), "snow": (4,), "elastic_transform": (1, 4),
    "glass_blur": (2, 5), "defocus_blur": (3, 5),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_same_draws_same_values(name: str) -> None:
    _values(name, 32, SOME.get(name, (4,)))


# Of the larger sizes what has another course there: chains of pixels, a large disc, a zoomed layer.
@pytest.mark.parametrize(
    ("name", "severities"), [("glass_blur", (5,)), ("elastic_transform", (3,)), ("spatter", (3,))]
)
def test_same_draws_same_values_at_64(name: str, severities) -> None:
    _values(name, 64, severities, 1)


@pytest.mark.parametrize("name", ["defocus_blur", "zoom_blur"])
def test_same_draws_same_values_at_224(name: str) -> None:
    _values(name, 224, (5,), 1)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", VALUES)
def test_same_draws_same_values_at_every_size(name: str, size: int) -> None:
    _values(name, size)


@pytest.mark.parametrize(("size", "severity"), [(32, 1), (32, 5), (64, 5), (224, 5)])
def test_jpeg_is_pillows_but_for_a_few_coefficients(size: int, severity: int) -> None:
    images = photos(size)
    made = quick_jit(lambda x: augment.corrupt(KEY, x, "jpeg_compression", severity))(images)
    quality = published.CONSTANTS[size]["jpeg_compression"][severity - 1]
    theirs = [published.corrupt("jpeg_compression", image, None, quality) for image in images]
    away = np.asarray(made, float) - theirs
    # Now and then a coefficient falls on the other side of a half, and with it a block.
    assert np.median(np.abs(away)) == 0
    assert np.abs(away).mean() < 0.5
    assert abs(away.mean()) < 0.15
    assert (np.abs(away) > 4).mean() < 0.02


@pytest.mark.parametrize("quality", [7, 10, 25, 49, 50, 80, 100])
def test_jpeg_tables_are_pillows(quality: int) -> None:
    file = io.BytesIO()
    Image.new("RGB", (16, 16)).save(file, "JPEG", quality=quality)
    tables = Image.open(file).quantization
    for number, table in enumerate((_digital._LUMA, _digital._CHROMA)):
        ours = _digital._table(table, quality)
        np.testing.assert_array_equal(ours, np.reshape(tables[number], (8, 8)))


@pytest.mark.parametrize("rate", [0.3, 3.0, 11.9, 12.1, 60.0])
def test_photons_are_poissons(rate: float) -> None:
    number = 200_000
    found = np.asarray(_noise._poisson(KEY, jnp.full(number, rate, jnp.float32)))
    np.testing.assert_array_equal(found, np.round(found))
    assert found.min() >= 0
    counts = np.arange(int(rate + 8 * rate**0.5) + 1)
    shares = (found[:, None] <= counts).mean(0)
    # A share is known to 0.0011 from so many; above 12 the counts are those of a skewed normal.
    allowed = 0.005 if rate < 12 else 0.007
    assert np.abs(shares - scipy.stats.poisson.cdf(counts, rate)).max() < allowed
    assert found.var() == pytest.approx(rate, rel=0.02)


@functools.cache
def _theirs(size: int, name: str, severity: int) -> float:
    """Mean PSNR of the published generator on the photographs.

    By the table where it has that. The package it was made with bends images in another way than the
    published set's generator does, so elastic_transform is always the oracle's.
    """
    if name in TABLE[str(size)] and name != "elastic_transform":
        return TABLE[str(size)][name][severity - 1]
    rng = np.random.default_rng(severity)
    c = published.CONSTANTS[size][name][severity - 1]
    number = 1 if name in published.WITHOUT_DRAWS else DRAWS.get(name, 2)
    return _oracle_psnr(name, np.repeat(photos(size), number, 0), c, rng)


def _oracle_psnr(name, images, c, rng) -> float:
    made = [published.corrupt(name, x, published.draw(name, rng, x.shape, c), c) for x in images]
    return float(np.mean(psnr(np.floor(np.array(made) + 1e-6), images)))


def _strength(name: str, size: int, severities=SEVERITIES, draws: int | None = None) -> None:
    """Asserts that mean PSNRs are within 0.5 dB of the published ones and in their order."""
    number = 1 if name in published.WITHOUT_DRAWS else draws or DRAWS.get(name, 2)
    images = photos(size)
    run = quick_jit(lambda key, x: [augment.corrupt(key, x, name, s) for s in severities])
    batches = [run(key, images) for key in jax.random.split(KEY, number)]
    ours = np.array([[psnr(np.asarray(made), images) for made in batch] for batch in batches])
    assert np.isfinite(ours).all(), "every photograph is changed, at every severity"
    ours = ours.mean((0, 2))
    theirs = np.array([_theirs(size, name, severity) for severity in severities])
    assert np.abs(ours - theirs).max() < 0.5, (ours, theirs)
    far = np.abs(theirs[:, None] - theirs) > 0.5  # no more than noise lies between the others
    order = np.sign(ours[:, None] - ours), np.sign(theirs[:, None] - theirs)
    np.testing.assert_array_equal(order[0][far], order[1][far])


@pytest.mark.parametrize("name", augment.CORRUPTIONS)
def test_as_strong_as_cifar10_c(name: str) -> None:
    costly = ("spatter", "frost", "fog", "elastic_transform")
    _strength(name, 32, (2,) if name in costly else (1, 4))


@pytest.mark.parametrize("name", ["shot_noise", "motion_blur", "jpeg_compression"])
def test_as_strong_as_tiny_imagenet_c(name: str) -> None:
    _strength(name, 64, (5,))


@pytest.mark.parametrize(
    "name",
    ["pixelate"]
    + [pytest.param(n, marks=pytest.mark.slow) for n in ("gaussian_noise", "snow", "saturate")],
)
def test_as_strong_as_imagenet_c(name: str) -> None:
    _strength(name, 224, (4,), 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", augment.CORRUPTIONS)
def test_as_strong_as_published_at_every_severity(name: str, size: int) -> None:
    # Drops at severity 1 are few: their PSNR has a standard deviation of 3.3 dB from draw to draw, so
    # that 200 draws of each photograph make the mean known to 0.08 dB, as in the table.
    _strength(name, size, draws=200 if name == "spatter" else None)


def test_the_published_order_is_not_always_that_of_severity() -> None:
    """Else the tests above would say nothing of it."""
    assert set(TABLE["224"]) == set(augment.CORRUPTIONS)
    for size, name in (("32", "frost"), ("224", "frost"), ("224", "saturate")):
        assert (np.diff(TABLE[size][name]) > 0).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in augment.CORRUPTIONS if n != "frost"])
def test_as_strong_as_published_on_cifar10(name: str, data_dir: pathlib.Path) -> None:
    images = np.asarray(data.load("cifar10", "test", data_dir).inputs["image"][:80])
    # Saturation leaves a gray photograph as it is, in the published procedure, too.
    images = images[np.ptp(images, axis=-1).any((1, 2))][:64]
    rng = np.random.default_rng(0)
    draws = 4 if name in DRAWS else 1
    images = np.repeat(images, draws, 0)
    for severity in SEVERITIES:
        made = quick_jit(lambda x, s=severity: augment.corrupt(KEY, x, name, s))(images)
        ours = psnr(np.asarray(made), images)
        assert np.isfinite(ours).all()
        c = published.CONSTANTS[32][name][severity - 1]
        assert ours.mean() == pytest.approx(_oracle_psnr(name, images, c, rng), abs=0.5)


def test_edges_are_those_of_canny() -> None:
    """Levels with weak and strong slopes, and chains of weak ones from a strong one on."""
    rng, edges = np.random.default_rng(0), quick_jit(_drops._edges)
    for amount in (4, 10, 18):
        noise = published.ndimage.gaussian_filter(rng.normal(size=(40, 30)), 2)
        levels = np.clip(np.round(128 + amount * 50 * noise), 0, 255)
        expected = published.canny(levels, 50, 150)
        found = np.asarray(edges(jnp.asarray(levels, jnp.float32)))
        np.testing.assert_array_equal(found, expected)
        assert 0 < expected.sum() < (np.abs(np.diff(levels)) > 0).sum()
    nothing = quick_jit(_drops.shading)(jnp.zeros((32, 32, 1)))
    np.testing.assert_array_equal(nothing, np.full((32, 32, 1), 20.0))  # all as far as can be


def test_distance_to_edges_is_that_of_the_shortest_path() -> None:
    edges = np.random.default_rng(0).random((37, 50)) < 0.01
    found = np.asarray(quick_jit(_drops._distance)(jnp.asarray(edges)))
    expected = published._path_lengths(edges)
    near = expected <= 20
    assert near.mean() > 0.9
    np.testing.assert_allclose(found[near], expected[near], rtol=1e-5)
    assert (found[~near] >= 20).all()


def test_ice_before_an_image_without_colors_is_the_mean_of_its_color() -> None:
    both = quick_jit(lambda *images: [_weather.ice(KEY, image) for image in images])
    one, three = both(jnp.zeros((16, 16, 1)), jnp.zeros((16, 16, 3)))
    np.testing.assert_allclose(one[..., 0], np.mean(three, -1), atol=1e-5)
