"""Conformal sets of predictions, fitted and measured on rows that no calibrator was fitted to."""

import jax
import numpy as np

from calib_jax import metrics, posthoc

_SCORES = ("lac", "aps", "raps")


def set_metrics(
    logits: jax.Array,
    labels: jax.Array,
    alpha: float,
    *,
    fold: np.ndarray | None = None,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Measure conformal sets of each score, cross-fitted: all rows have a set, none had a say in it.

    The rows that one calibrator calibrated are split into two random halves, and each half has the
    threshold of the other. So a threshold is never fitted to rows that the calibrator of its
    probabilities has seen, nor to those that it is used on.

    Args:
      logits: Logits `[n, num_classes]`.
      labels: Classes `[n]`.
      alpha: How often the label may be missing.
      fold: By which calibrator each row was calibrated `[n]`; `None`: all by the same one.
      seed: Seed of the halves.

    Returns:
      `{score: {metric: value}}`

    >>> import jax.numpy as jnp
    >>> logits, labels = jnp.tile(jnp.array([[2.0, 0.0], [0.0, 2.0]]), (50, 1)), jnp.arange(100) % 2
    >>> set_metrics(logits, labels, 0.1)["lac"]["coverage"]
    1.0
    """
    if labels.shape == logits.shape:
        raise ValueError(
            "conformal sets are of classes; these are predictions of independent labels"
        )
    n = labels.shape[0]
    probs, classes = np.asarray(jax.nn.softmax(logits)), np.asarray(labels)
    fold = np.zeros(n, np.int32) if fold is None else fold
    rng = np.random.default_rng(seed)
    pairs = []
    for i in np.unique(fold):
        halves = np.array_split(rng.permutation(np.flatnonzero(fold == i)), 2)
        pairs += [halves, halves[::-1]]
    if min(len(fit_on) for fit_on, _ in pairs) == 0:
        raise ValueError(f"{n} predictions are too few for conformal sets: expected 4 or more")
    results = {}
    for score in _SCORES:
        sets = np.zeros(probs.shape, bool)
        for fit_on, use_on in pairs:
            fitted = posthoc.ConformalSets.fit(
                probs[fit_on], classes[fit_on], alpha=alpha, score=score, check=False
            )
            sets[use_on] = fitted(probs[use_on], check=False)
        results[score] = {
            "coverage": float(metrics.coverage(sets, classes)),
            "set_size": float(metrics.set_size(sets)),
            "worst_class_coverage": float(metrics.worst_class_coverage(sets, classes)),
            "size_stratified_coverage": float(metrics.size_stratified_coverage(sets, classes)),
        }
    return results
