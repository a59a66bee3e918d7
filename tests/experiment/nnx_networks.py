"""Small networks of Flax NNX: one with batch statistics, one with dropout."""

import jax
from flax import nnx

from calib_jax import train


class Block(nnx.Module):
    """Two convolutions with batch norm, and a residual sum."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.convs = nnx.List([nnx.Conv(width, width, (3, 3), rngs=rngs) for _ in range(2)])
        self.norms = nnx.List([nnx.BatchNorm(width, momentum=0.9, rngs=rngs) for _ in range(2)])

    def __call__(self, x: jax.Array) -> jax.Array:
        y = nnx.relu(self.norms[0](self.convs[0](x)))
        return nnx.relu(x + self.norms[1](self.convs[1](y)))


class ResNet(nnx.Module):
    """A stem and a block, without cuts: as most people write it."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.block = Block(4, rngs)
        self.classifier = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, image: jax.Array) -> jax.Array:
        return self.classifier(self.block(self.stem(image)).mean((1, 2)))


class MLP(nnx.Module):
    """Two layers of dropout in cuts: `embed`, `features` and `head`."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(16, 8, rngs=rngs)
        self.classifier = nnx.Linear(8, 3, rngs=rngs)
        self.dropouts = nnx.List([nnx.Dropout(0.25, rngs=rngs) for _ in range(2)])

    def embed(self, image: jax.Array) -> jax.Array:
        return self.dropouts[0](image.reshape(len(image), -1))

    def features(self, embeddings: jax.Array) -> jax.Array:
        return nnx.relu(self.hidden(embeddings))

    def head(self, features: jax.Array) -> jax.Array:
        return self.classifier(self.dropouts[1](features))

    def __call__(self, image: jax.Array) -> jax.Array:
        return self.head(self.features(self.embed(image)))


def resnet() -> train.Network:
    return train.Network(train.NNXModule(ResNet), mean=(0.4,), std=(0.3,))


def mlp() -> train.Network:
    return train.Network(train.NNXModule(MLP))
