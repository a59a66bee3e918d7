"""Corruptions: noise of the published levels, the same for the same key, within the images' range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    # The same noise: bytes are the rounded version of floats; bfloat16 has steps of a grey level.
    step = 0.51 if dtype == np.float32 else 1.6
    np.testing.assert_allclose(255 * np.asarray(found, np.float32), np.asarray(whole), atol=step)


def test_same_key_same_noise_also_under_jit() -> None:
    def noisy(key, images):
        return augment.corrupt(key, images, "gaussian_noise", 5)

    found = noisy(KEY, GREY)
    np.testing.assert_array_equal(found, noisy(KEY, GREY))
    np.testing.assert_array_equal(found, jax.jit(noisy)(KEY, GREY))
    assert not np.array_equal(found, noisy(jax.random.key(1), GREY))


def test_wrong_arguments_are_named() -> None:
    cases = [
        ((GREY, "gausian_noise", 5), r"name='gausian_noise': expected one of gaussian_noise"),
        ((GREY, "gaussian_noise", 0), "severity=0: expected 1, 2, 3, 4 or 5"),
        ((GREY, "gaussian_noise", 2.0), "severity=2.0: expected 1, 2, 3, 4 or 5"),
        ((GREY[0], "gaussian_noise", 5), r"expected \[batch, h, w, c\], got shape \(32, 32, 3\)"),
        ((GREY.astype(np.int32), "gaussian_noise", 5), r"uint8 or floats in \[0, 1\], got int32"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            augment.corrupt(KEY, *arguments)
    assert augment.CORRUPTIONS == ("gaussian_noise",)
