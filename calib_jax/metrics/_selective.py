"""Selective prediction and out-of-distribution detection: is confidence in the right order?"""

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jax.typing import ArrayLike

from calib_jax._arrays import as_logits, check_not_empty, check_not_probs
from calib_jax.metrics._binning import check_binary
from calib_jax.metrics._sorting import argsort_floats, running_sums, tie_bounds, tie_means


def predictive_entropy(logits: ArrayLike, *, check: bool = True) -> jax.Array:
    """Compute the entropy of `softmax(logits)` in nats: higher for uncertain predictions.

    Args:
      logits: `[batch, num_classes]`.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    Returns:
      `[batch]`

    >>> round(float(metrics.predictive_entropy([[0.0, 0.0]])[0]), 4)
    0.6931
    """
    logits = _checked_logits(logits, check)
    log_p = jax.nn.log_softmax(logits)
    p = jnp.exp(log_p)
    return -jnp.sum(p * jnp.where(p > 0, log_p, 0.0), axis=-1)


def energy_score(logits: ArrayLike, *, temperature: float = 1.0, check: bool = True) -> jax.Array:
    """Compute the energy `-T logsumexp(z / T)`: higher for inputs that are out of distribution.

    The sign is that of `predictive_entropy`, and of what `auroc` and `fpr_at_tpr` expect if
    out-of-distribution inputs are the positives. (Some report the negative energy.)

    Args:
      logits: `[batch, num_classes]`; their sum matters, so log-probabilities all have energy 0.
      temperature: T > 0.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    Returns:
      `[batch]`

    References:
      Liu et al., 2020, arXiv:2010.03759.

    >>> [round(float(x), 3) for x in metrics.energy_score([[9.0, 0.0], [0.0, 0.0]])]
    [-9.0, -0.693]
    """
    logits = _checked_logits(logits, check)
    scale = jnp.asarray(temperature, logits.dtype)
    return -scale * jax.nn.logsumexp(logits / scale, axis=-1)


def max_logit_score(logits: ArrayLike, *, check: bool = True) -> jax.Array:
    """Compute minus the largest logit: higher for inputs that are out of distribution.

    The sign is that of `energy_score`.

    Args:
      logits: `[batch, num_classes]`.
      check: whether probabilities in place of logits are refused; inside jit they never are.

    Returns:
      `[batch]`

    References:
      Hendrycks et al., 2022, arXiv:1911.11132.

    >>> metrics.max_logit_score([[9.0, 0.0], [0.0, 1.0]]).tolist()
    [-9.0, -1.0]
    """
    return -jnp.max(_checked_logits(logits, check), axis=-1)


def _checked_logits(logits: ArrayLike, check: bool) -> jax.Array:
    logits = as_logits(logits)
    check_not_empty(logits.shape[:-1])
    if check:
        check_not_probs(logits)
    return logits


