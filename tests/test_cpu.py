"""The CPU's forms equal the plain operations, and programs for other platforms do without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from calib_jax import _cpu

PLATFORMS = ("cpu", "cuda", "tpu")


def lowered(function, *arguments, platform):
    return export.export(jax.jit(function), platforms=[platform])(*arguments).mlir_module()


def randoms(*shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def plain(images, kernel, strides, padding):
    return jax.lax.conv_general_dilated(
        images, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


# Widened by four and by two; not at all: an odd width, many features, strides; 1x1; uneven padding.
SHAPES = [
    ((2, 8, 8, 3), (3, 3, 3, 16), (1, 1), [(1, 1), (1, 1)]),
    ((2, 8, 8, 16), (3, 3, 16, 16), (1, 1), [(1, 1), (1, 1)]),
    ((2, 7, 7, 16), (3, 3, 16, 8), (1, 1), [(1, 1), (1, 1)]),
    ((2, 4, 4, 4), (3, 3, 4, 32), (1, 1), [(1, 1), (1, 1)]),
    ((2, 8, 8, 5), (3, 3, 5, 6), (2, 2), [(1, 1), (1, 1)]),
    ((2, 9, 9, 3), (7, 7, 3, 4), (2, 2), [(3, 3), (3, 3)]),
    ((2, 8, 8, 5), (1, 1, 5, 6), (2, 2), [(0, 0), (0, 0)]),
    ((2, 6, 6, 5), (1, 1, 5, 6), (1, 1), [(0, 0), (0, 0)]),
    ((2, 6, 7, 3), (2, 4, 3, 5), (1, 1), [(0, 2), (1, 2)]),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_convolution_equals_the_plain_one(shape):
    image_shape, kernel_shape, *settings = shape
    images, kernel = randoms(image_shape, kernel_shape)
    expected, pull = jax.vjp(lambda x, k: plain(x, k, *settings), images, kernel)
    value, own_pull = jax.vjp(lambda x, k: _cpu.convolve(x, k, *settings), images, kernel)
    (slope,) = randoms(expected.shape)
    np.testing.assert_allclose(value, expected, atol=1e-5, rtol=1e-5)
    for gradient, wanted in zip(own_pull(slope), pull(slope), strict=True):
        np.testing.assert_allclose(gradient, wanted, atol=2e-5, rtol=2e-5)


def test_second_derivative_of_a_convolution():
    images, kernel = randoms((1, 4, 4, 2), (3, 3, 2, 2))

    def norm(convolution):
        def value(k):
            return jnp.sum(convolution(images, k, (1, 1), [(1, 1), (1, 1)]) ** 3)

        return jax.grad(lambda k: jnp.sum(jax.grad(value)(k) ** 2))(kernel)

    np.testing.assert_allclose(norm(_cpu.convolve), norm(plain), rtol=1e-4)


def test_relu_equals_the_plain_one():
    x = jnp.array([-2.0, -0.0, 0.0, 1e-30, 3.0, jnp.inf, -jnp.inf])
    np.testing.assert_array_equal(_cpu.relu(x), jax.nn.relu(x))

    def total(f):
        return lambda x: jnp.sum(f(x) ** 2)

    np.testing.assert_array_equal(jax.grad(total(_cpu.relu))(x), jax.grad(total(jax.nn.relu))(x))
    ones = jnp.ones_like(x)
    np.testing.assert_array_equal(
        jax.jvp(_cpu.relu, (x,), (ones,))[1], jax.jvp(jax.nn.relu, (x,), (ones,))[1]
    )
    assert np.isnan(_cpu.relu(jnp.nan))


def test_argsort_equals_the_plain_one():
    rng = np.random.default_rng(0)
    keys = rng.integers(-5, 5, (3, 100)).astype(np.int32)  # many ties
    keys[:, :2] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    expected = np.argsort(keys, axis=1, kind="stable")
    for x64 in (False, True):
        with jax.enable_x64(x64):
            for row, order in zip(keys, expected, strict=True):
                found = jax.jit(_cpu.argsort)(row)
                np.testing.assert_array_equal(found, order)
                assert found.dtype == jnp.int32
            np.testing.assert_array_equal(_cpu.argsort(jnp.asarray(keys[0])), expected[0])
            np.testing.assert_array_equal(jax.vmap(_cpu.argsort)(keys), expected)
            np.testing.assert_array_equal(jax.vmap(jax.jit(_cpu.argsort))(keys), expected)
            np.testing.assert_array_equal(jax.jit(jax.vmap(_cpu.argsort))(keys), expected)


def test_argmax_equals_the_plain_one():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, (6, 50)).astype(np.float32)  # many ties
    values[1, 7] = values[1, 30] = np.nan
    values[2] = -np.inf
    values[3, 9] = np.inf
    expected = jnp.argmax(values, axis=1)
    np.testing.assert_array_equal(_cpu.argmax(jnp.asarray(values)), expected)
    np.testing.assert_array_equal(jax.jit(_cpu.argmax)(values), expected)
    stacked = jax.vmap(_cpu.argmax)(jnp.stack([values, values]))
    np.testing.assert_array_equal(stacked, jnp.stack([expected, expected]))


@pytest.mark.parametrize("columns", [3, 100])
def test_row_sums_equal_the_plain_ones(columns):
    arrays = randoms((7, columns), (7, columns))
    for found, array in zip(jax.jit(_cpu.row_sums)(*arrays), arrays, strict=True):
        np.testing.assert_allclose(found, np.sum(array, axis=-1), rtol=1e-5, atol=1e-5)


def test_other_platforms_get_the_plain_operations():
    keys, values = jnp.zeros(8, jnp.int32), jnp.zeros((2, 8))
    images, kernel = jnp.zeros((2, 8, 8, 3)), jnp.zeros((3, 3, 3, 16))

    def loss(images, kernel):
        return jnp.sum(_cpu.convolve(images, kernel, (1, 1), [(1, 1), (1, 1)]))

    gradient = jax.grad(loss, argnums=(0, 1))
    for platform in PLATFORMS:
        is_cpu = platform == "cpu"
        assert ("xi64>" in lowered(_cpu.argsort, keys, platform=platform)) == is_cpu
        text = lowered(_cpu.argmax, values, platform=platform)
        assert ("applies stablehlo.minimum" in text) == is_cpu
        assert ("3x6x3x64" in lowered(loss, images, kernel, platform=platform)) == is_cpu
        text = lowered(gradient, images, kernel, platform=platform)
        assert ("8x8x2x16" in text) == is_cpu  # the slope, transposed


def test_one_export_serves_all_platforms():
    keys = jnp.asarray([3, 1, 2, 1], jnp.int32)
    exported = export.export(jax.jit(_cpu.argsort), platforms=PLATFORMS)(keys)
    np.testing.assert_array_equal(exported.call(keys), [1, 3, 2, 0])
    values = jnp.asarray([[1.0, 4.0, 4.0]])
    exported = export.export(jax.jit(_cpu.argmax), platforms=PLATFORMS)(values)
    np.testing.assert_array_equal(exported.call(values), [1])
    images, kernel = randoms((2, 8, 8, 3), (3, 3, 3, 16))
    settings = (1, 1), [(1, 1), (1, 1)]
    loss = jax.grad(lambda x, k: jnp.sum(_cpu.convolve(x, k, *settings) ** 2), argnums=(0, 1))
    expected = jax.grad(lambda x, k: jnp.sum(plain(x, k, *settings) ** 2), argnums=(0, 1))
    exported = export.export(jax.jit(loss), platforms=PLATFORMS)(images, kernel)
    for found, wanted in zip(exported.call(images, kernel), expected(images, kernel), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
