"""What is done differently on the CPU, and why.

XLA's CPU backend computes some operations much slower than their arithmetic needs. Each function here
returns what the plain operation returns, in a form that is fast there; programs for other platforms have
the plain one (`jax.lax.platform_dependent`). docs/performance.md says what each is worth.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

_MOST_COLUMNS = 64
_NHWC = ("NHWC", "HWIO", "NHWC")
Pairs = tuple[tuple[int, int], tuple[int, int]]


def is_cpu() -> bool:
    """Return whether JAX computes on the CPU by default."""
    return jax.default_backend() == "cpu"


def argsort(keys: jax.Array) -> jax.Array:
    """Return int32 indices that sort int32 `keys` `[n]` in ascending order; ties keep their order.

    A sort of two arrays calls a comparison function for each pair. One of 64-bit numbers, the key above
    its index, does not, and has no ties.
    """
    return jax.lax.platform_dependent(keys, cpu=_argsort_packed, default=_argsort_plain)


def _argsort_plain(keys: jax.Array) -> jax.Array:
    return jnp.argsort(keys).astype(jnp.int32)


def _argsort_packed(keys: jax.Array) -> jax.Array:
    with jax.enable_x64(True):  # for these operations only: the result has 32 bits again
        index = jax.lax.iota(jnp.int64, keys.shape[0])
        high = jax.lax.convert_element_type(keys, jnp.int64)
        packed = jax.lax.shift_left(high, jax.lax.full_like(index, 32)) | index
        return jax.lax.convert_element_type(jax.lax.sort(packed), jnp.int32)


def argmax(values: jax.Array) -> jax.Array:
    """Return the int32 index of the largest entry of each row of `[rows, n]`, of several the first.

    As by `jnp.argmax`, NaN counts as the largest. A reduction of values and indices together is not
    vectorized; two of one array each are.
    """
    return jax.lax.platform_dependent(values, cpu=_argmax_twice, default=_argmax_plain)


def _argmax_plain(values: jax.Array) -> jax.Array:
    return jnp.argmax(values, axis=1).astype(jnp.int32)


def _argmax_twice(values: jax.Array) -> jax.Array:
    largest = jnp.max(values, axis=1, keepdims=True)
    index = jax.lax.broadcasted_iota(jnp.int32, values.shape, 1)
    is_largest = (values == largest) | (values != values)
    return jnp.min(jnp.where(is_largest, index, values.shape[1]), axis=1)


def row_sums(*columns: jax.Array) -> tuple[jax.Array, ...]:
    """Return the sum over the last axis of each of some arrays of the same shape.

    XLA's CPU backend does not combine sums: what the arrays have in common (exponentials) is computed for
    each again. One reduction of all is not vectorized, though, and slower for many columns.
    """
    if columns[0].shape[-1] > _MOST_COLUMNS:
        return _sum_each(*columns)
    return jax.lax.platform_dependent(*columns, cpu=_sum_together, default=_sum_each)


def _sum_each(*columns: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jnp.sum(column, axis=-1) for column in columns)


def _sum_together(*columns: jax.Array) -> tuple[jax.Array, ...]:
    def add(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(x + y for x, y in zip(a, b, strict=True))

    zeros = tuple(jnp.zeros((), column.dtype) for column in columns)
    return tuple(jax.lax.reduce(columns, zeros, add, (columns[0].ndim - 1,)))


@jax.custom_jvp
def relu(x: jax.Array) -> jax.Array:
    """Return `max(x, 0)`, whose gradient is computed from the result.

    From `x`, XLA computes again for each use what `x` was computed from: in a residual network the sums
    of a stage and their normalizations, for every weight gradient. The result is in memory in any case.
    """
    return jnp.where(x <= 0, 0, x)


@relu.defjvp
def _relu_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    y = relu(*primals)
    return y, jnp.where(y <= 0, 0, tangents[0])


def convolve(
    images: jax.Array, kernel: jax.Array, strides: Sequence[int], padding: Sequence[Sequence[int]]
) -> jax.Array:
    """Return a two-dimensional convolution, `jax.lax.conv_general_dilated` of NHWC and HWIO.

    On the CPU, a narrow one computes neighboring outputs as channels of a wider one, and the gradient of
    the kernel is a convolution of transposed arrays. Has no forward-mode derivative.

    Args:
      images: `[batch, height, width, channels]`.
      kernel: `[rows, columns, channels, features]`.
      strides: Strides along height and width.
      padding: Numbers of zeros before and after height and width.
    """
    (top, bottom), (left, right) = padding
    return _convolve(images, kernel, (strides[0], strides[1]), ((top, bottom), (left, right)))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(
    images: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: Pairs
) -> jax.Array:
    return jax.lax.platform_dependent(
        images,
        kernel,
        cpu=partial(_widened, strides=strides, padding=padding),
        default=partial(_plain, strides=strides, padding=padding),
    )


def _convolve_forward(
    images: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: Pairs
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _convolve(images, kernel, strides, padding), (images, kernel)


def _convolve_backward(
    strides: tuple[int, int], padding: Pairs, kept: tuple[jax.Array, jax.Array], slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return jax.lax.platform_dependent(
        *kept,
        slope,
        cpu=partial(_cpu_gradients, strides=strides, padding=padding),
        default=partial(_plain_gradients, strides=strides, padding=padding),
    )


_convolve.defvjp(_convolve_forward, _convolve_backward)


def _plain(
    images: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: Pairs
) -> jax.Array:
    return jax.lax.conv_general_dilated(images, kernel, strides, padding, dimension_numbers=_NHWC)


def _plain_gradients(
    images: jax.Array,
    kernel: jax.Array,
    slope: jax.Array,
    strides: tuple[int, int],
    padding: Pairs,
) -> tuple[jax.Array, jax.Array]:
    of_images = jax.linear_transpose(lambda x: _plain(x, kernel, strides, padding), images)
    of_kernel = jax.linear_transpose(lambda k: _plain(images, k, strides, padding), kernel)
    return of_images(slope)[0], of_kernel(slope)[0]


def _widened(
    images: jax.Array, kernel: jax.Array, strides: tuple[int, int], padding: Pairs
) -> jax.Array:
    """Compute two or four neighboring outputs as the features of one convolution with that stride.

    Fewer than 32 features do not fill the registers. The kernels of the neighbors, each shifted by one
    column, are one kernel with zeros: more multiplications, but fewer instructions.
    """
    _rows, columns, channels, features = kernel.shape
    count = 4 if channels <= 4 else 2
    width = images.shape[2] + sum(padding[1]) - columns + 1  # of the result
    if columns == 1 or features >= 32 or strides != (1, 1) or width % count:
        return _plain(images, kernel, strides, padding)
    shifted = [jnp.pad(kernel, ((0, 0), (i, count - 1 - i), (0, 0), (0, 0))) for i in range(count)]
    wide = _plain(images, jnp.concatenate(shifted, axis=-1), (1, count), padding)
    return wide.reshape(*wide.shape[:2], width, features)


def _cpu_gradients(
    images: jax.Array,
    kernel: jax.Array,
    slope: jax.Array,
    strides: tuple[int, int],
    padding: Pairs,
) -> tuple[jax.Array, jax.Array]:
    of_images, _ = _plain_gradients(images, kernel, slope, strides, padding)
    if strides == (1, 1):
        sizes = kernel.shape[:2]
        top, left = (
            (size - 1 - before, size - 1 - after)
            for size, (before, after) in zip(sizes, padding, strict=True)
        )
        flipped = jnp.swapaxes(kernel[::-1, ::-1], 2, 3)
        of_images = _widened(slope, flipped, strides, (top, left))
    return of_images, _kernel_gradient(images, slope, kernel.shape, strides, padding)


def _kernel_gradient(
    images: jax.Array,
    slope: jax.Array,
    shape: tuple[int, ...],
    strides: tuple[int, int],
    padding: Pairs,
) -> jax.Array:
    """Compute the gradient of the kernel with the batch as channels, both arrays being transposed.

    What automatic differentiation gives instead runs about 100 times slower inside a loop.
    """
    # As many zeros after the image as the result needs to have the kernel's size.
    pairs = tuple(
        (before, size - 1 + (outputs - 1) * stride + 1 - inputs - before)
        for size, outputs, stride, inputs, (before, _) in zip(
            shape[:2], slope.shape[1:3], strides, images.shape[1:3], padding, strict=True
        )
    )
    gradient = jax.lax.conv_general_dilated(
        images.transpose(3, 1, 2, 0),
        slope.transpose(1, 2, 0, 3),
        (1, 1),
        pairs,
        rhs_dilation=strides,
        dimension_numbers=_NHWC,
    )
    return gradient.transpose(1, 2, 0, 3)


def steps_per_call(module: type) -> int:
    """Return the largest number of training steps in one call of the compiled program.

    XLA's CPU backend computes the gradient of a convolution's kernel about 100 times slower in a loop,
    unless it is that of `convolve`. Networks without other convolutions have `fast_in_loops = True`.

    Args:
      module: Class of the network's module.
    """
    return 1 if is_cpu() and not getattr(module, "fast_in_loops", False) else 50
