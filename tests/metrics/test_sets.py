"""Coverage and size of sets, by hand and against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import metrics

RNG = np.random.default_rng(0)
N, K = 200, 12
SETS = RNG.random((N, K)) < RNG.random((N, 1))
LABELS = RNG.integers(0, K - 1, N)  # the last class has no examples
WEIGHTS = RNG.integers(0, 3, N).astype(float)


def lowest(groups: np.ndarray, covered: np.ndarray, weights: np.ndarray) -> float:
    values = []
    for group in np.unique(groups):
        member = (groups == group) * weights
        if member.sum():
            values.append((member * covered).sum() / member.sum())
    return min(values)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_oracles(weights: np.ndarray | None) -> None:
    weight = np.ones(N) if weights is None else weights
    covered, sizes = SETS[np.arange(N), LABELS], SETS.sum(1)
    close = np.testing.assert_allclose
    close(
        metrics.coverage(SETS, LABELS, weights=weights), np.average(covered, weights=weight), 1e-6
    )
    close(metrics.set_size(SETS, weights=weights), np.average(sizes, weights=weight), 1e-6)
    close(
        metrics.worst_class_coverage(SETS, LABELS, weights=weights),
        lowest(LABELS, covered, weight),
        1e-6,
    )
    groups = np.digitize(sizes, [2, 4, 11, 101])
    assert {0, 1, 2, 3} == set(groups)
    got = metrics.size_stratified_coverage(SETS, LABELS, weights=weights)
    close(got, lowest(groups, covered, weight), 1e-6)
    each = metrics.size_stratified_coverage(SETS, LABELS, edges=range(1, K + 1), weights=weights)
    close(each, lowest(sizes, covered, weight), 1e-6)


def test_edges_by_hand() -> None:
    """Sizes 1, 2, 3, 4 with the second alone not covered."""
    sets = np.tril(np.ones((4, 5), bool))
    labels = [0, 4, 0, 0]
    get = metrics.size_stratified_coverage
    assert float(get(sets, labels)) == 0.5  # 2 and 3
    assert float(get(sets, labels, edges=(3,))) == 0.5  # 1 and 2
    assert float(get(sets, labels, edges=(2, 3))) == 0.0
    assert float(get(sets, labels, edges=(10,))) == 0.75


def test_errors_and_nan() -> None:
    for bad in (SETS.astype(float), SETS[0], SETS[:, :1]):
        with pytest.raises(ValueError, match=r"sets: expected bool \[n, num_classes >= 2\]"):
            metrics.set_size(bad)
    functions = metrics.coverage, metrics.worst_class_coverage, metrics.size_stratified_coverage
    for function in functions:
        with pytest.raises(ValueError, match="expected 0 to 11, found 12"):
            function(SETS, np.where(np.arange(N) == 3, 12, LABELS))
        traced = jax.jit(function)(SETS, jnp.asarray(LABELS).at[3].set(12))
        assert np.isnan(traced)
        assert np.isnan(function(SETS, LABELS, weights=np.zeros(N)))
        padded = function(SETS, np.where(WEIGHTS == 0, -1, LABELS), weights=WEIGHTS)
        np.testing.assert_allclose(padded, function(SETS, LABELS, weights=WEIGHTS))


def test_mapie() -> None:
    scores = pytest.importorskip("mapie.metrics.classification")
    three = SETS[:, :, None]
    got = metrics.size_stratified_coverage(SETS, LABELS, edges=range(1, K + 1))
    want = scores.classification_ssc_score(LABELS, three)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    want = scores.classification_mean_width_score(three)
    np.testing.assert_allclose(metrics.set_size(SETS), want, rtol=1e-6)
