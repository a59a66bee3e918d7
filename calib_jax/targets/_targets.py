"""Soft targets `[batch, num_classes]` for losses."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from calib_jax._arrays import (
    as_class_numbers,
    as_per_example,
    check_not_empty,
    float_dtype,
    indicator,
    is_valid,
)
from calib_jax._hints import check_choice


def one_hot(labels: ArrayLike, num_classes: int) -> jax.Array:
    """Return one-hot targets.

    Args:
      labels: Integers `[batch]`; soft `[batch, num_classes]` pass through.
      num_classes: Number of classes K.

    Returns:
      `[batch, num_classes]`

    >>> targets.one_hot([1], 3).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return _soft(labels, num_classes, float_dtype(labels))


def _soft(labels: ArrayLike, num_classes: int, dtype: DTypeLike) -> jax.Array:
    """Return labels of either kind as `[batch, num_classes]`."""
    labels = jnp.asarray(labels)
    check_not_empty(labels.shape)
    if jnp.issubdtype(labels.dtype, jnp.integer):
        labels = as_class_numbers(labels)
        target = indicator(labels, num_classes).astype(dtype)
        return jnp.where(is_valid(labels, num_classes)[..., None], target, jnp.nan)
    if jnp.issubdtype(labels.dtype, jnp.floating) and labels.shape[-1:] == (num_classes,):
        return labels.astype(dtype)
    raise ValueError(
        f"labels: expected integers [batch] or floats [batch, {num_classes}], "
        f"got {labels.dtype} {labels.shape}"
    )


def smooth(
    labels: ArrayLike, num_classes: int, smoothing: ArrayLike, kind: str = "others"
) -> jax.Array:
    """Smooth labels, in either of the two ways that go by that name.

    Args:
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      num_classes: Number of classes K.
      smoothing: Amount sigma in [0, 1], scalar or `[batch]`.
      kind: `'others'` gives the label 1 - sigma and each other class sigma / (K - 1);
        `'all'` gives every class sigma / K and the label 1 - sigma on top.

    Returns:
      `[batch, num_classes]`

    References:
      Szegedy, Vanhoucke, Ioffe, Shlens and Wojna (2016), arXiv:1512.00567 (`'all'`).

    >>> targets.smooth([0], 3, 0.5).tolist()
    [[0.5, 0.25, 0.25]]
    """
    check_choice("kind", kind, ("others", "all"))
    target = _soft(labels, num_classes, float_dtype(labels, smoothing))
    sigma = _column("smoothing", smoothing, target)
    if kind == "others":
        return (1 - sigma) * target + sigma * (1 - target) / (num_classes - 1)
    return (1 - sigma) * target + sigma / num_classes


def mix(a: ArrayLike, b: ArrayLike, lam: ArrayLike) -> jax.Array:
    """Return `lam a + (1 - lam) b`, for targets, inputs or features.

    Args:
      a: First array `[batch, ...]`.
      b: Second array, like `a`.
      lam: Weight of `a`, scalar or `[batch]`.

    Returns:
      Array like `a`.

    References:
      Zhang, Cisse, Dauphin and Lopez-Paz (2018), arXiv:1710.09412.

    >>> targets.mix([[1.0, 0.0]], [[0.0, 1.0]], 0.75).tolist()
    [[0.75, 0.25]]
    """
    dtype = float_dtype(a, b)
    a, b = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
    check_not_empty(a.shape)
    lam = as_per_example("lam", lam, a.shape[:1], dtype)
    lam = lam.reshape(lam.shape + (1,) * (a.ndim - lam.ndim))
    return lam * a + (1 - lam) * b


def autolabel(labels: ArrayLike, confidence: ArrayLike, num_classes: int) -> jax.Array:
    """Return AutoLabel's target (eq. 2): `confidence` on the label, the rest spread over the others.

    Args:
      labels: Integers `[batch]`.
      confidence: Label confidence of each example's distance bucket, scalar or `[batch]`.
      num_classes: Number of classes K.

    Returns:
      `[batch, num_classes]`

    References:
      Qin, Wang, Lakshminarayanan, Chi and Beutel (2023), arXiv:2302.11188.

    >>> targets.autolabel([0], 0.5, 3).tolist()
    [[0.5, 0.25, 0.25]]
    """
    target = _soft(labels, num_classes, float_dtype(labels, confidence))
    c = _column("confidence", confidence, target)
    return c * target + (1 - c) * (1 - target) / (num_classes - 1)


