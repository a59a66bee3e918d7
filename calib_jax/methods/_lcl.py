"""Label-aware contrastive training: a helper network weights pairs by how confusable they are."""

import jax
import jax.numpy as jnp

from calib_jax import losses
from calib_jax._arrays import weighted_mean
from calib_jax._hints import check_choice
from calib_jax.methods._base import Apply, Aux, Batch, Method, Params, State
from calib_jax.methods._recipe import Phase, Recipe


def lcl(lam: float = 0.5, tau: float = 0.3, view: str = "dropout", replaced: float = 0.1) -> Recipe:
    """Return training of a network and a helper of the same kind on two views of every example.

    The loss is `lam CE(network) + (1 - lam) contrastive + lam CE(helper)` over both views, where
    `losses.label_aware_contrastive` weights every pair by the helper's probabilities. Both networks
    receive its gradient; only the first is evaluated.

    Paper: the second view has synonyms of WordNet in it; here: `view`, as WordNet may not be available.
    Its code contrasts the first token's hidden state; here: the last layer's inputs. Its code clips
    the gradients of the two networks separately; here: together.

    Args:
      lam: Weight of the cross entropies.
      tau: Temperature of the similarities.
      view: `'dropout'`, the same inputs with other units dropped; `'tokens'`, the same with some
        tokens replaced by those of another text of the batch.
      replaced: Share of the tokens to replace, for `'tokens'`.

    References:
      Suresh and Ong (2021), arXiv:2109.05427.

    >>> methods.lcl().phases[0].num_networks
    2
    """
    check_choice("view", view, ("dropout", "tokens"))
    if not 0 <= lam <= 1:
        raise ValueError(f"lam={lam}: expected 0 to 1")

    def loss(
        apply: Apply, params: tuple[Params, Params], state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        main, helper = params
        keys = jax.random.split(key, 5)
        first_view = second_view = dict(batch.inputs)
        if view == "tokens":
            second_view = _replace_tokens(keys[0], first_view, replaced)
        inputs = jax.tree.map(lambda *x: jnp.concatenate(x), first_view, second_view)
        labels, weights = jnp.tile(batch.labels, 2), jnp.tile(batch.weights, 2)

        embeddings = apply.embed(main, inputs, keys[1])
        features, model_state = apply.features(main, embeddings, inputs, keys[2])
        logits = apply.head(main, features, keys[3])
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
    """Replace some tokens of every text by another text's at the same positions, except at the ends."""
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
