"""Probabilities in place of logits, and logits in place of probabilities, are refused eagerly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import metrics, posthoc
from calib_jax._arrays import check_not_probs

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(40, 3)).astype(np.float32)
PROBS = np.asarray(jax.nn.softmax(LOGITS))
LABELS = RNG.integers(0, 3, 40)

OF_LOGITS = {
    "nll": metrics.nll,
    "brier_score": metrics.brier_score,
    "refinement": metrics.refinement,
    "inverse_temperature": metrics.inverse_temperature,
    "summary": metrics.summary,
    "top_label": metrics.top_label,
    "predictive_entropy": lambda logits, labels, **options: metrics.predictive_entropy(
        logits, **options
    ),
    "Temperature.fit": posthoc.Temperature.fit,
    "Temperature": lambda logits, labels, **options: posthoc.Temperature(jnp.ones(()))(
        logits, **options
    ),
}
OF_PROBS = {"top_label_probs": metrics.top_label_probs, "classwise_ece": metrics.classwise_ece}


@pytest.mark.parametrize("name", OF_LOGITS)
def test_probabilities_are_not_taken_for_logits(name: str) -> None:
    function = OF_LOGITS[name]
    function(LOGITS, LABELS)
    with pytest.raises(ValueError, match=r"so these are probabilities; use (posthoc|metrics)"):
        function(PROBS, LABELS)
    function(PROBS, LABELS, check=False)


@pytest.mark.parametrize("name", OF_PROBS)
def test_logits_are_not_taken_for_probabilities(name: str) -> None:
    function = OF_PROBS[name]
    function(PROBS, LABELS)
    with pytest.raises(ValueError, match=r"so these are logits; use jax\.nn\.softmax"):
        function(LOGITS, LABELS)
    function(LOGITS, LABELS, check=False)


@pytest.mark.parametrize("fit", posthoc.CALIBRATORS.values(), ids=posthoc.CALIBRATORS.keys())
def test_every_calibrator_refuses_probabilities(fit) -> None:
    with pytest.raises(ValueError, match=r"so these are probabilities"):
        fit(PROBS, LABELS)


def test_nothing_is_looked_at_inside_jit() -> None:
    assert np.isfinite(jax.jit(metrics.nll)(PROBS, LABELS))
    assert np.isfinite(jax.vmap(metrics.nll)(PROBS[None], LABELS[None])).all()
    assert jax.grad(metrics.nll)(jnp.asarray(PROBS), LABELS).shape == PROBS.shape


def test_one_distinct_row_is_no_evidence() -> None:
    assert not posthoc.looks_like_probabilities(PROBS[:1])
    assert not posthoc.looks_like_probabilities(np.full((5, 2), 0.5))
    check_not_probs(np.full((5, 2), 0.5))


def test_one_row_of_logits_among_probabilities_is_enough() -> None:
    last_sums_to_two = np.concatenate([PROBS, [[0.5, 0.5, 1.0]]])
    assert posthoc.looks_like_probabilities(PROBS)
    assert not posthoc.looks_like_probabilities(last_sums_to_two)
    assert posthoc.looks_like_probabilities(last_sums_to_two, np.r_[np.ones(40), 0])
    assert posthoc.looks_like_probabilities(PROBS.astype(np.float64) + 9e-4 / 3)
    assert not posthoc.looks_like_probabilities(np.clip(PROBS.astype(np.float64) + 2e-3 / 3, 0, 1))


def test_padding_hides_nothing_and_raises_nothing() -> None:
    weights = np.r_[np.zeros(20), np.ones(20)]
    padded = np.where(weights[:, None] > 0, PROBS, np.nan).astype(np.float32)
    with pytest.raises(ValueError, match="probabilities"):
        metrics.nll(padded, LABELS, weights=weights)
    metrics.classwise_ece(padded, LABELS, weights=weights)
    metrics.nll(np.where(weights[:, None] > 0, LOGITS, 0.5), LABELS, weights=weights)


def test_functions_of_the_order_alone_take_both() -> None:
    for function in (metrics.accuracy, metrics.f1, metrics.confusion_matrix):
        np.testing.assert_array_equal(function(PROBS, LABELS), function(LOGITS, LABELS))
