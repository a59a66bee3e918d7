"""A multi-layer perceptron, for small images and quick experiments."""

from collections.abc import Sequence

import flax.linen as nn
import jax

from calib_jax.models._resnet import HE_FAN_IN, ImageNetwork, affine


class MLP(ImageNetwork):
    """Dense layers with relu on the flattened image.

    Attributes:
      widths: Widths of the hidden layers.
    """

    widths: Sequence[int] = (256, 256)

    def setup(self) -> None:
        self.layers = [nn.Dense(w, kernel_init=HE_FAN_IN, dtype=self.dtype) for w in self.widths]
        self.classifier = affine(self.num_classes)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        x = embeddings.reshape(embeddings.shape[0], -1)
        for layer in self.layers:
            x = nn.relu(layer(x))
        return x
