"""The global-pooling CNN for 20 Newsgroups, on frozen or learned word vectors."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calib_jax.models._transformer import Dropout

_SHORTEST = 21  # each convolution and each pooling removes 4 positions, and one must remain


class TextCNN(nn.Module):
    """Three convolutions over word vectors, global max-pooling, two dense layers.

    The word vectors are in the collection `frozen`, which is not trained. Set pretrained ones with
    `variables["frozen"]["vectors"] = vectors`.

    Attributes:
      num_classes: Number of logits.
      vocab_size: Number of word vectors; row 0 is padding.
      dim: Dimension of the word vectors.
      width: Number of channels of the convolutions and of the dense layer.
      dropout: Rate before the output layer.
      learned: Whether the word vectors are parameters instead, initialized at random.
      dtype: Type of the activations; logits are float32.

    References:
      Lin, Chen and Yan, 2014 (global pooling), arXiv:1312.4400.
    """

    num_classes: int
    vocab_size: int = 20_000
    dim: int = 100
    width: int = 128
    dropout: float = 0.3
    learned: bool = False
    dtype: DTypeLike = jnp.float32

    def setup(self) -> None:
        shape = (self.vocab_size, self.dim)
        if self.learned:
            self.learned_vectors = self.param("vectors", nn.initializers.normal(0.1), shape)
        else:
            self.vectors = self.variable("frozen", "vectors", jnp.zeros, shape, jnp.float32)
        self.convolutions = [
            nn.Conv(self.width, (5,), padding="VALID", dtype=self.dtype) for _ in range(3)
        ]
        self.dense = nn.Dense(self.width, dtype=self.dtype)
        self.classifier = nn.Dense(self.num_classes)
        self.drop = Dropout(self.dropout)

    def embed(self, input_ids: jax.Array, train: bool = False) -> jax.Array:
        """Look up the vectors `[batch, length, dim]` of word ids `[batch, length]`."""
        if not self.learned:
            return self.vectors.value[input_ids].astype(self.dtype)
        vectors = self.learned_vectors[input_ids].astype(self.dtype)
        return jnp.where(input_ids[..., None] == 0, 0, vectors)  # padding, as in pretrained vectors

    def features(self, embeddings: jax.Array, train: bool = False) -> jax.Array:
        """Compute task features `[batch, width]` of vectors."""
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
        """Compute float32 logits `[batch, num_classes]` of task features."""
        return self.classifier(self.drop(features, train).astype(jnp.float32))

    def __call__(self, input_ids: jax.Array, train: bool = False) -> jax.Array:
        """Compute logits of word ids `[batch, length]`, `length` at least 21."""
        return self.head(self.features(self.embed(input_ids, train), train), train)
