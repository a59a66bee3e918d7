"""The focal family: focal, inverse focal, FLSD-53, CalFocal and dual focal.

All share one core. With `q = log p` and `r = log(1 - p)`, both from logsumexp, the loss is

    gamma >= 0:  -exp( gamma  * r       ) * q      focal,          -(1 - p)^gamma  log p
    gamma <  0:  -exp(|gamma| * log1p(p)) * q      inverse focal,  -(1 + p)^|gamma| log p

Nothing is raised to a power and nothing is clipped, so value and gradient are finite for p -> 0,
p -> 1 and gamma in (0, 1), where the derivative of `(1 - p)^gamma` is not. gamma is a constant for
the gradient; the p inside the weight is differentiated.

With soft labels each loss is the label-weighted mean of the loss of each class, `sum_k y_k L(p_k)`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calib_jax._arrays import (
    FLOOR,
    above_floor,
    as_labels,
    as_logits,
    as_per_example,
    centered,
    expect,
    indicator,
    is_soft,
    nan_where_invalid,
    take_label,
)
from calib_jax.metrics import BinStats


def focal(logits: ArrayLike, labels: ArrayLike, gamma: ArrayLike) -> jax.Array:
    """Compute the focal loss; a negative `gamma` means inverse focal (AdaFocal's eq. 5).

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      gamma: Exponent gamma, scalar or `[batch]`.

    Returns:
      `[batch]`

    References:
      Lin, Goyal, Girshick, He and Dollár (2017), arXiv:1708.02002.

    >>> [round(float(x), 4) for x in losses.focal([[2.0, 0.0], [2.0, 0.0]], [0, 1], 2.0)]
    [0.0018, 1.6501]
    """
    logits = as_logits(logits)
    gamma = as_per_example("gamma", gamma, logits.shape[:-1], logits.dtype)

    def gamma_like(p: jax.Array) -> jax.Array:
        is_per_class = p.ndim > gamma.ndim > 0  # of soft labels
        return gamma[..., None] if is_per_class else gamma

    return focal_by_probability(logits, labels, gamma_like)


def inverse_focal(logits: ArrayLike, labels: ArrayLike, gamma: ArrayLike) -> jax.Array:
    """Compute `-(1 + p)^gamma log p` (AdaFocal's eq. 1), which pushes confident examples further.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      gamma: Exponent gamma `>= 0`, scalar or `[batch]`.

    Returns:
      `[batch]`

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.

    >>> round(float(losses.inverse_focal([[2.0, 0.0]], [0], 2.0)[0]), 4)
    0.449
    """
    return focal(logits, labels, -jnp.asarray(gamma))


def flsd53(logits: ArrayLike, labels: ArrayLike) -> jax.Array:
    """Compute the sample-dependent focal loss: gamma 5 where the true class has p < 0.2, else 3.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.

    Returns:
      `[batch]`

    References:
      Mukhoti, Kulharia, Sanyal, Golodetz, Torr and Dokania (2020), arXiv:2002.09437.

    >>> [round(float(x), 4) for x in losses.flsd53([[2.0, 0.0], [2.0, 0.0]], [0, 1])]
    [0.0002, 1.1275]
    """
    return focal_by_probability(logits, labels, lambda p: jnp.where(p < 0.2, 5.0, 3.0))


def calfocal(
    logits: ArrayLike, labels: ArrayLike, bins: BinStats, *, lam: float, per_sample: bool
) -> jax.Array:
    """Compute calibration-aware focal loss, given validation accuracy A_b and confidence C_b.

    `b` is the validation bin of the true class's probability p, and

        per_sample:  gamma = exp(lam * (p   - A_b))    eq. 2
        else:        gamma = exp(lam * (C_b - A_b))    eq. 3

    gamma is 1 in a bin with no validation example. Paper: silent on the gradient of gamma; here:
    none, because every other gamma of that paper is a constant between updates.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      bins: Bins of the validation set, `metrics.bin_stats(confidence, correct, scheme='mass')`.
      lam: Speed at which gamma follows the calibration gap.
      per_sample: Whether to use eq. 2 instead of eq. 3.

    Returns:
      `[batch]`

    References:
      Ghosh, Schaaf and Gormley (2022), arXiv:2211.11838.

    >>> bins = metrics.bin_stats([0.9, 0.9], [1, 0], num_bins=1)
    >>> round(float(losses.calfocal([[2.0, 0.0]], [0], bins, lam=1.0, per_sample=False)[0]), 4)
    0.0053
    """

    def gamma(p: jax.Array) -> jax.Array:
        if per_sample:
            gap = p - look_up(bins.edges[1:-1], bins.accuracy, p)
            gap = jnp.where(look_up(bins.edges[1:-1], bins.count, p) > 0, gap, 0.0)
        else:
            gap = look_up(bins.edges[1:-1], bins.gap, p)
        # exp(60) is as good as infinity for an exponent, and times any log-probability still finite.
        return jnp.exp(jnp.minimum(jnp.asarray(lam, p.dtype) * gap, 60.0))

    return focal_by_probability(logits, labels, gamma)


def dual_focal(logits: ArrayLike, labels: ArrayLike, gamma: float = 5.0) -> jax.Array:
    """Compute `-(1 - p_y + p_j)^gamma log p_y`, `p_j` being the next probability below `p_y`.

    `p_j` is 0 if there is none.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]` (then `sum_k y_k L_k`, `L_k` being the
        loss if k were the label: each class has a different `p_j`).
      gamma: Focusing parameter, `>= 0`.

    Returns:
      `[batch]`

    References:
      Tao, Dong and Xu (2023), arXiv:2305.13665.

    >>> round(float(losses.dual_focal([[2.0, 0.0]], [0])[0]), 4)
    0.0001
    """
    logits = above_floor(as_logits(logits))
    labels = as_labels(labels, logits)
    if is_soft(labels):
        logits = centered(logits)
        log_norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        log_rest = jnp.logaddexp(_log_one_minus_all(logits), _next_below(logits) - log_norm)
        log_p = jnp.where(labels > 0, logits - log_norm, 0.0)  # as in `focal_by_probability`
        return expect(-jnp.exp(gamma * log_rest) * log_p, labels)
    log_p = jax.nn.log_softmax(logits)
    log_p_y = take_label(log_p, labels)
    # The runner-up is found by comparing logits: probabilities tie in float32 long before they do.
    below = logits < take_label(logits, labels)[..., None]
    # log(1 - p_y + p_j) is the logsumexp of all other classes with class j counted twice.
    others = _without_label(log_p, labels)
    log_p_j = jnp.max(jnp.where(below, log_p, FLOOR), axis=-1)
    doubled = jnp.concatenate([others, log_p_j[..., None]], axis=-1)
    log_weight = gamma * jax.nn.logsumexp(doubled, axis=-1)
    return nan_where_invalid(-jnp.exp(log_weight) * log_p_y, labels, logits.shape[-1])


def focal_by_probability(
    logits: ArrayLike, labels: ArrayLike, gamma: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Compute the focal loss whose gamma is a function of the true class's probability.

    Args:
      logits: Logits `[batch, num_classes]`.
      labels: Integers `[batch]` or soft `[batch, num_classes]`.
      gamma: Function from probabilities `[batch]`, or `[batch, num_classes]` when the labels are soft,
        to gammas that broadcast against them.
    """
    logits = above_floor(as_logits(logits))
    labels = as_labels(labels, logits)
    if is_soft(labels):
        logits = centered(logits)
        # A class without label mass may be masked (logit -inf): keep it out of the gradient too.
        log_p = jnp.where(labels > 0, jax.nn.log_softmax(logits), 0.0)
        return expect(modulated(log_p, _log_one_minus_all(logits), gamma), labels)
    # How far the others together are ahead of the true class: one pass over the classes, from which
    # both log p and log(1 - p) follow with all their digits.
    ahead = _without_label(logits - take_label(logits, labels)[..., None], labels)
    odds = jax.nn.logsumexp(ahead, axis=-1)
    loss = modulated(-jax.nn.softplus(odds), -jax.nn.softplus(-odds), gamma)
    return nan_where_invalid(loss, labels, logits.shape[-1])


def look_up(inner_edges: jax.Array, values: jax.Array, p: jax.Array) -> jax.Array:
    """Return the value of each probability's bin; an edge belongs to the bin above it.

    A chain of selects, which fuses with the loss around it where a gather would not.
    """
    inner_edges, values = inner_edges.astype(p.dtype), values.astype(p.dtype)
    result = jnp.broadcast_to(values[0], p.shape)
    for edge, value in zip(inner_edges, values[1:], strict=True):
        result = jnp.where(p >= edge, value, result)
    return result


def modulated(
    log_p: jax.Array, log_rest: jax.Array, gamma: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Return `-weight * log p` from `log p` and `log(1 - p)`; see the top of this file."""
    p = jnp.exp(log_p)
    g = jax.lax.stop_gradient(gamma(p)).astype(p.dtype)
    return -jnp.exp(jnp.abs(g) * jnp.where(g < 0, jnp.log1p(p), log_rest)) * log_p


def _without_label(values: jax.Array, labels: jax.Array) -> jax.Array:
    """Return `values` with each row's label at the floor, so that logsumexp runs over the others."""
    return jnp.where(indicator(labels, values.shape[-1]), FLOOR, values)


def _next_below(logits: jax.Array) -> jax.Array:
    """Return for every class the largest smaller logit; the floor if there is none.

    By sorting: comparing every class with every other would be too much for many classes.
    """
    ascending = jnp.sort(logits, axis=-1)
    smaller = jnp.vectorize(jnp.searchsorted, signature="(k),(k)->(k)")(ascending, logits)
    nearest = jnp.take_along_axis(ascending, jnp.maximum(smaller - 1, 0), axis=-1)
    return jnp.where(smaller > 0, nearest, FLOOR)


def _log_one_minus_all(logits: jax.Array) -> jax.Array:
    """Return `log(1 - p_k)` for every class.

    Only the largest class can have p > 1/2, where `log1p(-p)` loses its digits: it gets the
    logsumexp of the others.
    """
    top = jnp.argmax(logits, axis=-1)
    is_top = indicator(top, logits.shape[-1])
    rest = jax.nn.logsumexp(_without_label(logits, top), axis=-1, keepdims=True)
    log_norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    small_p = jnp.where(is_top, 0.0, jnp.exp(logits - log_norm))
    return jnp.where(is_top, rest - log_norm, jnp.log1p(-small_p))
