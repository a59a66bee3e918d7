"""Conformal sets: scores by hand, finite-sample quantiles, coverage by simulation, MAPIE."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from calib_jax import metrics, posthoc

SCORES = ["lac", "aps", "raps"]
N, K = 99, 4


def make_data(seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, K)) * 1.5
    labels = np.argmax(true + rng.gumbel(size=(n, K)), axis=1)
    return softmax(2 * true, axis=1).astype(np.float32), labels


PROBS, LABELS = make_data(0)
NEW, NEW_LABELS = make_data(1)


def score_matrix(probs: np.ndarray, score: str, lam: float, k_reg: int, u: float) -> np.ndarray:
    """The score of every class, one by one, in float64."""
    probs = np.asarray(probs, np.float64)
    result = np.empty_like(probs)
    for i, row in enumerate(probs):
        for k, p in enumerate(row):
            likelier = [q for j, q in enumerate(row) if q > p or (q == p and j < k)]
            penalty = lam * max(len(likelier) + 1 - k_reg, 0) if score == "raps" else 0.0
            result[i, k] = 1 - p if score == "lac" else sum(likelier) + u * p + penalty
    return result


@pytest.mark.parametrize("score", SCORES)
def test_threshold_and_sets_one_by_one(score: str) -> None:
    got = posthoc.ConformalSets.fit(PROBS, LABELS, alpha=0.1, score=score, lam=0.1, k_reg=2)
    labels_scores = score_matrix(PROBS, score, 0.1, 2, 0.5)[np.arange(N), LABELS]
    threshold = np.sort(labels_scores)[90 - 1]  # of rank 0.9 (n + 1)
    np.testing.assert_allclose(got.threshold, threshold, rtol=1e-5)
    want = score_matrix(NEW, score, 0.1, 2, 0.5) <= threshold
    np.testing.assert_array_equal(got(NEW), want)
    assert got(NEW).dtype == bool
    np.testing.assert_array_equal(jax.jit(lambda c, p: c(p))(got, NEW), want)
    np.testing.assert_array_equal(jax.vmap(got)(NEW), want)
    traced = jax.jit(
        lambda p, y: posthoc.ConformalSets.fit(p, y, alpha=0.1, score=score, lam=0.1, k_reg=2)
    )(PROBS, LABELS)
    np.testing.assert_allclose(traced.threshold, threshold, rtol=1e-5)


def test_each_class_has_a_threshold_of_its_examples() -> None:
    got = posthoc.ConformalSets.fit(PROBS, LABELS, alpha=0.2, class_conditional=True)
    assert got.threshold.shape == (K,)
    for k in range(K):
        scores = np.sort(1 - PROBS[k == LABELS, k].astype(np.float64))
        rank = int(np.ceil(0.8 * (len(scores) + 1)))
        np.testing.assert_allclose(got.threshold[k], scores[rank - 1], rtol=1e-5)
    np.testing.assert_array_equal(got(NEW), 1 - np.asarray(got.threshold) <= NEW)


def test_too_few_examples_give_all_classes() -> None:
    """8 examples promise 8/9 at most; 9 promise 0.9, with the largest score."""
    few = posthoc.ConformalSets.fit(PROBS[:8], LABELS[:8], alpha=0.1)
    assert np.isposinf(few.threshold)
    assert np.asarray(few(NEW)).all()
    enough = posthoc.ConformalSets.fit(PROBS[:9], LABELS[:9], alpha=0.1)
    largest = np.max(1 - PROBS[np.arange(9), LABELS[:9]])
    np.testing.assert_allclose(enough.threshold, largest, rtol=1e-6)
    missing = posthoc.ConformalSets.fit(PROBS, LABELS % 3, alpha=0.3, class_conditional=True)
    assert np.isposinf(missing.threshold).tolist() == [False, False, False, True]
    assert np.asarray(missing(NEW))[:, 3].all()


def test_weights() -> None:
    weights = np.arange(N) % 3
    again = np.repeat(np.arange(N), weights)
    broken = np.where(weights[:, None] == 0, np.nan, PROBS)
    labels = np.where(weights == 0, -1, LABELS)
    for options in ({}, {"class_conditional": True}, {"score": "aps"}):
        got = posthoc.ConformalSets.fit(broken, labels, alpha=0.2, weights=weights, **options)
        want = posthoc.ConformalSets.fit(PROBS[again], LABELS[again], alpha=0.2, **options)
        np.testing.assert_allclose(got.threshold, want.threshold, rtol=1e-6)
    nothing = posthoc.ConformalSets.fit(PROBS, LABELS, alpha=0.2, weights=np.zeros(N))
    assert np.isnan(nothing.threshold)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kind", ["one threshold", "class-conditional", "randomized"])
def test_coverage_over_200_draws(score: str, kind: str) -> None:
    """Within the binomial interval, of probabilities that are far from calibrated."""
    if kind == "randomized" and score == "lac":
        pytest.skip("nothing to randomize")
    draws, n, m, alpha = 200, 100, 50, 0.2
    options = {"alpha": alpha, "score": score, "class_conditional": kind == "class-conditional"}

    @jax.jit
    @jax.vmap
    def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(key, 4)
        true = 1.5 * jax.random.normal(keys[0], (n + m, K))
        labels = jax.random.categorical(keys[1], true)
        probs = jax.nn.softmax(3 * true)
        at_fit, at_call = keys[2:] if kind == "randomized" else (None, None)
        calibrator = posthoc.ConformalSets.fit(probs[:n], labels[:n], key=at_fit, **options)
        sets = calibrator(probs[n:], key=at_call)
        per_class = jnp.array([jnp.sum(labels[:n] == k) for k in range(K)])
        return metrics.coverage(sets, labels[n:]), per_class

    covered, per_class = draw(jax.random.split(jax.random.key(0), draws))
    # Between 1 - alpha and 1 - alpha + 1 / (n + 1), n the examples of a threshold; each draw's coverage
    # has the variance of its test rows and that of its threshold.
    count = float(jnp.mean(per_class)) if kind == "class-conditional" else n
    groups = K if kind == "class-conditional" else 1
    deviation = np.sqrt(alpha * (1 - alpha) * (1 / m + 1 / (groups * count)) / draws)
    mean = float(jnp.mean(covered))
    low, high = 1 - alpha, 1 - alpha + 1 / (count * 0.8)
    assert low - 3 * deviation < mean < high + 3 * deviation, (low, mean, high, deviation)


def test_randomized_sets_are_those_of_the_share() -> None:
    """The share is one number for each row, the same for all of its classes."""
    key = jax.random.key(3)
    sets = posthoc.ConformalSets(jnp.array(0.6), "aps")
    share = np.asarray(jax.random.uniform(key, (N, 1)))
    inclusive = score_matrix(NEW, "aps", 0, 0, 1.0)
    np.testing.assert_array_equal(sets(NEW, key=key), inclusive - (1 - share) * NEW <= 0.6)


def test_errors() -> None:
    fit = posthoc.ConformalSets.fit
    for alpha in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=f"alpha={alpha}: expected a value between 0 and 1"):
            fit(PROBS, LABELS, alpha=alpha)
    with pytest.raises(ValueError, match="did you mean 'raps'"):
        fit(PROBS, LABELS, alpha=0.1, score="rap")
    with pytest.raises(ValueError, match="these are logits"):
        fit(np.log(PROBS), LABELS, alpha=0.1)
    with pytest.raises(ValueError, match="these are logits"):
        fit(PROBS, LABELS, alpha=0.1)(np.log(PROBS))
    with pytest.raises(ValueError, match="3 classes; these ConformalSets were fitted to 4"):
        fit(PROBS, LABELS, alpha=0.1)(PROBS[:, :3])
    with pytest.raises(ValueError, match="labels"):
        fit(PROBS, np.full(N, 4), alpha=0.1)
    with pytest.raises(ValueError, match="neither to be negative"):
        fit(PROBS, LABELS, alpha=0.1, lam=-1.0)
    bad = jax.jit(lambda y: fit(PROBS, y, alpha=0.1).threshold)(np.full(N, 4))
    assert np.isnan(bad)


class _Halves(np.random.RandomState):
    """A random state whose uniform numbers are all 1/2, the share that is taken without a key."""

    def uniform(self, low=0.0, high=1.0, size=None):
        return np.full(size, 0.5)


@pytest.mark.parametrize("score", SCORES)
def test_mapie(score: str) -> None:
    """The same thresholds and the same sets as MAPIE, with the same share u = 1/2."""
    sets = pytest.importorskip("mapie.conformity_scores.sets")
    from mapie.conformity_scores.sets.aps import _compute_classification_quantile

    probs, labels = make_data(2, n=500)
    probs = probs.astype(np.float64)
    alpha, lam, k_reg = 0.1, 0.1, 2
    new = NEW.astype(np.float64)
    method = {"lac": sets.LACConformityScore, "aps": sets.APSConformityScore}.get(
        score, sets.RAPSConformityScore
    )()
    method.classes, method.n_classes, method.random_state = np.arange(K), K, _Halves()
    if score == "lac":
        scores = method.get_conformity_scores(labels, probs, y_enc=labels)
    else:
        aps = sets.APSConformityScore
        scores = aps.get_conformity_scores(method, labels, probs, y_enc=labels)
    if score == "raps":  # penalties that were not chosen on part of the data
        method.k_star, method.lambda_star = np.array([k_reg]), lam
        scores = method._regularize_conformity_score(
            method.k_star, method.lambda_star, scores, method.cutoff
        )
    method.quantiles_ = _compute_classification_quantile(scores, np.array([alpha]))
    method.predict_params = {}
    with jax.enable_x64(True):
        ours = posthoc.ConformalSets.fit(
            probs, labels, alpha=alpha, score=score, lam=lam, k_reg=k_reg
        )
        got = np.asarray(ours(new))
    np.testing.assert_allclose(ours.threshold, np.ravel(method.quantiles_)[0], rtol=1e-9)
    theirs = method.get_prediction_sets(
        np.repeat(new[:, :, None], 1, axis=2), scores, np.array([alpha]), "prefit",
        include_last_label="randomized",
    )  # fmt: skip
    differ = got != theirs[:, :, 0]
    if score == "raps":
        # Beyond k_reg classes, MAPIE keeps the last one by another rule than that of its scores.
        assert differ.sum(axis=1).max() <= 1
        differ = differ[np.maximum(got.sum(1), theirs[:, :, 0].sum(1)) <= k_reg]
        assert len(differ) > 30
    assert not differ.any()