def autolabel_mixup(
    labels_minor: ArrayLike,
    labels_major: ArrayLike,
    lam_minor: ArrayLike,
    confidence: ArrayLike,
    num_classes: int,
) -> jax.Array:
    """Return AutoLabel's target for a mixed pair (appendix A).

    The class of the heavier image gets c = `confidence`, that of the lighter one
    `min(1 - c, lam / (1 - lam) c)`, and the K - 2 others share what is left.

    Paper: silent on pairs of one class and on K = 2; here: one class takes both shares and the
    K - 1 others the rest; with two classes the lighter one takes all that is left, for there is
    nowhere else to put it.

    Args:
      labels_minor: Integers `[batch]`, the classes with weight `lam_minor`.
      labels_major: Integers `[batch]`, the other classes.
      lam_minor: Mixing weight of the lighter image in [0, 1/2], scalar or `[batch]`.
      confidence: Label confidence of each example's distance bucket, scalar or `[batch]`.
      num_classes: Number of classes K.

    Returns:
      `[batch, num_classes]`

    References:
      Qin, Wang, Lakshminarayanan, Chi and Beutel (2023), arXiv:2302.11188.

    >>> targets.autolabel_mixup([1], [0], 0.25, 0.75, 3).tolist()
    [[0.75, 0.25, 0.0]]
    """
    dtype = float_dtype(lam_minor, confidence)
    major, minor = (_soft(labels, num_classes, dtype) for labels in (labels_major, labels_minor))
    if major.shape != minor.shape:
        raise ValueError(f"labels_minor: expected {major.shape[:-1]}, got {minor.shape[:-1]}")
    c, lam = _column("confidence", confidence, major), _column("lam_minor", lam_minor, major)
    share = jnp.minimum(1 - c, lam / (1 - lam) * c)
    if num_classes == 2:
        share = jnp.where(jnp.any(major != minor, -1, keepdims=True), 1 - c, share)
    named = jnp.maximum(major, minor)
    others = num_classes - jnp.sum(named, -1, keepdims=True)
    rest = (1 - c - share) / jnp.maximum(others, 1)
    return c * major + share * minor + rest * (1 - named)


def ccat(
    labels: ArrayLike, distance: ArrayLike, eps: ArrayLike, num_classes: int, rho: float = 10.0
) -> jax.Array:
    """Return the target of confidence-calibrated adversarial training: one-hot fading to uniform.

    `g onehot + (1 - g) / K` with the power transition `g = (1 - min(1, distance / eps))^rho`.

    Args:
      labels: Integers `[batch]`.
      distance: Size of each perturbation `[batch]`.
      eps: Size at which the target is uniform, scalar or `[batch]`.
      num_classes: Number of classes K.
      rho: Power of the transition; the larger, the earlier the target fades.

    Returns:
      `[batch, num_classes]`

    References:
      Stutz, Hein and Schiele (2020), arXiv:1910.06259.

    >>> targets.ccat([0, 0], [0.0, 1.0], 1.0, 4).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
    """
    target = _soft(labels, num_classes, float_dtype(labels, distance))
    distance, eps = _column("distance", distance, target), _column("eps", eps, target)
    g = (1 - jnp.minimum(1.0, distance / eps)) ** rho
    return g * target + (1 - g) / num_classes


def autolabel_update(
    confidence: ArrayLike,
    ece: ArrayLike,
    mean_confidence: ArrayLike,
    accuracy: ArrayLike,
    alpha: ArrayLike,
) -> jax.Array:
    """Return AutoLabel's update of the label confidences (eq. 1), clipped to [accuracy, 1].

    Over-confidence on a bucket's augmented validation set lowers its label confidence by
    `alpha * ece`, under-confidence raises it.

    Args:
      confidence: Label confidence of each bucket `[buckets]`.
      ece: Calibration error on each bucket's validation set `[buckets]`.
      mean_confidence: Mean top-label confidence there `[buckets]`.
      accuracy: Accuracy there `[buckets]`.
      alpha: Step size.

    Returns:
      `[buckets]`

    References:
      Qin, Wang, Lakshminarayanan, Chi and Beutel (2023), arXiv:2302.11188.

    >>> round(float(targets.autolabel_update(1.0, 0.1, 0.9, 0.8, 0.5)), 3)
    0.95
    """
    dtype = float_dtype(confidence)
    confidence, ece, mean_confidence, accuracy, alpha = (
        jnp.asarray(x, dtype) for x in (confidence, ece, mean_confidence, accuracy, alpha)
    )
    step = alpha * ece * jnp.sign(mean_confidence - accuracy)
    return jnp.clip(confidence - step, accuracy, 1.0)


def _column(name: str, x: ArrayLike, target: jax.Array) -> jax.Array:
    """Return a scalar or `[batch]` so that it broadcasts against `target` `[batch, num_classes]`."""
    x = as_per_example(name, x, target.shape[:-1], target.dtype)
    return x[..., None] if x.ndim else x
