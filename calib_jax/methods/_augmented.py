"""Training on augmented images with fixed labels: what AutoLabel is compared with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calib_jax import augment, losses, targets
from calib_jax._arrays import weighted_mean
from calib_jax.methods import _augmentations
from calib_jax.methods._augmentations import Augmentation, images_of
from calib_jax.methods._autolabel import (
    adversarial_autolabel,
    augmix_autolabel,
    forward,
    mixup_autolabel,
    randaug_autolabel,
)
from calib_jax.methods._base import Apply, Aux, Batch, Method, State
from calib_jax.methods._objectives import Objective, as_objective
from calib_jax.methods._supervised import batch_loss, supervised


def augmented(
    augmentation: Augmentation, objective: Objective | str, smoothing: float = 0.0
) -> Method:
    """Trains on augmented images only, with the labels of the originals.

    Args:
      augmentation: of the images.
      objective: of `OBJECTIVES`; with `smoothing` it must take soft labels.
      smoothing: of the labels, over all classes; 0 for none.
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing={smoothing}: expected 0 to 1")
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Any, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        logits, model_state, _ = forward(augmentation, apply, params, batch, key)
        labels = batch.labels
        if smoothing:
            labels = targets.smooth(labels, logits.shape[-1], smoothing, "all")
        value = batch_loss(inner, logits, labels, state, batch.weights)
        return value, Aux(logits, model_state)

    return supervised(inner)._replace(loss=loss)


def randaug(
    max_magnitude: int = 10,
    ops: str = "all",
    smoothing: float = 0.0,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """One random operation at a random magnitude up to `max_magnitude`.

    Args:
      max_magnitude: 1 to 10.
      ops: names of `augment.OPS`, separated by commas, or `'all'`.
      smoothing: of the labels, over all classes.
      objective: of `OBJECTIVES`.
    """
    return augmented(_augmentations.randaug(max_magnitude, ops), objective, smoothing)


def augmix(
    magnitude: float = 3.0, smoothing: float = 0.0, objective: Objective | str = "cross_entropy"
) -> Method:
    """One chain of operations, mixed with the original; see `augment.augmix`, and `randaug`."""
    return augmented(_augmentations.augmix(magnitude, 1), objective, smoothing)


def augmix_jsd(
    magnitude: float = 3.0, weight: float = 12.0, objective: Objective | str = "cross_entropy"
) -> Method:
    """The original AugMix: three chains, and predictions that must agree.

    Objective on the clean images + `weight` x Jensen-Shannon divergence of the predictions on these and
    on two augmented versions of them. All three go through the network together.
    """
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Any, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        keys = jax.random.split(key, 3)
        images = images_of(batch)
        others = [augment.augmix(k, images, magnitude=magnitude, chains=3) for k in keys[:2]]
        # Side by side, so that a batch that is split over devices stays where it is.
        together = jnp.stack([images, *others], axis=1).reshape(-1, *images.shape[1:])
        logits, model_state = apply(params, {"image": together}, keys[2])
        views = logits.reshape(images.shape[0], 3, -1)
        clean = views[:, 0]
        value = batch_loss(inner, clean, batch.labels, state, batch.weights)
        value += weight * weighted_mean(losses.jensen_shannon(views), batch.weights)
        return value, Aux(clean, model_state)

    return supervised(inner)._replace(loss=loss)


def adversarial(
    eps: float = 0.01,
    steps: int = 10,
    multiple: bool = False,
    smoothing: float = 0.0,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """Adversarial training: on PGD examples only, found against the network in evaluation mode.

    Args:
      eps: radius in the L∞ norm, for pixels in [0, 1].
      steps: of a quarter of the radius.
      multiple: radii from U(0, eps) and not all `eps`.
      smoothing: of the labels, over all classes.
      objective: of `OBJECTIVES`; the attack itself is against cross entropy.
    """
    radii = _augmentations.adversarial(eps, steps, 1, fixed=not multiple)
    return augmented(radii, objective, smoothing)


def ccat(
    eps: float = 0.01,
    steps: int = 10,
    rho: float = 10.0,
    own_radius: bool = False,
    objective: Objective | str = "cross_entropy",
) -> Method:
    """Confidence-calibrated adversarial training: half clean, half adversarial with fading labels.

    Paper: radii from U(0, eps), and labels that are uniform at the example's own radius, which an attack
    nearly always reaches. Here: uniform at the largest radius, so that labels fade with the distance,
    or with `own_radius` as in the paper; the attack is against cross entropy, like that of the other
    methods.

    Args:
      eps: largest radius.
      steps: see `adversarial`.
      rho: how early the label lets go.
      own_radius: labels are uniform at the radius drawn for the example, not at `eps`.
      objective: must take soft labels.
    """
    inner = as_objective(objective)

    def loss(
        apply: Apply, params: Any, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, Aux]:
        draw_key, attack_key, network_key = jax.random.split(key, 3)
        images = images_of(batch)
        # Every other row: a batch that is split over devices has both halves on each.
        half = jax.tree.map(lambda x: x[1::2], batch)
        radii = eps * (1 - jax.random.uniform(draw_key, half.labels.shape))
        found = _augmentations.attack(apply, params, half, radii, attack_key, steps)
        distance = jnp.max(jnp.abs(found - half.inputs["image"]), axis=(1, 2, 3))
        inputs = {**batch.inputs, "image": images.at[1::2].set(found)}
        logits, model_state = apply(params, inputs, network_key)
        far = jnp.zeros(images.shape[0]).at[1::2].set(distance)
        uniform_at = jnp.full(images.shape[0], eps)
        if own_radius:
            uniform_at = uniform_at.at[1::2].set(radii)
        target = targets.ccat(batch.labels, far, uniform_at, logits.shape[-1], rho)
        return batch_loss(inner, logits, target, state, batch.weights), Aux(logits, model_state)

    return supervised(inner)._replace(loss=loss)


AUGMENTED: dict[str, Callable[..., Method]] = {
    function.__name__: function
    for function in (
        *(randaug, randaug_autolabel, augmix, augmix_jsd, augmix_autolabel),
        *(adversarial, ccat, adversarial_autolabel, mixup_autolabel),
    )
}
