"""DenseNet: each layer sees the outputs of all earlier layers of its block."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calib_jax import _cpu
from calib_jax.models._resnet import (
    ImageNetwork,
    affine,
    average_pool,
    batch_norm,
    conv,
    stem_shape,
)


class DenseLayer(nn.Module):
    """Norm, relu, 1x1 to 4 x growth, norm, relu, 3x3 to the growth; concatenated with the input."""

    growth: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        def active(y: jax.Array) -> jax.Array:
            return _cpu.relu(batch_norm(self.dtype)(y, use_running_average=not train))

        y = conv(4 * self.growth, 1, dtype=self.dtype)(active(x))
        y = conv(self.growth, 3, dtype=self.dtype)(active(y))
        return jnp.concatenate([y, x], axis=-1)


class Transition(nn.Module):
    """Norm, relu, 1x1 to half the channels, 2x2 average."""

    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        y = _cpu.relu(batch_norm(self.dtype)(x, use_running_average=not train))
        return nn.avg_pool(conv(x.shape[-1] // 2, 1, dtype=self.dtype)(y), (2, 2), (2, 2))


class DenseNet(ImageNetwork):
    """DenseNet; blocks (6, 12, 24, 16) with growth 32 are DenseNet-121.

    Attributes:
      blocks: Number of layers in each block.
      growth: Number of channels that each layer adds.
      stem: `'small'`: 3x3 convolution; `'imagenet'`: 7x7 with stride 2, norm, 3x3 max-pooling.

    References:
      Huang et al., 2017, arXiv:1608.06993.
    """

    blocks: Sequence[int] = (6, 12, 24, 16)
    growth: int = 32
    stem: str = "small"

    def setup(self) -> None:
        size, stride = stem_shape(self.stem)
        self.stem_conv = conv(2 * self.growth, size, stride, dtype=self.dtype)
        if self.stem == "imagenet":
            self.stem_norm = batch_norm(self.dtype)
        self.layers = [
            [DenseLayer(self.growth, self.dtype) for _ in range(number)] for number in self.blocks
        ]
        self.transitions = [Transition(self.dtype) for _ in self.blocks[1:]]
        self.last_norm = batch_norm(self.dtype)
        self.classifier = affine(self.num_classes)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        x = self.stem_conv(embeddings)
        if self.stem == "imagenet":
            x = _cpu.relu(self.stem_norm(x, use_running_average=not train))
            x = nn.max_pool(x, (3, 3), (2, 2), padding=[(1, 1)] * 2)
        for i, block in enumerate(self.layers):
            for layer in block:
                x = layer(x, train)
            if i < len(self.transitions):
                x = self.transitions[i](x, train)
        return average_pool(_cpu.relu(self.last_norm(x, use_running_average=not train)), 1)
