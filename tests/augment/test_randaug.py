"""Image operations against Pillow's, one by one; RandAug and AugMix against what they are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from calib_jax import augment
from calib_jax.augment import _ops

KEY = jax.random.key(0)
FILL = 128


def _photo(seed: int, height: int = 32, width: int = 32) -> np.ndarray:
    """Something smooth with noise on it, that does not use all levels; uint8 `[h, w, 3]`."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width] / max(height, width)
    waves = [np.sin(6 * (a * x + b * y) + c) for a, b, c in rng.normal(size=(3, 3))]
    image = 120 + 70 * np.stack(waves, -1) + 10 * rng.normal(size=(height, width, 3))
    return np.clip(image, 5, 240).astype(np.uint8)


PHOTOS = np.stack([_photo(i) for i in range(16)])
WIDE = np.stack([_photo(i, 20, 44) for i in range(16)])


_compiled = jax.jit(augment.randaug)


def randaug(images: np.ndarray, magnitude: float, op: str) -> np.ndarray:
    """By one program for all operations and magnitudes."""
    number = np.int32(augment.op_number(op))
    return np.asarray(_compiled(KEY, images, np.float32(magnitude), number))


def _pillow(image: np.ndarray, op: str, m: float, sign: float) -> np.ndarray:
    pil = Image.fromarray(image)
    grey = (FILL,) * 3
    matrices = {
        "shear_x": (1, 0.03 * m * sign, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, 0.03 * m * sign, 1, 0),
        "translate_x": (1, 0, int(m * sign * pil.width / 30), 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, int(m * sign * pil.height / 30)),
    }
    if op in matrices:
        pil = pil.transform(pil.size, Image.Transform.AFFINE, matrices[op], fillcolor=grey)
    elif op == "rotate":
        pil = pil.rotate(3 * m * sign, fillcolor=grey)
    elif op == "posterize":
        pil = ImageOps.posterize(pil, max(1, 4 - int(4 * m / 10)))
    elif op == "solarize":
        pil = ImageOps.solarize(pil, 256 - int(256 * m / 10))
    elif op == "color":
        pil = ImageEnhance.Color(pil).enhance(1 + 0.09 * m * sign)
    else:
        pil = getattr(ImageOps, op)(pil)
    return np.asarray(pil)


def _signs(n: int) -> np.ndarray:
    """The directions that `KEY` gives."""
    return np.where(np.asarray(jax.random.bernoulli(KEY, shape=(n,))), 1, -1)


@pytest.mark.parametrize("images", [PHOTOS, WIDE], ids=["square", "wide"])
@pytest.mark.parametrize("op", augment.OPS)
def test_as_pillow_does_it(op: str, images: np.ndarray) -> None:
    signs = _signs(len(images))
    assert set(signs) == {-1, 1}
    for m in range(11):
        found = randaug(images, m, op)
        expected = [_pillow(image, op, m, s) for image, s in zip(images, signs, strict=True)]
        difference = np.abs(found.astype(int) - np.stack(expected))
        # Tones: one level, where Pillow's doubles fall short of a whole number. Warps: one pixel in a
        # thousand, where a float32 coordinate falls on the other side of a pixel's edge.
        if op in augment.OPS[:5]:
            assert (difference > 0).mean() <= 1e-3, m
        else:
            assert difference.max() <= 1, m


def test_any_operation_on_any_image_in_one_call() -> None:
    rng = np.random.default_rng(1)
    ops, ms = rng.integers(0, len(augment.OPS) + 1, 16), rng.integers(1, 11, 16)
    together = np.asarray(_compiled(KEY, PHOTOS, ms, ops))
    signs = _signs(16)
    for i, (op, m) in enumerate(zip(ops, ms, strict=True)):
        if op == len(augment.OPS):
            np.testing.assert_array_equal(together[i], PHOTOS[i])
        else:
            expected = _pillow(PHOTOS[i], augment.OPS[op], m, signs[i]).astype(int)
            assert (np.abs(together[i] - expected) > 1).mean() <= 1e-3


def test_more_images_than_are_equalized_at_once() -> None:
    images = np.concatenate([PHOTOS] * 3)[:37]
    found = randaug(images, 0, "equalize")
    expected = np.stack([_pillow(image, "equalize", 0, 1) for image in images])
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("op", [op for op in augment.OPS if op not in ("autocontrast", "equalize")])
def test_distortion_grows_with_magnitude(op: str) -> None:
    away = [np.abs(randaug(PHOTOS, m, op).astype(float) - PHOTOS).mean() for m in range(11)]
    if op not in ("posterize", "solarize"):  # they begin with something
        assert away[0] == 0
    steps = np.diff(away)
    assert (steps > -0.02 * max(away)).all(), away
    assert away[10] > 1.7 * away[3] > 0