@jax.jit
def aurc(
    confidence: ArrayLike, correct: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the area under the risk-coverage curve.

    That is the mean over k of the error rate of the k most confident.

    Examples of the same confidence share their mean correctness.

    Args:
      confidence: `[n]`.
      correct: `[n]`.
      weights: `[n]`; an example of weight 2 counts as two.

    Returns:
      scalar in [0, 1]

    >>> round(float(metrics.aurc([0.9, 0.8, 0.7], [1, 1, 0])), 4)
    0.1111
    """
    error, weight = _errors_by_confidence(confidence, correct, weights)
    covered = _before(weight)
    errors = _before(weight * error)
    # sum_{j=1..w} (errors + j e) / (covered + j), the w examples of one row taken one by one
    area = weight * error + (errors - error * covered) * _harmonic(covered, weight)
    return jnp.sum(area) / jnp.sum(weight)


@jax.jit
def e_aurc(
    confidence: ArrayLike, correct: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the AURC above the least that the same number of errors allows (all of them last).

    Arguments as in `aurc`.

    References:
      Geifman et al., 2019, arXiv:1805.08206.

    >>> round(float(metrics.e_aurc([0.9, 0.8, 0.7], [0, 1, 1])), 4)
    0.5
    """
    error, weight = _errors_by_confidence(confidence, correct, weights)
    n, errors = jnp.sum(weight), jnp.sum(weight * error)
    right = n - errors
    return (
        aurc(confidence, correct, weights=weights) - (errors - right * _harmonic(right, errors)) / n
    )


def risk_coverage(
    confidence: ArrayLike, correct: ArrayLike, *, weights: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the risk-coverage curve: `coverage` `[n]` rising to 1 and the error rate at each.

    Arguments as in `aurc`.

    >>> coverage, risk = metrics.risk_coverage([0.9, 0.8], [1, 0])
    >>> coverage.tolist(), risk.tolist()
    ([0.5, 1.0], [0.0, 0.5])
    """
    error, weight = _errors_by_confidence(confidence, correct, weights)
    covered = jnp.cumsum(weight)
    risk = jnp.cumsum(weight * error) / jnp.maximum(covered, 1e-30)
    return covered / covered[-1], jnp.where(covered[-1] == 0, jnp.nan, risk)


@jax.jit
def risk_at_coverage(
    confidence: ArrayLike,
    correct: ArrayLike,
    coverage: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the error rate of the most confident share of the examples.

    Args:
      confidence: `[n]`; any score by which to keep or reject.
      correct: `[n]`.
      coverage: share to keep, in (0, 1]; so many examples as make up at least that share.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar in [0, 1]; NaN for a coverage outside (0, 1]

    >>> float(metrics.risk_at_coverage([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], 0.5))
    0.5
    """
    covered, risk = risk_coverage(confidence, correct, weights=weights)
    coverage = jnp.asarray(coverage, covered.dtype)
    at = jnp.argmax(covered >= coverage - 1e-6)
    possible = (coverage > 0) & (coverage <= 1) & ~jnp.isnan(risk[-1])
    return jnp.where(possible, risk[at], jnp.nan)


@jax.jit
def coverage_at_risk(
    confidence: ArrayLike,
    correct: ArrayLike,
    risk: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the largest share of the examples, most confident first, with at most that error rate.

    Args:
      confidence: `[n]`; any score by which to keep or reject.
      correct: `[n]`.
      risk: error rate that is tolerated, in [0, 1].
      weights: `[n]`, 0 for padding.

    Returns:
      scalar in [0, 1]; 0 if even the most confident examples are wrong too often, NaN for a risk
      outside [0, 1]

    >>> float(metrics.coverage_at_risk([0.9, 0.8, 0.7, 0.6], [1, 1, 1, 0], 0.1))
    0.75
    """
    covered, risks = risk_coverage(confidence, correct, weights=weights)
    risk = jnp.asarray(risk, risks.dtype)
    largest = jnp.max(jnp.where(risks <= risk + 1e-6, covered, 0.0))
    possible = (risk >= 0) & (risk <= 1) & ~jnp.isnan(risks[-1])
    return jnp.where(possible, largest, jnp.nan)


@jax.jit
def auroc(
    scores: ArrayLike, positives: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Compute the area under the ROC curve.

    That is how often a positive scores above a negative; ties count half.

    Args:
      scores: `[n]`, higher for positives.
      positives: `[n]`, 1 or true for positives.
      weights: `[n]`, 0 for padding.

    Returns:
      scalar; NaN if one of the two kinds is missing.

    >>> float(metrics.auroc([0.9, 0.8, 0.7, 0.1], [1, 0, 1, 0]))
    0.75
    """
    positive, negative, first, last = _by_score(scores, positives, weights)
    below = running_sums(negative)
    won = jnp.sum(positive * (below[first] + below[last]) / 2)
    return won / (jnp.sum(positive) * jnp.sum(negative))


@jax.jit
def fpr_at_tpr(
    scores: ArrayLike,
    positives: ArrayLike,
    tpr: float = 0.95,
    *,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Compute the smallest false positive rate at which the true positive rate is at least `tpr`.

    An example counts as positive if its score reaches the threshold. Arguments as in `auroc`; NaN for a
    `tpr` outside [0, 1].

    >>> float(metrics.fpr_at_tpr([0.9, 0.8, 0.7, 0.1], [1, 0, 1, 0]))
    0.5
    """
    false, true = roc_curve(scores, positives, weights=weights)
    rate = jnp.min(jnp.where(true >= tpr - 1e-6, false, 1.0))
    possible = (tpr >= 0) & (tpr <= 1) & ~jnp.isnan(true[-1])
    return jnp.where(possible, rate, jnp.nan)


@jax.jit
def roc_curve(
    scores: ArrayLike, positives: ArrayLike, *, weights: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the ROC curve: false and true positive rate `[n + 1]` from (0, 0) to (1, 1).

    A point for every example's score as the threshold, which it reaches; examples of the same score
    enter together. Arguments as in `auroc`; the rate of a kind that is missing is NaN.

    >>> false, true = metrics.roc_curve([0.9, 0.8], [1, 0])
    >>> false.tolist(), true.tolist()
    ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0])
    """
    positive, negative, first, _ = _by_score(scores, positives, weights)

    def rates(column: jax.Array) -> jax.Array:
        at_or_above = 1 - _before(column)[first] / jnp.sum(column)
        return jnp.pad(at_or_above[::-1], (1, 0))

    return rates(negative), rates(positive)


def _errors_by_confidence(
    confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array]:
    """Return errors and weights `[n]`, most confident first, ties averaged."""
    confidence, correct, weight = check_binary(confidence, correct, weights)
    order = argsort_floats(-confidence)
    weight = jnp.ones_like(confidence) if weight is None else weight[order]
    return tie_means(-confidence[order], 1 - correct[order], weight), weight


def _by_score(
    scores: ArrayLike, positives: ArrayLike, weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Return the weights of positives and negatives by ascending score, and each tie's bounds."""
    scores, positive, weight = check_binary(scores, positives, weights)
    order = argsort_floats(scores)
    weight = jnp.ones_like(scores) if weight is None else weight[order]
    positive = positive[order]
    first, last = tie_bounds(scores[order])
    return weight * positive, weight * (1 - positive), first, last


def _before(column: jax.Array) -> jax.Array:
    """Return the sum of all entries before each."""
    return jnp.cumsum(column) - column


def _harmonic(start: jax.Array, steps: jax.Array) -> jax.Array:
    """Compute `sum_{j=1..steps} 1 / (start + j)`, extended to real `steps`.

    The difference of two digammas; of large arguments it would be all rounding, and is taken from
    their asymptotic series instead.
    """
    a, b = start + 0.5, start + steps + 0.5
    series = jnp.log1p(steps / a) + (1 / b**2 - 1 / a**2) / 24
    return jnp.where(start > 16, series, digamma(b + 0.5) - digamma(a + 0.5))
