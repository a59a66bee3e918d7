"""A Flax module as methods see it: pure functions in three cuts."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

Inputs = Mapping[str, jax.Array]
Collections = dict[
    str, Any
]  # what is neither parameter nor input: batch statistics, frozen vectors


@dataclasses.dataclass(frozen=True)
class Network:
    """`head(features(embed(inputs)))` of a module, with the images' normalisation in front.

    With a `key` a call is one of training: dropout is on and batch statistics are the batch's own,
    and the collections it returns have moved on. Without, it is one of evaluation.

    Attributes:
      module: of `calib_jax.models`.
      mean: of each image channel, for pixels in [0, 1]; `None` for other inputs.
      std: likewise.
      collections: of the variables that are no parameters. What is here before training begins stays
        what it is: frozen word vectors.
      pretrained: `(seed) -> params`, to begin with these instead of random ones; the seed is for what
        the pretrained network does not have.
    """

    module: nn.Module
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    collections: Collections = dataclasses.field(default_factory=dict)
    pretrained: Callable[[int], Any] | None = None

    def init(self, key: jax.Array, inputs: Inputs) -> tuple[Any, Collections]:
        """Random parameters, and collections, for inputs of these shapes."""
        variables = dict(self.module.init(key, *self._arguments(inputs)))
        return variables.pop("params"), variables

    def bind(self, collections: Collections) -> "Network":
        """The same network with other collections."""
        return dataclasses.replace(self, collections=collections)

    def __call__(
        self, params: Any, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, Collections]:
        """Logits `[batch, num_classes]` and the collections afterwards."""
        return self._run("__call__", params, self._arguments(inputs), key)

    def embed(self, params: Any, inputs: Inputs, key: jax.Array | None = None) -> jax.Array:
        """Normalised images, or embeddings of tokens."""
        ids, *others = self._arguments(inputs)
        return self._run("embed", params, (ids, *others[1:]), key)[0]

    def features(
        self, params: Any, embeddings: jax.Array, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, Collections]:
        """What the last affine map sees; `inputs` for the mask that goes with the embeddings."""
        mask = (inputs["mask"],) if "mask" in inputs else ()
        return self._run("features", params, (embeddings, *mask), key)

    def head(self, params: Any, features: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Logits of features."""
        return self._run("head", params, (features,), key)[0]

    def _arguments(self, inputs: Inputs) -> tuple[jax.Array, ...]:
        if "image" in inputs:
            images = inputs["image"]
            if self.mean is not None:
                images = (images - jnp.asarray(self.mean)) / jnp.asarray(self.std)
            return (images,)
        names = ("input_ids", "mask", "token_type_ids")
        return tuple(inputs[name] for name in names if name in inputs)

    def _run(
        self, cut: str, params: Any, arguments: tuple[jax.Array, ...], key: jax.Array | None
    ) -> tuple[jax.Array, Collections]:
        variables = {"params": params, **self.collections}
        if key is None:
            return self.module.apply(variables, *arguments, method=cut), self.collections  # type: ignore[return-value]
        moving = [name for name in self.collections if name == "batch_stats"]
        out, moved = self.module.apply(
            variables, *arguments, train=True, method=cut, rngs={"dropout": key}, mutable=moving
        )
        return out, {**self.collections, **moved}