def test_flat_images_grey_images_and_floats() -> None:
    flat = np.full((2, 8, 8, 3), 77, np.uint8)
    for op in ("autocontrast", "equalize", "color"):
        np.testing.assert_array_equal(randaug(flat, 5, op), flat)
    grey = PHOTOS[..., :1]
    for op in augment.OPS:
        found = randaug(grey, 6, op)
        coloured = randaug(np.repeat(grey, 3, -1), 6, op)
        assert np.abs(found.astype(int) - coloured[..., :1]).max() <= 1
        unit = randaug((grey / 255).astype(np.float32), 6, op)
        assert unit.dtype == np.float32
        np.testing.assert_array_equal(np.round(255 * unit), found)


def test_augmix_is_a_chain_mixed_with_the_original() -> None:
    made = jax.jit(lambda lam, depth: augment.augmix(KEY, PHOTOS, lam=lam, depth=depth))

    def augmix(lam: float, depth: int | np.ndarray) -> np.ndarray:
        return np.asarray(made(lam, np.broadcast_to(depth, 16)))

    whole = augmix(0.0, 2)
    np.testing.assert_array_equal(augmix(1.0, 2), PHOTOS)
    half = augmix(0.25, 2)
    np.testing.assert_allclose(half, 0.25 * PHOTOS + 0.75 * whole, atol=0.51)
    # A longer chain begins with the shorter one's operations.
    one = augmix(0.0, 1)
    mixed = augmix(0.0, np.arange(16) % 2 + 1)
    np.testing.assert_array_equal(mixed[::2], one[::2])
    np.testing.assert_array_equal(mixed[1::2], whole[1::2])
    assert not np.array_equal(one, whole)


def test_augmix_draws_depth_and_weight_and_may_have_three_chains() -> None:
    for chains in (1, 3):
        made = jax.jit(lambda key, x, chains=chains: augment.augmix(key, x, chains=chains))
        found = np.asarray(made(KEY, PHOTOS))
        np.testing.assert_array_equal(found, made(KEY, PHOTOS))
        assert not np.array_equal(found, made(jax.random.key(1), PHOTOS))
        assert found.dtype == np.uint8
        away = np.abs(found.astype(float) - PHOTOS).mean((1, 2, 3))
        assert 0 < away.mean() < 60


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"op='rotat': expected one of .*did you mean 'rotate'"):
        augment.randaug(KEY, PHOTOS, 1, "rotat")
    with pytest.raises(ValueError, match=r"magnitude: expected a scalar or shape \(16,\), got \(3"):
        augment.randaug(KEY, PHOTOS, np.ones(3), 0)
    with pytest.raises(ValueError, match="expected 1 to 4 channels"):
        augment.randaug(KEY, np.zeros((2, 4, 4, 5), np.uint8), 1, 0)
    with pytest.raises(ValueError, match=r"expected \[batch, h, w, c\]"):
        augment.randaug(KEY, PHOTOS[0], 1, 0)
    with pytest.raises(ValueError, match="chains=3: expected 1, or more than 1 without a depth"):
        augment.augmix(KEY, PHOTOS, chains=3, depth=1)


def test_autocontrast_is_pillows_for_every_range_also_under_jit() -> None:
    """All levels of 255 ranges as images: each in a row of all its levels, from low to high."""
    rng = np.random.default_rng(0)
    images = np.zeros((256, 16, 16, 3), np.uint8)
    for image in images:
        for i in range(3):
            low, high = np.sort(rng.choice(256, 2, replace=False))
            levels = np.arange(low, high + 1)
            image[..., i] = rng.permutation(np.resize(levels, 256)).reshape(16, 16)
    expected = np.stack([np.asarray(ImageOps.autocontrast(Image.fromarray(i))) for i in images])
    np.testing.assert_array_equal(randaug(images, 5, "autocontrast"), expected)
    number = np.int32(augment.op_number("autocontrast"))
    with jax.disable_jit():
        eager = augment.randaug(KEY, images[:8], np.float32(5), number)
    np.testing.assert_array_equal(eager, expected[:8])


def test_stretched_levels_are_pillows_for_all_of_them() -> None:
    low, high = np.triu_indices(256, 1)
    x = np.arange(256)
    some = np.random.default_rng(0).choice(len(low), 4096, replace=False)
    low, high = low[some][:, None], high[some][:, None]
    scale = 255.0 / (high - low)
    pillow = np.clip((x * scale + -low * scale).astype(int), 0, 255)
    inside = (low <= x) & (x <= high)
    arrays = (np.broadcast_to(np.where(inside, x, low), inside.shape), low, high)
    stretched = _ops._stretched(*(jnp.asarray(a, jnp.int32) for a in arrays))
    np.testing.assert_array_equal(np.asarray(stretched)[inside], pillow[inside])
