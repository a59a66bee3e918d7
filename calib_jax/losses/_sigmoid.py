"""Focal losses of independent yes/no labels, each with one logit: binary and multi-label problems.

With one label they equal the softmax losses of the two logits `(0, z)`. Each of several labels counts
as such a problem, so that the result has the shape of the logits.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import above_floor, as_floats, as_per_example, check_not_empty, is_soft
from calib_jax.losses._adafocal import AdaFocalState
from calib_jax.losses._focal import look_up, modulated


def sigmoid_focal(logits: ArrayLike, labels: ArrayLike, gamma: ArrayLike) -> jax.Array:
    """Compute the focal loss of yes/no labels; a negative `gamma` means inverse focal.

    With `p = sigmoid(logit)` it is `-(1 - p)^gamma log p` for label 1 and `-p^gamma log(1 - p)` for
    label 0; for a soft label y the mean of both with weights y and 1 - y. Paper: a factor alpha for
    label 1; here: none, because it shifts the probabilities away from the frequencies.

    Args:
      logits: Logits of label 1, `[n]` or `[n, num_labels]`.
      labels: Integers 0 or 1, bools, or soft labels in [0, 1], like `logits`.
      gamma: Scalar, or like `logits`.

    Returns:
      Losses like `logits`; NaN for an integer label other than 0 and 1.

    References:
      Lin, Goyal, Girshick, He and Dollár (2017), arXiv:1708.02002.

    >>> [round(float(x), 4) for x in losses.sigmoid_focal([2.0, 2.0], [1, 0], 2.0)]
    [0.0018, 1.6501]
    """
    logits = as_floats(logits)
    gamma = as_per_example("gamma", gamma, logits.shape, logits.dtype)
    return _sigmoid_loss(logits, labels, lambda _: gamma)


def sigmoid_adafocal(logits: ArrayLike, labels: ArrayLike, state: AdaFocalState) -> jax.Array:
    """Compute the AdaFocal loss of yes/no labels: gamma of the bin of the true answer's probability.

    The bins are those of the confidence `max(p, 1 - p)` in the predicted answers, of all labels
    together. To move gamma, give `adafocal_update` those of the validation set, as `[n]`:

        confidence = jax.nn.sigmoid(jnp.abs(logits)).ravel()
        correct = ((logits > 0) == labels).ravel()
        state = losses.adafocal_update(state, confidence, correct)

    Bins of each label are `jax.vmap(losses.sigmoid_adafocal, (1, 1, 0), 1)` with a stack of states.

    Args:
      logits: Logits of label 1, `[n]` or `[n, num_labels]`.
      labels: Integers 0 or 1, bools, or soft labels in [0, 1], like `logits`.
      state: State from `adafocal_init` or `adafocal_update`, a constant for the gradient.

    Returns:
      Losses like `logits`; NaN for an integer label other than 0 and 1.

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838, eq. 5.

    >>> round(float(losses.sigmoid_adafocal([2.0], [1], losses.adafocal_init())[0]), 4)
    0.0151
    """
    return _sigmoid_loss(logits, labels, lambda p: look_up(state.edges, state.gamma, p))


def _sigmoid_loss(
    logits: ArrayLike, labels: ArrayLike, gamma: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Return the loss whose gamma is a function of the true answer's probability."""
    logits = above_floor(as_floats(logits))
    labels = _labels_like(labels, logits)

    def loss_of_yes(z: jax.Array) -> jax.Array:
        return modulated(-jax.nn.softplus(-z), -jax.nn.softplus(z), gamma)

    if is_soft(labels):
        return labels * loss_of_yes(logits) + (1 - labels) * loss_of_yes(-logits)
    loss = loss_of_yes(jnp.where(labels == 1, logits, -logits))
    return jnp.where((labels == 0) | (labels == 1), loss, jnp.nan)


def _labels_like(labels: ArrayLike, logits: jax.Array) -> jax.Array:
    """Return integers or floats of the logits' shape; invalid values stay, as losses never raise."""
    check_not_empty(logits.shape)
    labels = jnp.asarray(labels)
    if labels.shape == logits.shape:
        if jnp.issubdtype(labels.dtype, jnp.floating):
            return labels.astype(logits.dtype)
        if jnp.issubdtype(labels.dtype, jnp.integer) or labels.dtype == jnp.bool_:
            return labels.astype(jnp.int32)
    raise ValueError(
        f"labels: expected integers, bools or floats {logits.shape} like the logits, "
        f"got {labels.dtype} {labels.shape}"
    )
