"""Classifiers on top of an encoder: embed, features and head, each of which can be mixed."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calib_jax._hints import expected_one_of
from calib_jax.models._encoder import Encoder, EncoderConfig
from calib_jax.models._transformer import Dropout, gelu, init

# The layers of each head between the first token's hidden state and the last affine map.
HEADS = {
    "linear": "none: the affine map applies to the hidden state, no dropout",
    "pooler": "dense, tanh; dropout before the affine map (BERT's default)",
    "dense_tanh": "dropout, dense, tanh; dropout before the affine map (RoBERTa's default)",
    "dense_gelu": "dropout, dense, gelu; dropout before the affine map (ELECTRA's default)",
    "dense_relu": "dense, relu; dropout before the affine map (DistilBERT's default)",
    "multiple_choice": "dense, tanh (or as in the default), no dropout; one logit per choice",
}
DEFAULT_HEAD = {
    "bert": "pooler",
    "roberta": "dense_tanh",
    "xlm-roberta": "dense_tanh",
    "electra": "dense_gelu",
    "distilbert": "dense_relu",
}
_ACTIVATION = {"dense_gelu": gelu, "dense_relu": nn.relu}  # of other heads: tanh


class TextClassifier(nn.Module):
    """Text classifier: `head(features(embed(input_ids), mask))`.

    With every head the features are the input of the last affine map, so mixing features and mixing
    logits are equivalent if there is no dropout in between.

    Attributes:
      config: Sizes of the encoder.
      num_classes: Number of logits; unused with choices, whose number is that of the input.
      head_kind: Name of the head, one of `HEADS`.
      dtype: Type of the activations; logits are float32.
      remat: Whether to recompute activations, as in `Encoder`.
    """

    config: EncoderConfig
    num_classes: int
    head_kind: str = "linear"
    dtype: DTypeLike = jnp.float32
    remat: bool = False

    def setup(self) -> None:
        if self.head_kind not in HEADS:
            raise ValueError(f"head={self.head_kind!r}: {expected_one_of(self.head_kind, HEADS)}")
        self.encoder = Encoder(self.config, self.dtype, self.remat)
        if self.head_kind != "linear":
            self.pool = nn.Dense(
                self.config.hidden_size, kernel_init=init(self.config), dtype=self.dtype
            )
        outputs = 1 if self.head_kind == "multiple_choice" else self.num_classes
        self.classifier = nn.Dense(outputs, kernel_init=init(self.config), dtype=jnp.float32)
        rate = self.config.classifier_dropout
        if self.head_kind in ("linear", "multiple_choice"):
            rate = 0.0
        elif rate is None:
            rate = self.config.hidden_dropout_prob
        # Two modules: `features` and `head` draw different masks if applied separately with one key.
        self.pool_dropout, self.head_dropout = Dropout(rate), Dropout(rate)

    def embed(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Embed token ids `[batch, (choices,) length]` to `[batch, (choices,) length, hidden]`."""
        flat_types = None if token_type_ids is None else _flat(token_type_ids, 1)
        flat = self.encoder.embed(_flat(input_ids, 1), flat_types, train)
        return flat.reshape(*input_ids.shape, flat.shape[-1])

    def features(self, embeddings: jax.Array, mask: jax.Array, train: bool = False) -> jax.Array:
        """Compute task features `[batch, (choices,) hidden]` of embeddings; `mask` is 0 for padding."""
        hidden = self.encoder.encode(_flat(embeddings, 2), _flat(mask, 1), train, first_only=True)
        first = hidden[:, 0]
        if self.head_kind in ("dense_tanh", "dense_gelu"):
            first = self.pool_dropout(first, train)
        if self.head_kind != "linear":
            choice = self.head_kind == "multiple_choice"
            kind = DEFAULT_HEAD[self.config.model_type] if choice else self.head_kind
            first = _ACTIVATION.get(kind, jnp.tanh)(self.pool(first))
        return first.reshape(*mask.shape[:-1], first.shape[-1])

    def head(self, features: jax.Array, train: bool = False) -> jax.Array:
        """Compute float32 logits `[batch, num_classes]` (or `[batch, choices]`) of task features."""
        logits = self.classifier(self.head_dropout(features, train).astype(jnp.float32))
        return logits[..., 0] if self.head_kind == "multiple_choice" else logits

    def __call__(
        self,
        input_ids: jax.Array,
        mask: jax.Array,
        token_type_ids: jax.Array | None = None,
        train: bool = False,
    ) -> jax.Array:
        """Compute logits of token ids `[batch, (choices,) length]`."""
        embeddings = self.embed(input_ids, token_type_ids, train)
        return self.head(self.features(embeddings, mask, train), train)


def _flat(x: jax.Array, trailing: int) -> jax.Array:
    """Flatten all but the last `trailing` axes into one."""
    return x.reshape(-1, *x.shape[x.ndim - trailing :])
