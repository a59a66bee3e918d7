"""The global-pooling CNN for 20 Newsgroups, on frozen word vectors."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from calib_jax.models._encoder import Dropout

_SHORTEST = 21  # each convolution and each pooling takes 4 positions, and one must be left


class TextCNN(nn.Module):
    """Three convolutions over word vectors, the largest response of each, two dense layers.

    The word vectors are in the collection `frozen`, not among the parameters: no optimiser sees them.
    Put pretrained ones there: `variables["frozen"]["vectors"] = vectors`.

    Attributes:
      num_classes: number of logits.
      vocab_size: rows of the word vectors; row 0 is padding.
      dim: columns of the word vectors.
      width: channels of the convolutions and of the dense layer.
      dropout: rate before the output layer.
      dtype: of the activations; logits are float32.
    """

    num_classes: int
    vocab_size: int = 20_000
    dim: int = 100
    width: int = 128
    dropout: float = 0.3
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.vectors = self.variable(
            "frozen", "vectors", jnp.zeros, (self.vocab_size, self.dim), jnp.float32
        )
        self.convolutions = [
            nn.Conv(self.width, (5,), padding="VALID", dtype=self.dtype) for _ in range(3)
        ]
        self.dense = nn.Dense(self.width, dtype=self.dtype)
        self.classifier = nn.Dense(self.num_classes)
        self.drop = Dropout(self.dropout)

    def embed(self, input_ids: jax.Array, train: bool = False) -> jax.Array:
        """Word ids `[batch, length]` to vectors `[batch, length, dim]`."""
        return self.vectors.value[input_ids].astype(self.dtype)

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        """Vectors to task features `[batch, width]`."""
        if embeddings.shape[1] < _SHORTEST:
            raise ValueError(
                f"input of length {embeddings.shape[1]}: "
                f"three convolutions and two poolings need at least {_SHORTEST} words"
            )
        x = embeddings
        for i, convolution in enumerate(self.convolutions):
            x = nn.relu(convolution(x))
            if i < 2:
                x = nn.max_pool(x, (5,), (1,))
        return nn.relu(self.dense(jnp.max(x, axis=1)))

    def head(self, features: jax.Array, train: bool = False) -> jax.Array:
        """Task features to float32 logits `[batch, num_classes]`."""
        return self.classifier(self.drop(features, train).astype(jnp.float32))

    def __call__(self, input_ids: jax.Array, train: bool = False) -> jax.Array:
        """Logits of word ids `[batch, length]`, `length` at least 21."""
        return self.head(self.features(self.embed(input_ids, train), train), train)
