"""Mixup of random pairs, with any objective."""

import jax
import jax.numpy as jnp

from calib_jax import targets
from calib_jax._hints import check_choice
from calib_jax.methods._base import Apply, Aux, Batch, Method, Objective, Params, State
from calib_jax.methods._objectives import as_objective
from calib_jax.methods._supervised import batch_loss, supervised


def mixup(
    alpha: float = 0.2,
    place: str = "inputs",
    lam: str = "step",
    objective: Objective | str = "cross_entropy",
) -> Method:
    """Return training on `lam a + (1 - lam) b` of random pairs of a batch, labels mixed alike.

    `lam ~ Beta(alpha, alpha)`. Only mixed examples are trained on, so the training accuracy in the log is
    that of mixed examples against the first one's label.

    Args:
      alpha: Parameter of the Beta distribution.
      place: `'inputs'` to mix images or token embeddings, `'features'` to mix the last layer's inputs.
      lam: One mixing weight per `'step'`, or one per `'example'`.
      objective: Objective that takes soft labels.

    References:
      Zhang, Cisse, Dauphin and Lopez-Paz (2018), arXiv:1710.09412 (inputs); Verma, Lamb, Beckham,
      Najafi, Mitliagkas, Courville, Lopez-Paz and Bengio (2019), arXiv:1806.05236 (features).

    >>> methods.mixup(objective="adafocal").init(methods.Info(10, 2)).gamma.shape
    (15,)
    """
    check_choice("place", place, ("inputs", "features"))
    check_choice("lam", lam, ("step", "example"))
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Params, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        keys = jax.random.split(key, 5)
        shape = () if lam == "step" else batch.labels.shape
        ratio = jax.random.beta(keys[0], alpha, alpha, shape)
        partner = jax.random.permutation(keys[1], batch.labels.shape[0])
        inputs = dict(batch.inputs)
        x = apply.embed(params, inputs, keys[2])
        if place == "inputs":
            x = targets.mix(x, x[partner], ratio)
            if "mask" in inputs:  # a mixed text is as long as the longer of the two
                inputs["mask"] = jnp.maximum(inputs["mask"], inputs["mask"][partner])
        x, model_state = apply.features(params, x, inputs, keys[3])
        if place == "features":
            x = targets.mix(x, x[partner], ratio)
        logits = apply.head(params, x, keys[4])
        one_hot = targets.one_hot(batch.labels, logits.shape[-1])
        mixed = targets.mix(one_hot, one_hot[partner], ratio)
        value = batch_loss(inner, logits, mixed, state, batch.weights)
        return value, Aux(logits, model_state)

    return supervised(inner)._replace(loss=loss)
