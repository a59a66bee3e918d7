"""Names and layouts of an encoder's parameters in PyTorch `transformers`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.models._encoder import Encoder
from calib_jax.models._text_classifier import TextClassifier
from calib_jax.models._vit import VisionEncoder, ViT

HubModule = Encoder | TextClassifier | VisionEncoder | ViT

# Our module paths inside the encoder; `{}` is the number of the layer.
_BERT = {
    "embeddings/word": "embeddings.word_embeddings",
    "embeddings/position": "embeddings.position_embeddings",
    "embeddings/token_type": "embeddings.token_type_embeddings",
    "embeddings/norm": "embeddings.LayerNorm",
    "embeddings/project": "embeddings_project",
    "layers_{}/qkv": "encoder.layer.{}.attention.self",
    "layers_{}/out": "encoder.layer.{}.attention.output.dense",
    "layers_{}/attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "layers_{}/up": "encoder.layer.{}.intermediate.dense",
    "layers_{}/down": "encoder.layer.{}.output.dense",
    "layers_{}/norm": "encoder.layer.{}.output.LayerNorm",
}
_DISTILBERT = {
    "embeddings/word": "embeddings.word_embeddings",
    "embeddings/position": "embeddings.position_embeddings",
    "embeddings/norm": "embeddings.LayerNorm",
    "layers_{}/qkv": "transformer.layer.{}.attention",
    "layers_{}/out": "transformer.layer.{}.attention.out_lin",
    "layers_{}/attention_norm": "transformer.layer.{}.sa_layer_norm",
    "layers_{}/up": "transformer.layer.{}.ffn.lin1",
    "layers_{}/down": "transformer.layer.{}.ffn.lin2",
    "layers_{}/norm": "transformer.layer.{}.output_layer_norm",
}
_VIT = {
    "embeddings/cls": "embeddings.cls_token",
    "embeddings/position": "embeddings.position_embeddings",
    "embeddings/patch": "embeddings.patch_embeddings.projection",
    "layers_{}/attention_norm": "encoder.layer.{}.layernorm_before",
    "layers_{}/qkv": "encoder.layer.{}.attention.attention",
    "layers_{}/out": "encoder.layer.{}.attention.output.dense",
    "layers_{}/norm": "encoder.layer.{}.layernorm_after",
    "layers_{}/up": "encoder.layer.{}.intermediate.dense",
    "layers_{}/down": "encoder.layer.{}.output.dense",
    "norm": "layernorm",
}


class Architecture(NamedTuple):
    """An architecture in PyTorch.

    Attributes:
      class_name: What the names of its classes begin with.
      prefix: Name of the encoder inside a classifier.
      names: Map from our module paths inside the encoder to PyTorch's.
      qkv: Names of the projections to queries, keys and values.
    """

    class_name: str
    prefix: str
    names: dict[str, str] = _BERT
    qkv: tuple[str, str, str] = ("query", "key", "value")


ARCHITECTURES = {
    "bert": Architecture("Bert", "bert"),
    "roberta": Architecture("Roberta", "roberta"),
    "xlm-roberta": Architecture("XLMRoberta", "roberta"),
    "electra": Architecture("Electra", "electra"),
    "distilbert": Architecture(
        "DistilBert", "distilbert", _DISTILBERT, ("q_lin", "k_lin", "v_lin")
    ),
    "vit": Architecture("ViT", "vit", _VIT),
}
# Layers of heads that are not in `classifier`.
POOLERS = ("pooler.", "pre_classifier.", "sequence_summary.")
# Name of the layer before the last; of multiple choice by architecture.
_POOL = {
    "pooler": "pooler.dense",
    "dense_tanh": "classifier.dense",
    "dense_gelu": "classifier.dense",
    "dense_relu": "pre_classifier",
}
_CHOICE_POOL = {"electra": "sequence_summary.summary", "distilbert": "pre_classifier"}


class TorchNames:
    """PyTorch's tensors of the parameters of a module.

    Args:
      module: Encoder or classifier.
    """

    def __init__(self, module: HubModule) -> None:
        model_type = module.config.model_type
        architecture = ARCHITECTURES[model_type]
        self._qkv = architecture.qkv
        if isinstance(module, Encoder | VisionEncoder):
            self._names = architecture.names
            return
        self._names = {f"encoder/{ours}": name for ours, name in architecture.names.items()}
        self._names["classifier"] = "classifier"
        if isinstance(module, TextClassifier) and module.head_kind != "linear":
            if module.head_kind == "multiple_choice":
                self._names["pool"] = _CHOICE_POOL.get(model_type, "pooler.dense")
            else:
                self._names["pool"] = _POOL[module.head_kind]
            if self._names["pool"] == "classifier.dense":
                self._names["classifier"] = "classifier.out_proj"

    def to_torch(self, key: str, value: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Return PyTorch's tensors of one parameter, by its path, with their names."""
        if self._pattern(key) in self._names:  # a parameter of its parent, not of a layer
            return [(self._name(key), value)]
        owner, leaf = key.rsplit("/", 1)
        name = self._name(owner)
        suffix = "bias" if leaf == "bias" else "weight"
        if (
            owner.endswith("/qkv") or owner == "qkv"
        ):  # [hidden, 3, heads, width] or [3, heads, width]
            flat = [x.reshape(*x.shape[:-3], -1) for x in np.split(value, 3, axis=-3)]
            return [
                (f"{name}.{projection}.{suffix}", x.T)
                for projection, x in zip(self._qkv, flat, strict=True)
            ]
        if leaf != "kernel":
            return [(f"{name}.{suffix}", value)]
        if value.ndim == 4:  # [height, width, in, out]
            return [(f"{name}.{suffix}", value.transpose(3, 2, 0, 1))]
        return [(f"{name}.{suffix}", value.reshape(-1, value.shape[-1]).T)]

    def from_torch(self, key: str, tensors: list[np.ndarray], shape: tuple[int, ...]) -> jax.Array:
        """Invert `to_torch`."""
        if len(tensors) == 3:
            value = np.stack([t.T for t in tensors], axis=-2)  # [hidden, 3, hidden] or [3, hidden]
        elif not key.endswith("/kernel"):
            value = tensors[0]
        elif len(shape) == 4:
            value = tensors[0].transpose(2, 3, 1, 0)
        else:
            value = tensors[0].T
        return jnp.asarray(value.reshape(shape))

    def _name(self, path: str) -> str:
        number = next(
            (p.removeprefix("layers_") for p in path.split("/") if p.startswith("layers_")), ""
        )
        return self._names[self._pattern(path)].format(number)

    def _pattern(self, path: str) -> str:
        """Return the path with `{}` for the number of the layer."""
        return "/".join("layers_{}" if p.startswith("layers_") else p for p in path.split("/"))
