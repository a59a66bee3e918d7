"""Fine-tuning on a few new examples, mixed with old ones."""

import jax
import numpy as np

from calib_jax import losses, targets
from calib_jax._arrays import weighted_mean
from calib_jax.methods._base import Apply, Aux, Batch, Info, Method, Params, State
from calib_jax.methods._recipe import Groups, Phase


def fine_tuning(num_new: int, num_old: int, alpha: float = 5.0, mixed: float = 0.5) -> Phase:
    """Return training on new examples and on their mixtures with old ones, redrawn every epoch.

    The training set has the new examples first. A step has a batch of each kind, and an epoch is a
    pass over the new ones. With one `lam ~ Beta(alpha, alpha)` per step the loss is

        (1 - mixed) CE(z, y) + mixed CE(lam z + (1 - lam) z_old, lam y + (1 - lam) y_old)

    Features are mixed as logits: the last layer is an affine map, for which both are the same. Paper:
    does not weight the two losses; here they have equal weights.

    Args:
      num_new: Number of examples to adapt to.
      num_old: Number of examples of the set that the network was trained on.
      alpha: Parameter of the Beta distribution.
      mixed: Weight of the mixtures; 0 for plain fine-tuning.

    >>> methods.fine_tuning(num_new=10, num_old=20).name
    'fine_tune'
    """

    def loss(
        apply: Apply, params: Params, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        network_key, lam_key, pair_key = jax.random.split(key, 3)
        logits, model_state = apply(params, batch.inputs, network_key)
        half = logits.shape[0] // 2
        # Texts of a step are about equally long, and in the order of their lengths.
        old = half + jax.random.permutation(pair_key, half)
        labels = targets.one_hot(batch.labels, logits.shape[-1])
        lam = jax.random.beta(lam_key, alpha, alpha)
        plain = losses.cross_entropy(logits[:half], labels[:half])
        mixture = losses.cross_entropy(
            targets.mix(logits[:half], logits[old], lam),
            targets.mix(labels[:half], labels[old], lam),
        )
        each = (1 - mixed) * plain + mixed * mixture
        return weighted_mean(each, batch.weights[:half]), Aux(logits, model_state)

    def groups(_: Info) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(num_new), num_new + np.arange(num_old)

    method = Method(init=lambda info: (), loss=loss)
    return Phase("fine_tune", method, groups=Groups(groups, epoch_of_first=True))
