"""Wide residual network with pre-activation blocks.

References:
  Zagoruyko and Komodakis, 2016, arXiv:1605.07146; pre-activation: He et al., 2016, arXiv:1603.05027.
"""

import flax.linen as nn
import jax
from jax.typing import DTypeLike

from calib_jax import _cpu
from calib_jax.models._resnet import (
    HE_FAN_IN,
    ImageNetwork,
    affine,
    average_pool,
    batch_norm,
    conv,
)


class PreActivationBlock(nn.Module):
    """Norm, relu, 3x3, norm, relu, 3x3, and a plain 1x1 where the shape changes."""

    width: int
    stride: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        def active(y: jax.Array) -> jax.Array:
            return _cpu.relu(batch_norm(self.dtype)(y, use_running_average=not train))

        y = conv(self.width, 3, self.stride, init=HE_FAN_IN, dtype=self.dtype)(active(x))
        y = conv(self.width, 3, init=HE_FAN_IN, dtype=self.dtype)(active(y))
        if self.stride != 1 or x.shape[-1] != self.width:
            x = conv(self.width, 1, self.stride, init=HE_FAN_IN, dtype=self.dtype)(x)
        return x + y


class WideResNet(ImageNetwork):
    """WRN-d-k with d = 6 `blocks` + 4 and k = `widen`.

    Attributes:
      blocks: Number of blocks in each of the three stages.
      widen: Factor of the widths 16, 32 and 64.
    """

    blocks: int = 4
    widen: int = 10

    def setup(self) -> None:
        self.stem_conv = conv(16, 3, init=HE_FAN_IN, dtype=self.dtype)
        self.residual = [
            PreActivationBlock(width * self.widen, 2 if stage and not i else 1, self.dtype)
            for stage, width in enumerate((16, 32, 64))
            for i in range(self.blocks)
        ]
        self.last_norm = batch_norm(self.dtype)
        self.classifier = affine(self.num_classes, HE_FAN_IN)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        x = self.stem_conv(embeddings)
        for block in self.residual:
            x = block(x, train)
        return average_pool(_cpu.relu(self.last_norm(x, use_running_average=not train)), 1)
