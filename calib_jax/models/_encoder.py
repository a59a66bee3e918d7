"""BERT, RoBERTa and ELECTRA: one post-layer-norm transformer encoder.

The three differ in the numbering of positions (RoBERTa's start after the padding id) and in the
projection of embeddings to the hidden width (ELECTRA). Parameters are float32, activations `dtype`;
layer-norm statistics and the attention softmax are always float32.

References:
  BERT: Devlin et al., 2019, arXiv:1810.04805. RoBERTa: Liu et al., 2019, arXiv:1907.11692.
  ELECTRA: Clark et al., 2020, arXiv:2003.10555.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

MODEL_TYPES = ("bert", "roberta", "electra")
# Values in a `config.json` of options that these modules implement in one form only.
_IMPLEMENTED = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "summary_type": "first",
    "summary_activation": "gelu",
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Sizes of an encoder; the names are those of a Hugging Face `config.json`."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    pad_token_id: int
    embedding_size: int
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # None: as hidden_dropout_prob
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size}: expected a multiple of "
                f"num_attention_heads={self.num_attention_heads}"
            )

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "EncoderConfig":
        """Create a config from the content of a `config.json`; reject what is not implemented."""
        if config.get("model_type") not in MODEL_TYPES:
            raise ValueError(
                f"model_type={config.get('model_type')!r}: expected one of {', '.join(MODEL_TYPES)}"
            )
        for key, expected in _IMPLEMENTED.items():
            if config.get(key, expected) != expected:
                raise ValueError(f"{key}={config[key]!r}: only {expected!r} is implemented")
        known = {f.name for f in dataclasses.fields(cls)}
        values = {k: v for k, v in config.items() if k in known and v is not None}
        if config["model_type"] != "electra" and "hidden_size" in config:
            values["embedding_size"] = config["hidden_size"]
        values.setdefault("pad_token_id", 1 if config["model_type"] == "roberta" else 0)
        values.setdefault("type_vocab_size", 2)
        missing = known - values.keys() - {f.name for f in dataclasses.fields(cls) if _optional(f)}
        if missing:
            raise ValueError(f"config.json lacks {', '.join(sorted(missing))}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the content of a `config.json`."""
        values = dataclasses.asdict(self)
        if self.model_type != "electra":
            del values["embedding_size"]
        return values | {"hidden_act": "gelu"}


def _optional(field: dataclasses.Field) -> bool:
    return field.default is not dataclasses.MISSING


def gelu(x: jax.Array) -> jax.Array:
    """Compute the exact GELU with erf: `jax.nn.gelu` uses erfc, three times as slow on the CPU.

    References:
      Hendrycks and Gimpel, 2016, arXiv:1606.08415.
    """
    y = x.astype(jnp.float32)  # 1 + erf cancels in bfloat16
    return (0.5 * y * (1 + jax.lax.erf(y * 0.5**0.5))).astype(x.dtype)


