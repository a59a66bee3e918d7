"""Corruptions: the same for the same key, within the images' range, the worse the more severe."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from quick import quick_jit

from calib_jax import augment

KEY = jax.random.key(0)
GREY = np.full((8, 32, 32, 3), 128, np.uint8)


@pytest.mark.parametrize(
    ("severity", "std"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.10)]
)
def test_gaussian_noise_has_the_published_level(severity: int, std: float) -> None:
    found = np.asarray(augment.corrupt(KEY, GREY, "gaussian_noise", severity))
    assert found.dtype == np.uint8
    noise = (found - 128.0) / 255
    # 24,576 values, the nearest bound five sigmas away: std is known to 0.5 %, the mean to 0.0006.
    assert noise.std() == pytest.approx(std, rel=0.025)
    assert abs(noise.mean()) < 0.0033
    within = (np.abs(noise) < std).mean()
    assert within == pytest.approx(0.6827, abs=0.02), "normal, not just of that spread"


def test_every_image_value_and_channel_has_noise_of_its_own() -> None:
    noise = np.asarray(augment.corrupt(KEY, GREY / 255, "gaussian_noise", 5)) - 128 / 255
    for a, b in (
        (noise[0], noise[1]),
        (noise[..., 0], noise[..., 1]),
        (noise[:, 1:], noise[:, :-1]),
        (noise[:, :, 1:], noise[:, :, :-1]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.1


def test_values_are_clipped_where_the_range_ends() -> None:
    images = np.concatenate([np.zeros_like(GREY[:1]), np.full_like(GREY[:1], 255)])
    for given in (images, (images / 255).astype(np.float32)):
        black, white = np.asarray(augment.corrupt(KEY, given, "gaussian_noise", 5))
        top = 255 if given.dtype == np.uint8 else 1
        # Half of the noise is cut off on either side; nothing wraps round.
        assert (black == 0).mean() == pytest.approx(0.5, abs=0.05)
        assert (white == top).mean() == pytest.approx(0.5, abs=0.05)
        assert black.max() < 0.6 * top
        assert white.min() > 0.4 * top


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
def test_floats_come_back_as_they_were(dtype) -> None:
    found = augment.corrupt(KEY, jnp.asarray(GREY[:2] / 255, dtype), "gaussian_noise", 3)
    assert found.dtype == dtype
    assert found.shape == (2, 32, 32, 3)
    whole = augment.corrupt(KEY, GREY[:2], "gaussian_noise", 3)
    # The same noise: bytes have lost the fraction of a level; bfloat16 has steps of a level.
    step = 0.01 if dtype == np.float32 else 1.1
    lost = 255 * np.asarray(found, np.float32) - np.asarray(whole)
    assert -step <= lost.min() <= lost.max() <= 1 + step
    if dtype == np.float32:
        assert lost.mean() == pytest.approx(0.5, abs=0.02)


def test_same_key_same_noise_also_under_jit() -> None:
    def noisy(key, images):
        return augment.corrupt(key, images, "gaussian_noise", 5)

    found = noisy(KEY, GREY)
    np.testing.assert_array_equal(found, noisy(KEY, GREY))
    np.testing.assert_array_equal(found, jax.jit(noisy)(KEY, GREY))
    assert not np.array_equal(found, noisy(jax.random.key(1), GREY))


def test_wrong_arguments_are_named() -> None:
    cases = [
        (
            (GREY, "gausian_noise", 5),
            r"name='gausian_noise': expected one of .*did you mean 'gaussian_noise'",
        ),
        ((GREY, "gaussian_noise", 0), "severity=0: expected 1, 2, 3, 4 or 5"),
        ((GREY, "gaussian_noise", 2.0), "severity=2.0: expected 1, 2, 3, 4 or 5"),
        ((GREY[0], "gaussian_noise", 5), r"expected \[batch, h, w, c\], got shape \(32, 32, 3\)"),
        ((GREY.astype(np.int32), "gaussian_noise", 5), r"uint8 or floats in \[0, 1\], got int32"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            augment.corrupt(KEY, *arguments)


def _photos(n: int, size: int = 32) -> np.ndarray:
    """Coloured waves with edges in them, uint8 `[n, size, size, 3]`."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] / size
    images = []
    for _ in range(n):
        waves = [np.sin(9 * (a * x + b * y) + c) for a, b, c in rng.normal(size=(3, 3))]
        image = 110 + 60 * np.stack(waves, -1)
        a, b = rng.integers(0, size // 2, 2)
        image[a : a + size // 3, b : b + size // 3] += rng.normal(0, 60, 3)
        images.append(image)
    return np.clip(images, 5, 250).astype(np.uint8)


PHOTOS = _photos(24)
SEVERITIES = (1, 2, 3, 4, 5)


def _all(name: str, images: np.ndarray) -> list[np.ndarray]:
    """At all severities, by one compiled program."""

    def five(key, images):
        return [augment.corrupt(key, images, name, severity) for severity in SEVERITIES]

    return [np.asarray(x) for x in quick_jit(five)(KEY, images)]


def _psnr(made: np.ndarray, images: np.ndarray) -> float:
    error = ((made.astype(float) - images) ** 2).mean((1, 2, 3))
    return float(np.mean(10 * np.log10(255**2 / error)))


def _likeness(made: np.ndarray, images: np.ndarray) -> float:
    pairs = zip(made.reshape(len(made), -1), images.reshape(len(made), -1), strict=True)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]))


def _detail(made: np.ndarray, images: np.ndarray) -> float:
    return float(np.abs(np.diff(made.astype(float), axis=2)).mean())


