"""A Flax module as methods see it: pure functions in three cuts (`methods.Apply`)."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from calib_jax.methods import Params, PyTree
from calib_jax.train._nnx import NNXModule

Inputs = Mapping[str, jax.Array]
# Variables that are not parameters: batch statistics, frozen vectors.
ModelState = dict[str, PyTree]

CUTS = ("embed", "features", "head")


class MissingCutError(ValueError):
    """A method calls a cut that the network's module does not have."""


@dataclasses.dataclass(frozen=True)
class Network:
    """`head(features(embed(inputs)))` of a module, after the normalization of images or feature vectors.

    With a `key`, a call is in training mode: dropout is on, batch statistics are those of the batch,
    and the model state that is returned is updated. Without, it is in evaluation mode.

    The module is called with the inputs `image`, or `features`, or `input_ids`, `mask` and
    `token_type_ids` as far as the data have them; docs/networks.md describes what it must have.

    Attributes:
      module: Module of `calib_jax.models` or any other Linen module whose `__call__` has an argument
        `train`, or `NNXModule` of an NNX module. Methods that mix embeddings or features also need
        its methods `embed`, `features` and `head`.
      mean: Mean of each image channel, for pixels in [0, 1], or of each feature; `None` for other inputs.
      std: Standard deviation of each image channel or feature.
      model_state: Variables that are not parameters. They replace those of `init`: frozen word
        vectors.
      pretrained: Function `(seed) -> params`, to start from these instead of random ones; the seed is
        for what the pretrained network does not have.
      revision: Commit of the Hugging Face Hub that `pretrained` is of; empty for others.

    >>> import flax.linen as nn
    >>> class Affine(nn.Module):
    ...     @nn.compact
    ...     def __call__(self, image, train=False):
    ...         return nn.Dense(3)(image.reshape(len(image), -1))
    >>> network = Network(Affine(), mean=(0.5,), std=(0.25,))
    >>> params, model_state = network.init(jax.random.key(0), {"image": jnp.zeros((1, 4, 4, 1))})
    >>> logits, _ = network(params, {"image": jnp.ones((2, 4, 4, 1))})
    >>> logits.shape
    (2, 3)
    """

    module: nn.Module | NNXModule
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    model_state: ModelState = dataclasses.field(default_factory=dict)
    pretrained: Callable[[int], Params] | None = None
    revision: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.module, NNXModule):
            return
        for name in ("__call__", *self.cuts()):
            parameters = inspect.signature(getattr(self.module, name)).parameters.values()
            if not any(p.name == "train" or p.kind is p.VAR_KEYWORD for p in parameters):
                raise ValueError(
                    f"network {self.name}: {name} has no argument train; expected "
                    f"def {name}(self, …, train=False), which turns dropout and batch statistics on"
                )

    @property
    def module_type(self) -> type:
        """Return the class of the module."""
        return self.module.module_type if isinstance(self.module, NNXModule) else type(self.module)

    @property
    def name(self) -> str:
        """Return the Hugging Face model type, or the qualified name of the module's class."""
        config = getattr(self.module, "config", None)
        cls = self.module_type
        # A class of a private file is known by the name of its package.
        names = f"{cls.__module__}.{cls.__qualname__}".split(".")
        public = ".".join(name for name in names if not name.startswith("_"))
        return str(getattr(config, "model_type", public))

    def cuts(self) -> tuple[str, ...]:
        """Return which of `embed`, `features` and `head` the module has."""
        return tuple(cut for cut in CUTS if callable(getattr(self.module_type, cut, None)))

    def init(self, key: jax.Array, inputs: Inputs) -> tuple[Params, ModelState]:
        """Return random parameters and the model state for inputs of these shapes."""
        arguments = self._arguments(inputs)
        self._check_arguments(inputs, arguments)
        variables = dict(self.module.init(key, *arguments))
        return variables.pop("params"), variables

    def bind(self, model_state: ModelState) -> "Network":
        """Return the same network with another model state."""
        return dataclasses.replace(self, model_state=model_state)

    def __call__(
        self, params: Params, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, ModelState]:
        """Return logits `[batch, num_classes]` and the model state afterwards."""
        variables = {"params": params, **self.model_state}
        output = self.module.apply(variables, *self._arguments(inputs), **self._options(key))
        return self._with_state(output, key)

    def embed(self, params: Params, inputs: Inputs, key: jax.Array | None = None) -> jax.Array:
        """Return normalized images, or embeddings of tokens or patches."""
        ids, *others = self._arguments(inputs)
        return self._apply("embed", params, (ids, *others[1:]), key)[0]

    def features(
        self, params: Params, embeddings: jax.Array, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, ModelState]:
        """Return the last layer's inputs; `inputs` for the mask that goes with the embeddings."""
        mask = (inputs["mask"],) if "mask" in inputs else ()
        return self._apply("features", params, (embeddings, *mask), key)

    def head(self, params: Params, features: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Return the logits of features."""
        return self._apply("head", params, (features,), key)[0]

    def _arguments(self, inputs: Inputs) -> tuple[jax.Array, ...]:
        for name in ("image", "features"):
            if name in inputs:
                array = inputs[name]
                if self.mean is not None:
                    array = (array - jnp.asarray(self.mean)) / jnp.asarray(self.std)
                return (array,)
        names = ("input_ids", "mask", "token_type_ids")
        return tuple(inputs[name] for name in names if name in inputs)

    def _check_arguments(self, inputs: Inputs, arguments: tuple[jax.Array, ...]) -> None:
        """Raise if the module does not take the inputs that the data have."""
        signature = inspect.signature(self.module_type.__call__)
        options = {} if isinstance(self.module, NNXModule) else {"train": False}
        try:
            signature.bind(self.module, *arguments, **options)
        except TypeError as error:
            names = [name for name in signature.parameters if name not in ("self", "train")]
            raise ValueError(
                f"network {self.name} takes {', '.join(names)}; the data have "
                f"{', '.join(inputs)} ({error})"
            ) from None

    def _apply(
        self, cut: str, params: Params, arguments: tuple[jax.Array, ...], key: jax.Array | None
    ) -> tuple[jax.Array, ModelState]:
        if cut not in self.cuts():
            raise MissingCutError(
                f"network {self.name} has no method {cut}, which this method of training calls; "
                "add it to the module (docs/networks.md) or choose another method"
            )
        variables = {"params": params, **self.model_state}
        output = self.module.apply(variables, *arguments, method=cut, **self._options(key))
        return self._with_state(output, key)

    def _options(self, key: jax.Array | None) -> dict[str, PyTree]:
        """Return the options of `module.apply` for training (with a key) or evaluation."""
        if key is None:
            return {}
        return {"train": True, "rngs": {"dropout": key}, "mutable": list(self.model_state)}

    def _with_state(self, output: PyTree, key: jax.Array | None) -> tuple[jax.Array, ModelState]:
        """Return the output of `module.apply` and the model state after it."""
        if key is None:
            return output, self.model_state
        output, updated = output
        return output, {**self.model_state, **updated}
