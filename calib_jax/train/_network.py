"""A Flax module as methods see it: pure functions in three cuts (`methods.Apply`)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

Inputs = Mapping[str, jax.Array]
ModelState = dict[str, Any]  # variables that are not parameters: batch statistics, frozen vectors


@dataclasses.dataclass(frozen=True)
class Network:
    """`head(features(embed(inputs)))` of a module, after the normalization of images.

    With a `key`, a call is in training mode: dropout is on, batch statistics are those of the batch,
    and the model state that is returned is updated. Without, it is in evaluation mode.

    Attributes:
      module: Module of `calib_jax.models`.
      mean: Mean of each image channel, for pixels in [0, 1]; `None` for other inputs.
      std: Standard deviation of each image channel.
      model_state: Variables that are not parameters. Those given before training are never changed:
        frozen word vectors.
      pretrained: Function `(seed) -> params`, to start from these instead of random ones; the seed is
        for what the pretrained network does not have.
    """

    module: nn.Module
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    model_state: ModelState = dataclasses.field(default_factory=dict)
    pretrained: Callable[[int], Any] | None = None

    def init(self, key: jax.Array, inputs: Inputs) -> tuple[Any, ModelState]:
        """Return random parameters and the model state for inputs of these shapes."""
        variables = dict(self.module.init(key, *self._arguments(inputs)))
        return variables.pop("params"), variables

    def bind(self, model_state: ModelState) -> "Network":
        """Return the same network with another model state."""
        return dataclasses.replace(self, model_state=model_state)

    def __call__(
        self, params: Any, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, ModelState]:
        """Return logits `[batch, num_classes]` and the model state afterwards."""
        variables = {"params": params, **self.model_state}
        options = self._options(key)
        return self._with_state(
            self.module.apply(variables, *self._arguments(inputs), **options), key
        )

    def embed(self, params: Any, inputs: Inputs, key: jax.Array | None = None) -> jax.Array:
        """Return normalized images, or embeddings of tokens."""
        ids, *others = self._arguments(inputs)
        return self._apply("embed", params, (ids, *others[1:]), key)[0]

    def features(
        self, params: Any, embeddings: jax.Array, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, ModelState]:
        """Return the last layer's inputs; `inputs` for the mask that goes with the embeddings."""
        mask = (inputs["mask"],) if "mask" in inputs else ()
        return self._apply("features", params, (embeddings, *mask), key)

    def head(self, params: Any, features: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Return the logits of features."""
        return self._apply("head", params, (features,), key)[0]

    def _arguments(self, inputs: Inputs) -> tuple[jax.Array, ...]:
        if "image" in inputs:
            images = inputs["image"]
            if self.mean is not None:
                images = (images - jnp.asarray(self.mean)) / jnp.asarray(self.std)
            return (images,)
        names = ("input_ids", "mask", "token_type_ids")
        return tuple(inputs[name] for name in names if name in inputs)

    def _apply(
        self, cut: str, params: Any, arguments: tuple[jax.Array, ...], key: jax.Array | None
    ) -> tuple[jax.Array, ModelState]:
        variables = {"params": params, **self.model_state}
        applied = self.module.apply(variables, *arguments, method=cut, **self._options(key))
        return self._with_state(applied, key)

    def _options(self, key: jax.Array | None) -> dict[str, Any]:
        """Return the options of `module.apply` for training (with a key) or evaluation."""
        if key is None:
            return {}
        mutable = [name for name in self.model_state if name == "batch_stats"]
        return {"train": True, "rngs": {"dropout": key}, "mutable": mutable}

    def _with_state(self, applied: Any, key: jax.Array | None) -> tuple[jax.Array, ModelState]:
        """Return the output of `module.apply` and the model state after it."""
        if key is None:
            return applied, self.model_state
        output, updated = applied
        return output, {**self.model_state, **updated}
