"""Label-aware contrastive training: a second network says which classes are easily confused."""

from typing import Any

import jax
import jax.numpy as jnp

from calib_jax import losses
from calib_jax._arrays import weighted_mean
from calib_jax.methods._base import Apply, Aux, Batch, Method, State
from calib_jax.methods._recipe import Phase, Recipe

_VIEWS = ("dropout", "tokens")


def lcl(lam: float = 0.5, tau: float = 0.3, view: str = "dropout", replaced: float = 0.1) -> Recipe:
    """Trains a network and a helper of the same kind on two views of every example.

    The loss is `lam CE(network) + (1 - lam) contrastive + lam CE(helper)` over both views, where
    `losses.label_aware_contrastive` weighs every pair by the helper's probabilities. Both networks
    receive its gradient; only the first is evaluated.

    Paper: the second view has synonyms of WordNet in it; here: `view`, as WordNet may not be at hand.
    Its code contrasts the first token's hidden state; here: what the last layer sees. Its code clips
    the gradients of the two networks apart; here: together.

    Args:
      lam: weight of the cross entropies.
      tau: temperature of the similarities.
      view: `'dropout'`, the same inputs with other units dropped; `'tokens'`, the same with some
        tokens replaced by those of another text of the batch.
      replaced: share of the tokens, for `'tokens'`.
    """
    if view not in _VIEWS:
        raise ValueError(f"view={view!r}: expected one of {', '.join(_VIEWS)}")
    if not 0 <= lam <= 1:
        raise ValueError(f"lam={lam}: expected 0 to 1")

    def loss(
        apply: Apply, params: Any, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        params, helper = params
        keys = jax.random.split(key, 5)
        second = dict(batch.inputs)
        if view == "tokens":
            second = _replace_tokens(keys[0], second, replaced)
        inputs = jax.tree.map(lambda *x: jnp.concatenate(x), dict(batch.inputs), second)
        labels, weights = jnp.tile(batch.labels, 2), jnp.tile(batch.weights, 2)

        embeddings = apply.embed(params, inputs, keys[1])
        features, model_state = apply.features(params, embeddings, inputs, keys[2])
        logits = apply.head(params, features, keys[3])
        helper_logits, _ = apply(helper, inputs, keys[4])
        each = lam * losses.cross_entropy(logits, labels)
        each += lam * losses.cross_entropy(helper_logits, labels)
        each += (1 - lam) * losses.label_aware_contrastive(
            features, labels, helper_logits, tau=tau, weights=weights
        )
        first = logits[: batch.labels.shape[0]]
        return weighted_mean(each, weights), Aux(first, model_state)

    method = Method(init=lambda info: (), loss=loss)
    return Recipe((Phase("train", method, num_networks=2),))


def _replace_tokens(
    key: jax.Array, inputs: dict[str, jax.Array], share: float
) -> dict[str, jax.Array]:
    """Some tokens of every text become what another has in their place; ends stay ends."""
    if "input_ids" not in inputs:
        raise ValueError("view='tokens': expected inputs that are text; else view='dropout'")
    ids, mask = inputs["input_ids"], inputs["mask"]
    order_key, share_key = jax.random.split(key)
    other = jax.random.permutation(order_key, ids.shape[0])
    # A token inside the text has one before it and one after it.
    after = jnp.roll(mask, -1, axis=-1).at[..., -1].set(0)
    inside = (after > 0).at[..., 0].set(False)
    chosen = jax.random.bernoulli(share_key, share, ids.shape) & inside & inside[other]
    return inputs | {"input_ids": jnp.where(chosen, ids[other], ids)}
