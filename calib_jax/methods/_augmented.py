"""Training on augmented images without AutoLabel: the methods that it is compared with."""

import jax
import jax.numpy as jnp

from calib_jax import augment, losses, targets
from calib_jax._arrays import weighted_mean
from calib_jax.methods._augmentations import Augmentation, attack, forward, images_of
from calib_jax.methods._base import Apply, Aux, Batch, Method, Objective, Params, State
from calib_jax.methods._objectives import as_objective
from calib_jax.methods._supervised import batch_loss, supervised


def augmented(
    augmentation: Augmentation,
    smoothing: float = 0.0,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """Return training on augmented images only, with the labels of the originals.

    Args:
      augmentation: Augmentation of the images.
      smoothing: Smoothing of the labels, over all classes; 0 for none.
      objective: Objective; with `smoothing` it must take soft labels.
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing={smoothing}: expected 0 to 1")
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Params, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        logits, model_state, _ = forward(augmentation, apply, params, batch, key)
        labels = batch.labels
        if smoothing:
            labels = targets.smooth(labels, logits.shape[-1], smoothing, "all")
        value = batch_loss(inner, logits, labels, state, batch.weights)
        return value, Aux(logits, model_state)

    return supervised(inner)._replace(loss=loss)


def augmix_jsd(
    magnitude: float = 3.0, weight: float = 12.0, objective: Objective | str = "cross_entropy"
) -> Method:
    """Return the original AugMix: three chains, and predictions that must agree.

    The loss is the objective on the clean images + `weight` x the Jensen-Shannon divergence of the
    predictions on these and on two augmented versions of them. All three pass the network together.

    Args:
      magnitude: Largest magnitude of an operation.
      weight: Weight of the divergence.
      objective: Objective on the clean images.

    References:
      Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan (2020), arXiv:1912.02781.
    """
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Params, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        keys = jax.random.split(key, 3)
        images = images_of(batch)
        others = [augment.augmix(k, images, magnitude=magnitude, chains=3) for k in keys[:2]]
        # The views of an image next to each other: a batch that is sharded stays on its devices.
        stacked = jnp.stack([images, *others], axis=1).reshape(-1, *images.shape[1:])
        logits, model_state = apply(params, {"image": stacked}, keys[2])
        views = logits.reshape(images.shape[0], 3, -1)
        clean = views[:, 0]
        value = batch_loss(inner, clean, batch.labels, state, batch.weights)
        value += weight * weighted_mean(losses.jensen_shannon(views), batch.weights)
        return value, Aux(clean, model_state)

    return supervised(inner)._replace(loss=loss)


def ccat(
    eps: float = 0.01,
    steps: int = 10,
    rho: float = 10.0,
    own_radius: bool = False,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """Return confidence-calibrated adversarial training: half of each batch adversarial.

    Paper: radii from U(0, eps), and labels that are uniform at the example's own radius, which an attack
    nearly always reaches. Here: uniform at the largest radius, so that labels fade with the distance,
    or with `own_radius` as in the paper; the attack is against cross entropy, like that of the other
    methods.

    Args:
      eps: Largest radius in the L∞ norm, for pixels in [0, 1].
      steps: Number of steps of the attack, each a quarter of the radius.
      rho: Power of the labels' transition; the larger, the earlier they fade.
      own_radius: Whether labels are uniform at the radius drawn for the example, not at `eps`.
      objective: Objective that takes soft labels.

    References:
      Stutz, Hein and Schiele (2020), arXiv:1910.06259.
    """
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Params, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        draw_key, attack_key, network_key = jax.random.split(key, 3)
        images = images_of(batch)
        # Every other row: a batch that is sharded has both halves on each device.
        half = jax.tree.map(lambda x: x[1::2], batch)
        radii = eps * (1 - jax.random.uniform(draw_key, half.labels.shape))
        attacked = attack(apply, params, half, radii, attack_key, steps)
        inputs = {**batch.inputs, "image": images.at[1::2].set(attacked)}
        logits, model_state = apply(params, inputs, network_key)
        distance = jnp.zeros(images.shape[0])
        distance = distance.at[1::2].set(
            jnp.max(jnp.abs(attacked - half.inputs["image"]), axis=(1, 2, 3))
        )
        uniform_at = jnp.full(images.shape[0], eps)
        if own_radius:
            uniform_at = uniform_at.at[1::2].set(radii)
        target = targets.ccat(batch.labels, distance, uniform_at, logits.shape[-1], rho)
        return batch_loss(inner, logits, target, state, batch.weights), Aux(logits, model_state)

    return supervised(inner)._replace(loss=loss)
