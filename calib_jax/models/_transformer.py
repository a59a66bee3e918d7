"""The transformer that all encoders share: its sizes, its layers, dropout and GELU.

Texts are normalized after each residual sum, images before each layer. Parameters are float32,
activations `dtype`; layer-norm statistics and the attention softmax are always float32.

References:
  Vaswani et al., 2017, arXiv:1706.03762.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calib_jax._hints import expected_one_of

Json = Mapping[str, Any]  # the content of a JSON file
MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "vit")

# Values in a `config.json` of options that these modules implement in one form only.
_IMPLEMENTED = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "sinusoidal_pos_embds": False,
    "is_decoder": False,
    "summary_type": "first",
    "summary_activation": "gelu",
    "qkv_bias": True,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes of a transformer's layers; the names are those of a Hugging Face `config.json`.

    Attributes:
      norm_first: Whether layer norms come before attention and feed-forward, not after their sums.
    """

    norm_first: ClassVar[bool] = False

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size}: expected a multiple of "
                f"num_attention_heads={self.num_attention_heads}"
            )

    @classmethod
    def from_json(cls, config: Json) -> Self:
        """Create a config from the content of a `config.json`; reject what is not implemented."""
        model_type = config.get("model_type")
        if model_type not in MODEL_TYPES:
            expected = expected_one_of(str(model_type), MODEL_TYPES)
            raise ValueError(f"model_type={model_type!r}: {expected}")
        for key, only in _IMPLEMENTED.items():
            if config.get(key, only) != only:
                raise ValueError(f"{key}={config[key]!r}: only {only!r} is implemented")
        fields = dataclasses.fields(cls)
        known = {f.name for f in fields}
        values = {k: v for k, v in config.items() if k in known and v is not None}
        required = {f.name for f in fields if f.default is dataclasses.MISSING}
        if missing := required - values.keys():
            raise ValueError(f"config.json lacks {', '.join(sorted(missing))}")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the content of a `config.json`."""
        return dataclasses.asdict(self) | {"hidden_act": "gelu"}


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


class Layer(nn.Module):
    """Self-attention and feed-forward, each with a layer norm and a residual sum.

    With `first_only` the result is the hidden state of the first token, `[batch, 1, hidden]`.
    """

    config: TransformerConfig
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: jax.Array | None, train: bool, first_only: bool = False
    ) -> jax.Array:
        attention_norm = layer_norm(self.config, self.dtype, "attention_norm")
        norm = layer_norm(self.config, self.dtype, "norm")
        kept = x[:, :1] if first_only else x
        if self.config.norm_first:
            x = kept + self._attention(attention_norm(x), mask, train, first_only)
            return x + self._feed_forward(norm(x), train)
        x = attention_norm(kept + self._attention(x, mask, train, first_only))
        return norm(x + self._feed_forward(x, train))

    def _attention(
        self, x: jax.Array, mask: jax.Array | None, train: bool, first_only: bool
    ) -> jax.Array:
        c = self.config
        heads, width = c.num_attention_heads, c.hidden_size // c.num_attention_heads
        # One matrix product for queries, keys and values.
        qkv = nn.DenseGeneral((3, heads, width), kernel_init=init(c), dtype=self.dtype, name="qkv")(
            x
        )
        q, k, v = jnp.unstack(qkv, axis=-3)
        if first_only:
            q = q[:, :1]
        attended = nn.DenseGeneral(
            c.hidden_size, axis=(-2, -1), kernel_init=init(c), dtype=self.dtype, name="out"
        )(self._attend(q, k, v, mask, train))
        return Dropout(c.hidden_dropout_prob)(attended, train)

    def _attend(
        self, q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None, train: bool
    ) -> jax.Array:
        if mask is not None:
            mask = mask[:, None, None, :].astype(bool)
        rate = self.config.attention_probs_dropout_prob
        if not train or rate == 0:
            return jax.nn.dot_product_attention(q, k, v, mask=mask)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        scores *= q.shape[-1] ** -0.5
        if mask is not None:
            scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
        probs = jax.nn.softmax(scores).astype(v.dtype)
        probs = Dropout(rate)(probs, train)
        return jnp.einsum("bhqk,bkhd->bqhd", probs, v)

    def _feed_forward(self, x: jax.Array, train: bool) -> jax.Array:
        c = self.config
        hidden = gelu(dense(c, c.intermediate_size, self.dtype, "up")(x))
        hidden = dense(c, c.hidden_size, self.dtype, "down")(hidden)
        return Dropout(c.hidden_dropout_prob)(hidden, train)


class Transformer(nn.Module):
    """Base class of encoders: layers, to which a subclass adds `embed`.

    Attributes:
      config: Sizes of the encoder.
      dtype: Type of the activations; parameters stay float32.
      remat: Whether to recompute a layer's activations in the backward pass instead of storing them.
    """

    config: TransformerConfig
    dtype: DTypeLike = jnp.float32
    remat: bool = False

    def setup(self) -> None:
        layer = nn.remat(Layer, static_argnums=(3, 4)) if self.remat else Layer
        self.layers = [layer(self.config, self.dtype) for _ in range(self.config.num_hidden_layers)]
        if self.config.norm_first:
            self.norm = layer_norm(self.config, self.dtype)

    def encode(
        self,
        embeddings: jax.Array,
        mask: jax.Array | None = None,
        train: bool = False,
        first_only: bool = False,
    ) -> jax.Array:
        """Compute hidden states `[batch, length, hidden]` of embeddings.

        Args:
          embeddings: Result of `embed`, `[batch, length, hidden]`.
          mask: 1 for words, 0 for padding, `[batch, length]`; `None` if there is no padding.
          train: Whether dropout is applied.
          first_only: Whether the last layer computes only the first token, `[batch, 1, hidden]`: all
            that a classifier needs, and an eighth less work with six layers.
        """
        x = embeddings.astype(self.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, mask, train, first_only and i + 1 == len(self.layers))
        return self.norm(x) if self.config.norm_first else x


def init(config: TransformerConfig) -> nn.initializers.Initializer:
    """Return the initializer of all weights."""
    return nn.initializers.normal(config.initializer_range)


def dense(
    config: TransformerConfig, features: int, dtype: DTypeLike, name: str | None = None
) -> nn.Dense:
    """Return an affine layer."""
    return nn.Dense(features, kernel_init=init(config), dtype=dtype, name=name)


def layer_norm(
    config: TransformerConfig, dtype: DTypeLike, name: str | None = None
) -> nn.LayerNorm:
    """Return a layer norm."""
    return nn.LayerNorm(config.layer_norm_eps, dtype=dtype, name=name)
