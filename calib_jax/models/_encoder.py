"""BERT, DistilBERT, RoBERTa, XLM-RoBERTa and ELECTRA: one encoder of texts.

They differ in the numbering of positions (RoBERTa's start after the padding id), in token types
(DistilBERT has none) and in the projection of embeddings to the hidden width (ELECTRA).

References:
  BERT: Devlin et al., 2019, arXiv:1810.04805. DistilBERT: Sanh et al., 2019, arXiv:1910.01108.
  RoBERTa: Liu et al., 2019, arXiv:1907.11692. XLM-RoBERTa: Conneau et al., 2020, arXiv:1911.02116.
  ELECTRA: Clark et al., 2020, arXiv:2003.10555.
"""

import dataclasses
from typing import Any, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calib_jax.models._transformer import (
    Dropout,
    Json,
    Transformer,
    TransformerConfig,
    dense,
    init,
    layer_norm,
)

_ROBERTAS = ("roberta", "xlm-roberta")
# DistilBERT's names of what others call by ours.
_DISTILBERT = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "seq_classif_dropout": "classifier_dropout",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """Sizes of an encoder of texts; the names are those of a Hugging Face `config.json`."""

    vocab_size: int
    max_position_embeddings: int
    type_vocab_size: int
    pad_token_id: int
    embedding_size: int
    classifier_dropout: float | None = None  # None: as hidden_dropout_prob

    @classmethod
    def from_json(cls, config: Json) -> Self:
        """Create a config from the content of a `config.json`; reject what is not implemented."""
        model_type = config.get("model_type")
        values = {k: v for k, v in config.items() if v is not None}
        if model_type == "distilbert":
            values = {_DISTILBERT.get(k, k): v for k, v in values.items()}
            values |= {"type_vocab_size": 0, "layer_norm_eps": 1e-12}
        if model_type != "electra" and "hidden_size" in values:
            values["embedding_size"] = values["hidden_size"]
        values.setdefault("pad_token_id", 1 if model_type in _ROBERTAS else 0)
        values.setdefault("type_vocab_size", 2)
        return super().from_json(values)

    def to_json(self) -> dict[str, Any]:
        """Return the content of a `config.json`."""
        values = super().to_json()
        if self.model_type != "electra":
            del values["embedding_size"]
        if self.model_type == "distilbert":
            del values["type_vocab_size"], values["layer_norm_eps"]
            if self.classifier_dropout is None:
                values["classifier_dropout"] = self.hidden_dropout_prob
            theirs = {ours: name for name, ours in _DISTILBERT.items()}
            values = {theirs.get(k, k): v for k, v in values.items()}
        return values


class Embeddings(nn.Module):
    """Sum of word, position and token-type embeddings, normalized."""

    config: EncoderConfig
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array | None, train: bool
    ) -> jax.Array:
        c = self.config

        def table(name: str, rows: int) -> nn.Embed:
            # Looked up in float32: in bfloat16 the gradients of frequent rows would lose precision.
            return nn.Embed(rows, c.embedding_size, embedding_init=init(c), name=name)

        x = table("word", c.vocab_size)(input_ids)
        x += table("position", c.max_position_embeddings)(self._positions(input_ids))
        if c.type_vocab_size:  # DistilBERT has none
            if token_type_ids is None:
                token_type_ids = jnp.zeros_like(input_ids)
            x += table("token_type", c.type_vocab_size)(token_type_ids)
        x = layer_norm(c, self.dtype, "norm")(x)
        x = Dropout(c.hidden_dropout_prob)(x, train)
        if c.embedding_size != c.hidden_size:
            x = dense(c, c.hidden_size, self.dtype, "project")(x)
        return x

    def _positions(self, input_ids: jax.Array) -> jax.Array:
        length = input_ids.shape[-1]
        if self.config.model_type not in _ROBERTAS:
            available, positions = self.config.max_position_embeddings, jnp.arange(length)
        else:  # padding has position `pad`, words count up from it
            pad = self.config.pad_token_id
            available = self.config.max_position_embeddings - pad - 1
            word = (input_ids != pad).astype(jnp.int32)
            positions = jnp.cumsum(word, axis=-1) * word + pad
        if length > available:
            raise ValueError(f"input of length {length}: this encoder has {available} positions")
        return positions


class Encoder(Transformer):
    """Encoder of texts: embeddings and layers.

    Attributes:
      config: Sizes of the encoder.
      dtype: Type of the activations; parameters stay float32.
      remat: Whether to recompute a layer's activations in the backward pass instead of storing them.
    """

    config: EncoderConfig

    def setup(self) -> None:
        super().setup()
        self.embeddings = Embeddings(self.config, self.dtype)

    def embed(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Embed token ids `[batch, length]`; the result is `[batch, length, hidden]`."""
        return self.embeddings(input_ids, token_type_ids, train)

    def __call__(
        self,
        input_ids: jax.Array,
        mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Compute hidden states `[batch, length, hidden]` of token ids `[batch, length]`."""
        return self.encode(self.embed(input_ids, token_type_ids, train), mask, train)
