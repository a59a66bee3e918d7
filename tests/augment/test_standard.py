"""Crops and flips against what numpy would cut out."""

import jax
import numpy as np

from calib_jax import augment

IMAGES = np.random.default_rng(0).integers(1, 255, (40, 6, 5, 2)).astype(np.uint8)


def test_pad_crop_is_a_window_of_the_padded_image() -> None:
    found = np.asarray(augment.pad_crop(jax.random.key(0), IMAGES, 2))
    assert found.dtype == np.uint8
    padded = np.pad(IMAGES, ((0, 0), (2, 2), (2, 2), (0, 0)))
    corners = set()
    for image, result in zip(padded, found, strict=True):
        places = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if np.array_equal(image[i : i + 6, j : j + 5], result)
        ]
        assert len(places) == 1
        corners |= set(places)
    assert {i for i, _ in corners} == {j for _, j in corners} == set(range(5))


def test_flip_mirrors_about_half_of_them() -> None:
    found = np.asarray(augment.flip(jax.random.key(1), IMAGES))
    mirrored = np.array([np.array_equal(a, b[:, ::-1]) for a, b in zip(found, IMAGES, strict=True)])
    kept = np.array([np.array_equal(a, b) for a, b in zip(found, IMAGES, strict=True)])
    assert np.all(mirrored ^ kept)
    assert 10 <= mirrored.sum() <= 30


def test_same_key_same_images_also_under_jit() -> None:
    for function in (augment.flip, lambda k, x: augment.pad_crop(k, x, 1)):
        a = function(jax.random.key(3), IMAGES)
        np.testing.assert_array_equal(a, jax.jit(function)(jax.random.key(3), IMAGES))
        assert not np.array_equal(a, function(jax.random.key(4), IMAGES))