def _colour(made: np.ndarray, images: np.ndarray) -> float:
    lost = np.ptp(made.astype(float), axis=-1) - np.ptp(images.astype(float), axis=-1)
    return -float(np.abs(lost).mean())


# What falls as the severity rises, and among which severities: PSNR among all of them but where the
# published constants trade one damage for another.
ALL = [SEVERITIES]
MEASURES = {name: (_psnr, ALL) for name in augment.CORRUPTIONS} | {
    "frost": (_likeness, ALL),  # the image gets darker again from 3 on, and the ice thicker
    "saturate": (_colour, [(1, 2), (3, 4, 5)]),  # less colour, then more
    "spatter": (_psnr, [(1, 2, 3), (4, 5)]),  # water, then mud
    "glass_blur": (
        _detail,
        [(1, 2, 3), (4, 5)],
    ),  # shuffled once, then twice; blurred more and more
}


@pytest.mark.parametrize("name", [n for n in augment.CORRUPTIONS if n != "elastic_transform"])
def test_more_severe_is_worse(name: str) -> None:
    made = _all(name, PHOTOS)
    for images in made:
        assert images.dtype == np.uint8
        assert images.shape == PHOTOS.shape
        assert not np.array_equal(images, PHOTOS)
        assert images.std() > 3
    measure, groups = MEASURES[name]
    for group in groups:
        found = [measure(made[s - 1], PHOTOS) for s in group]
        assert (np.diff(found) <= 0.02 * abs(found[0])).all(), found
        assert found[-1] < found[0]


def test_glass_shuffled_twice_is_worse_than_once() -> None:
    made = _all("glass_blur", PHOTOS)
    once, twice = ([_psnr(m, PHOTOS) for m in part] for part in (made[:3], made[3:]))
    assert max(twice) < min(once)


def test_elastic_bends_more_and_stretches_less() -> None:
    ramp = np.broadcast_to(np.arange(32.0)[:, None] / 64 + 0.25, (24, 32, 32))
    ramps = np.stack([ramp, ramp.transpose(0, 2, 1), ramp], -1).astype(np.float32)
    made = [m[:, 10:-10, 10:-10] for m in _all("elastic_transform", ramps)]
    bent = [np.abs(np.diff(m, n=2, axis=1)).mean() for m in made]
    # An affine map leaves a ramp a ramp.
    assert bent[0] < 1e-6
    assert (np.diff(bent) > 0).all(), bent


@pytest.mark.parametrize("shape", [(8, 8, 1), pytest.param((20, 40, 3), marks=pytest.mark.slow)])
def test_images_of_any_size_by_keys_and_within_range(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((3, *shape)).astype(np.float32)

    def everything(key, images):
        return {name: augment.corrupt(key, images, name, 4) for name in augment.CORRUPTIONS}

    run = quick_jit(everything)
    found, again, other = (run(key, images) for key in (KEY, KEY, jax.random.key(1)))
    random = 0
    for name, made in found.items():
        np.testing.assert_array_equal(made, again[name], err_msg=name)
        assert made.shape == images.shape
        assert made.dtype == jnp.float32
        assert 0 <= float(made.min()) <= float(made.max()) <= 1, name
        random += not np.array_equal(made, other[name])
    # Nine have nothing random: four blurs and discs, zoom, brightness, contrast, pixels, jpeg, colour.
    assert random >= 11


def test_shot_noise_counts_photons() -> None:
    dim = np.full((4, 32, 32, 3), 0.05, np.float32)  # 2.5 photons of 50
    for level in (0.05, 0.2, 0.5):  # counted out, and nearly normal
        found = np.asarray(augment.corrupt(KEY, dim / 0.05 * level, "shot_noise", 5)) * 50
        np.testing.assert_allclose(found, np.round(found), atol=1e-4)
        assert found.mean() == pytest.approx(50 * level, rel=0.03)
        assert found.var() == pytest.approx(50 * level, rel=0.05)


def test_jpeg_is_close_to_pillows() -> None:
    made = np.asarray(augment.corrupt(KEY, PHOTOS, "jpeg_compression", 5)).astype(float)
    for image, found in zip(PHOTOS, made, strict=True):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=40)
        pillow = np.asarray(Image.open(file)).astype(float)
        ours, theirs = (np.abs(x - image).mean() for x in (found, pillow))
        assert np.abs(found - pillow).mean() < 0.5 * theirs
        assert ours == pytest.approx(theirs, rel=0.25)


def test_pixelate_is_pillows() -> None:
    made = np.asarray(augment.corrupt(KEY, PHOTOS, "pixelate", 5))
    for image, found in zip(PHOTOS, made, strict=True):
        small = Image.fromarray(image).resize((20, 20), Image.Resampling.BOX)
        pillow = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
        assert np.abs(found.astype(int) - pillow).max() <= 1


def test_zoom_brightness_and_contrast_by_hand() -> None:
    images = np.full((1, 5, 5, 3), 0.2, np.float32)
    images[0, :, :, 0] = 0.6
    for name in ("zoom_blur", "contrast", "gaussian_blur", "defocus_blur", "motion_blur"):
        made = augment.corrupt(KEY, images, name, 5)
        np.testing.assert_allclose(made, images, atol=1e-5, err_msg=name)  # nothing to blur
    brighter = np.asarray(augment.corrupt(KEY, images, "brightness", 5))[0, 0, 0]
    np.testing.assert_allclose(brighter, [0.9, 0.3, 0.3], atol=1e-5)
    greyer = np.asarray(augment.corrupt(KEY, images, "saturate", 2))[0, 0, 0]
    np.testing.assert_allclose(greyer, [0.6, 0.56, 0.56], atol=1e-5)
