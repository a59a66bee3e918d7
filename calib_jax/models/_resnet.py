"""Residual networks for images `[batch, height, width, channels]`, cut in embed, features and head.

Batch statistics are in the collection `batch_stats`. Under jit with a batch sharded over devices the
mean over the batch is global, so data parallelism needs no further code.

References:
  ResNet: He et al., 2016, arXiv:1512.03385.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import Initializer
from jax.typing import DTypeLike

from calib_jax import _cpu
from calib_jax._hints import expected_one_of

# Uniform in +-1/sqrt(fan_in), as in the AdaFocal paper's networks; He: arXiv:1502.01852.
UNIFORM_FAN_IN = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
HE_FAN_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
HE_FAN_IN = nn.initializers.variance_scaling(2.0, "fan_in", "normal")

# Kernel size and stride of the first convolution.
_STEMS = {"small": (3, 1), "imagenet": (7, 2)}


class ImageNetwork(nn.Module):
    """Base class of image networks: `embed`, `features`, and an affine `head`.

    Attributes:
      num_classes: Number of logits.
      dtype: Type of the activations; parameters, batch statistics and logits are float32.
      fast_in_loops: Whether all convolutions are those of `conv`; see `_cpu.steps_per_call`.
    """

    fast_in_loops: ClassVar[bool] = True
    num_classes: int
    dtype: DTypeLike = jnp.float32

    def embed(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Cast images to `dtype`: they are their own embedding."""
        return images.astype(self.dtype)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        """Compute pooled features `[batch, width]`."""
        raise NotImplementedError

    def head(self, features: jax.Array, train: bool = False) -> jax.Array:
        """Compute float32 logits `[batch, num_classes]`."""
        return self.classifier(features.astype(jnp.float32))

    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Compute logits of normalized images `[batch, height, width, channels]`."""
        return self.head(self.features(self.embed(images, train), train), train)


def conv(
    features: int,
    size: int,
    stride: int = 1,
    *,
    init: Initializer = UNIFORM_FAN_IN,
    dtype: DTypeLike,
) -> nn.Conv:
    """Return a convolution without bias, padded by half the kernel size for any stride."""
    half = size // 2
    return nn.Conv(
        features,
        (size, size),
        (stride, stride),
        padding=[(half, half)] * 2,
        use_bias=False,
        kernel_init=init,
        dtype=dtype,
        conv_general_dilated=_convolve,
    )


def _convolve(
    images: jax.Array,
    kernel: jax.Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    **_: object,
) -> jax.Array:
    """Return the convolution of `conv`, which has no dilations or groups."""
    return _cpu.convolve(images, kernel, strides, padding)


def stem_shape(stem: str) -> tuple[int, int]:
    """Return kernel size and stride of the first convolution."""
    if stem not in _STEMS:
        raise ValueError(f"stem={stem!r}: {expected_one_of(stem, _STEMS)}")
    return _STEMS[stem]


def batch_norm(dtype: DTypeLike) -> nn.BatchNorm:
    """Return batch norm with float32 statistics.

    Torch: the running variance is the unbiased estimate; here: it is the biased one that normalizes the
    batch.
    """
    return nn.BatchNorm(momentum=0.9, epsilon=1e-5, dtype=dtype)


def affine(features: int, init: Initializer = UNIFORM_FAN_IN) -> nn.Dense:
    """Return the float32 output layer."""
    return nn.Dense(features, kernel_init=init)


class Block(nn.Module):
    """Residual block with the activation after the sum.

    With `bottleneck`: 1x1, 3x3 with the stride, 1x1 to four times the width; otherwise two 3x3.
    """

    width: int
    stride: int
    bottleneck: bool
    kernel_init: Initializer
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        make = partial(conv, init=self.kernel_init, dtype=self.dtype)

        def norm(y: jax.Array) -> jax.Array:
            return batch_norm(self.dtype)(y, use_running_average=not train)

        if self.bottleneck:
            out = 4 * self.width
            y = _cpu.relu(norm(make(self.width, 1)(x)))
            y = _cpu.relu(norm(make(self.width, 3, self.stride)(y)))
            y = norm(make(out, 1)(y))
        else:
            out = self.width
            y = _cpu.relu(norm(make(self.width, 3, self.stride)(x)))
            y = norm(make(self.width, 3)(y))
        if self.stride != 1 or x.shape[-1] != out:
            x = norm(make(out, 1, self.stride)(x))
        return _cpu.relu(x + y)


class ResNet(ImageNetwork):
    """ResNets and post-activation wide ResNets.

    Attributes:
      stages: Number of blocks in each stage; the first keeps the resolution, each other halves it.
      widths: Width of each stage.
      bottleneck: Whether blocks are bottlenecks.
      stem: `'small'`: 3x3 convolution; `'imagenet'`: 7x7 with stride 2, then 3x3 max-pooling.
      stem_width: Number of channels of the stem.
      pool: Side of the averaged last feature map, `pool` x `pool`.
      kernel_init: Initializer of the convolutions.
    """

    stages: Sequence[int] = (3, 4, 6, 3)
    widths: Sequence[int] = (64, 128, 256, 512)
    bottleneck: bool = True
    stem: str = "small"
    stem_width: int = 64
    pool: int = 1
    kernel_init: Initializer = UNIFORM_FAN_IN

    def setup(self) -> None:
        size, stride = stem_shape(self.stem)
        self.stem_conv = conv(
            self.stem_width, size, stride, init=self.kernel_init, dtype=self.dtype
        )
        self.stem_norm = batch_norm(self.dtype)
        self.blocks = [
            Block(width, 2 if stage and not i else 1, self.bottleneck, self.kernel_init, self.dtype)
            for stage, (number, width) in enumerate(zip(self.stages, self.widths, strict=True))
            for i in range(number)
        ]
        self.classifier = affine(self.num_classes)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        x = _cpu.relu(self.stem_norm(self.stem_conv(embeddings), use_running_average=not train))
        if self.stem == "imagenet":
            x = nn.max_pool(x, (3, 3), (2, 2), padding=[(1, 1)] * 2)
        for block in self.blocks:
            x = block(x, train)
        return average_pool(x, self.pool)


def average_pool(x: jax.Array, cells: int) -> jax.Array:
    """Average a feature map `[batch, h, w, channels]` over `cells` x `cells` equal parts, flattened."""
    batch, height, width, channels = x.shape
    if height % cells or width % cells:
        raise ValueError(
            f"a feature map of {height} x {width} has no {cells} x {cells} equal parts"
        )
    parts = x.reshape(batch, cells, height // cells, cells, width // cells, channels)
    return jnp.mean(parts, axis=(2, 4)).reshape(batch, -1)