class Dropout(nn.Module):
    """Dropout with 16 random bits per entry; the rate is exact to 2⁻¹⁷."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        if not train or self.rate == 0:
            return x
        # Two entries share a word: for 16-bit numbers JAX would draw 32 bits and drop half.
        *leading, last = x.shape
        words = jax.random.bits(self.make_rng("dropout"), (*leading, (last + 1) // 2), jnp.uint32)
        bits = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(*leading, -1)[..., :last]
        keep = bits >= jnp.uint16(round(self.rate * 2**16))
        # Scaled in float32: 1 / (1 - rate) rounded to bfloat16 would shift the mean.
        scaled = x.astype(jnp.float32) * (1 / (1 - self.rate))
        return jnp.where(keep, scaled, 0).astype(x.dtype)


class Embeddings(nn.Module):
    """Sum of word, position and token type embeddings, normalized."""

    config: EncoderConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array | None, train: bool
    ) -> jax.Array:
        c = self.config

        def table(name: str, rows: int) -> nn.Embed:
            # Looked up in float32: in bfloat16 the gradients of frequent rows would lose precision.
            return nn.Embed(rows, c.embedding_size, embedding_init=_init(c), name=name)

        if token_type_ids is None:
            token_type_ids = jnp.zeros_like(input_ids)
        x = (
            table("word", c.vocab_size)(input_ids)
            + table("position", c.max_position_embeddings)(self._positions(input_ids))
            + table("token_type", c.type_vocab_size)(token_type_ids)
        )
        x = _layer_norm(c, self.dtype, "norm")(x)
        x = Dropout(c.hidden_dropout_prob)(x, train)
        if c.embedding_size != c.hidden_size:
            x = _dense(c, c.hidden_size, self.dtype, "project")(x)
        return x

    def _positions(self, input_ids: jax.Array) -> jax.Array:
        length = input_ids.shape[-1]
        if self.config.model_type != "roberta":
            available, positions = self.config.max_position_embeddings, jnp.arange(length)
        else:  # padding has position `pad`, words count up from it
            pad = self.config.pad_token_id
            available = self.config.max_position_embeddings - pad - 1
            word = (input_ids != pad).astype(jnp.int32)
            positions = jnp.cumsum(word, axis=-1) * word + pad
        if length > available:
            raise ValueError(f"input of length {length}: this encoder has {available} positions")
        return positions


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and layer norm.

    With `first_only` the result is the hidden state of the first token, `[batch, 1, hidden]`.
    """

    config: EncoderConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array, train: bool, first_only: bool = False
    ) -> jax.Array:
        c = self.config
        heads, width = c.num_attention_heads, c.hidden_size // c.num_attention_heads
        # One matrix product for queries, keys and values.
        qkv = nn.DenseGeneral(
            (3, heads, width), kernel_init=_init(c), dtype=self.dtype, name="qkv"
        )(x)
        q, k, v = jnp.unstack(qkv, axis=-3)
        if first_only:
            x, q = x[:, :1], q[:, :1]
        attended = self._attend(q, k, v, mask, train)
        attended = nn.DenseGeneral(
            c.hidden_size, axis=(-2, -1), kernel_init=_init(c), dtype=self.dtype, name="out"
        )(attended)
        attended = Dropout(c.hidden_dropout_prob)(attended, train)
        x = _layer_norm(c, self.dtype, "attention_norm")(x + attended)

        hidden = gelu(_dense(c, c.intermediate_size, self.dtype, "up")(x))
        hidden = _dense(c, c.hidden_size, self.dtype, "down")(hidden)
        hidden = Dropout(c.hidden_dropout_prob)(hidden, train)
        return _layer_norm(c, self.dtype, "norm")(x + hidden)

    def _attend(
        self, q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, train: bool
    ) -> jax.Array:
        mask = mask[:, None, None, :].astype(bool)
        rate = self.config.attention_probs_dropout_prob
        if not train or rate == 0:
            return jax.nn.dot_product_attention(q, k, v, mask=mask)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        scores = jnp.where(mask, scores * q.shape[-1] ** -0.5, jnp.finfo(jnp.float32).min)
        probs = jax.nn.softmax(scores).astype(v.dtype)
        probs = Dropout(rate)(probs, train)
        return jnp.einsum("bhqk,bkhd->bqhd", probs, v)


class Encoder(nn.Module):
    """Embeddings and layers.

    Attributes:
      config: Sizes of the encoder.
      dtype: Type of the activations; parameters stay float32.
      remat: Whether to recompute a layer's activations in the backward pass instead of storing them.
    """

    config: EncoderConfig
    dtype: Any = jnp.float32
    remat: bool = False

    def setup(self) -> None:
        layer = nn.remat(Layer, static_argnums=(3, 4)) if self.remat else Layer
        self.embeddings = Embeddings(self.config, self.dtype)
        self.layers = [layer(self.config, self.dtype) for _ in range(self.config.num_hidden_layers)]

    def embed(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Embed token ids `[batch, length]`; the result is `[batch, length, hidden]`."""
        return self.embeddings(input_ids, token_type_ids, train)

    def encode(
        self, embeddings: jax.Array, mask: jax.Array, train: bool = False, first_only: bool = False
    ) -> jax.Array:
        """Compute hidden states `[batch, length, hidden]` of embeddings.

        Args:
          embeddings: Result of `embed`, `[batch, length, hidden]`.
          mask: 1 for words, 0 for padding, `[batch, length]`.
          train: Whether dropout is applied.
          first_only: Whether the last layer computes only the first token, `[batch, 1, hidden]`: all
            that a classifier needs, and an eighth less work with six layers.
        """
        x = embeddings.astype(self.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, train, first_only and i + 1 == len(self.layers))
        return x

    def __call__(
        self,
        input_ids: jax.Array,
        mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Compute hidden states `[batch, length, hidden]` of token ids `[batch, length]`."""
        return self.encode(self.embed(input_ids, token_type_ids, train), mask, train)


def _init(config: EncoderConfig) -> nn.initializers.Initializer:
    return nn.initializers.normal(config.initializer_range)


def _dense(config: EncoderConfig, features: int, dtype: Any, name: str) -> nn.Dense:
    return nn.Dense(features, kernel_init=_init(config), dtype=dtype, name=name)


def _layer_norm(config: EncoderConfig, dtype: Any, name: str) -> nn.LayerNorm:
    return nn.LayerNorm(config.layer_norm_eps, dtype=dtype, name=name)
