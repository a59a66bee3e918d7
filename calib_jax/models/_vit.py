"""The vision transformer: an image is a sequence of patches, encoded like a text.

References:
  Dosovitskiy et al., 2021, arXiv:2010.11929.
"""

import dataclasses
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calib_jax.models._transformer import Dropout, Transformer, TransformerConfig, init


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerConfig):
    """Sizes of a vision transformer; the names are those of a Hugging Face `config.json`."""

    norm_first: ClassVar[bool] = True

    image_size: int
    patch_size: int
    num_channels: int = 3
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size % self.patch_size:
            raise ValueError(
                f"image_size={self.image_size}: expected a multiple of patch_size={self.patch_size}"
            )


class PatchEmbeddings(nn.Module):
    """An affine map of each patch, after a learned first token; plus positions."""

    config: ViTConfig
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, train: bool) -> jax.Array:
        c = self.config
        expected = (c.image_size, c.image_size, c.num_channels)
        if images.shape[1:] != expected:
            given = " x ".join(map(str, images.shape[1:]))
            raise ValueError(
                f"images of {given}: this ViT takes {' x '.join(map(str, expected))} "
                "(height x width x channels); resize the images or choose another network"
            )
        size = (c.patch_size, c.patch_size)
        patches = nn.Conv(
            c.hidden_size, size, size, "VALID", kernel_init=init(c), dtype=self.dtype, name="patch"
        )(images)
        patches = patches.reshape(images.shape[0], -1, c.hidden_size)
        first = self.param("cls", init(c), (1, 1, c.hidden_size))
        position = self.param("position", init(c), (1, patches.shape[1] + 1, c.hidden_size))
        first = jnp.broadcast_to(first.astype(patches.dtype), (len(patches), 1, c.hidden_size))
        x = jnp.concatenate([first, patches], axis=1) + position.astype(patches.dtype)
        return Dropout(c.hidden_dropout_prob)(x, train)


class VisionEncoder(Transformer):
    """Encoder of images: patch embeddings and layers.

    Attributes:
      config: Sizes of the encoder.
      dtype: Type of the activations; parameters stay float32.
      remat: Whether to recompute a layer's activations in the backward pass instead of storing them.
    """

    config: ViTConfig

    def setup(self) -> None:
        super().setup()
        self.embeddings = PatchEmbeddings(self.config, self.dtype)

    def embed(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Embed normalized images `[batch, height, width, channels]`: `[batch, 1 + patches, hidden]`."""
        return self.embeddings(images, train)

    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Compute hidden states `[batch, 1 + patches, hidden]` of normalized images."""
        return self.encode(self.embed(images, train), train=train)


class ViT(nn.Module):
    """Image classifier: an affine map of the first token's hidden state.

    Embeddings are affine in the images, so mixing embeddings is mixing images.

    Attributes:
      config: Sizes of the encoder.
      num_classes: Number of logits.
      dtype: Type of the activations; logits are float32.
      remat: Whether to recompute activations, as in `VisionEncoder`.
    """

    config: ViTConfig
    num_classes: int
    dtype: DTypeLike = jnp.float32
    remat: bool = False

    def setup(self) -> None:
        self.encoder = VisionEncoder(self.config, self.dtype, self.remat)
        self.classifier = nn.Dense(
            self.num_classes, kernel_init=init(self.config), dtype=jnp.float32
        )

    def embed(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Embed normalized images `[batch, height, width, channels]`: `[batch, 1 + patches, hidden]`."""
        return self.encoder.embed(images, train)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        """Compute task features `[batch, hidden]` of embeddings."""
        return self.encoder.encode(embeddings, train=train, first_only=True)[:, 0]

    def head(self, features: jax.Array, train: bool = False) -> jax.Array:
        """Compute float32 logits `[batch, num_classes]` of task features."""
        return self.classifier(features.astype(jnp.float32))

    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """Compute logits of normalized images `[batch, height, width, channels]`."""
        return self.head(self.features(self.embed(images, train), train), train)
