"""Properties that must hold for every metric, on rows that hypothesis makes awkward.

All examples have N or LONG rows: each metric is compiled a few times, not once per example.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import quick_jit

from calib_jax import metrics

N, LONG = 12, 18


BINARY = {
    "ece": metrics.ece,
    "ece_l2": functools.partial(metrics.ece, norm=2),
    "ece_mass": functools.partial(metrics.ece, scheme="mass", num_bins=5),
    "mce": metrics.mce,
    "debiased": functools.partial(metrics.ece_debiased, num_bins=3),
    "debiased_l1": functools.partial(metrics.ece_debiased, num_bins=3, norm=1, scheme="width"),
    "sweep": metrics.ece_sweep,
    "smooth": functools.partial(metrics.smooth_ece, bandwidth=0.1),
    "aurc": metrics.aurc,
    "e_aurc": metrics.e_aurc,
    "auroc": metrics.auroc,
    "fpr_at_tpr": metrics.fpr_at_tpr,
    "decomposition": lambda c, k, **kw: jnp.stack(metrics.brier_decomposition(c, k, **kw)),
}
LOGITS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.nll,
    "brier_score": metrics.brier_score,
    "f1": metrics.f1,
    "confusion_matrix": metrics.confusion_matrix,
    "refinement": metrics.refinement,
    "classwise": lambda z, y, **kw: metrics.classwise_ece(jax.nn.softmax(z), y, **kw),
}
IN_UNIT_INTERVAL = [k for k in BINARY if k not in ("decomposition", "e_aurc")]
EVERY = [*BINARY, *LOGITS]

# Exact edges of 4, 5 and 15 bins, the two ends, close neighbours, and a few values to tie on.
AWKWARD = [0.0, 1.0, 0.25, 0.5, 0.75, 0.2, 0.4, 0.6, 0.8, 1 / 15, 7 / 15, 14 / 15, 0.5000001, 0.3]


def rows_of(n):
    """(confidence, correct); both outcomes occur, in rows 0 and 1: auroc needs them."""
    value = st.one_of(st.sampled_from(AWKWARD), st.floats(0, 1, width=32))
    return st.tuples(
        st.lists(value, min_size=n, max_size=n).map(lambda x: np.array(x, np.float32)),
        st.lists(st.booleans(), min_size=n - 2, max_size=n - 2).map(
            lambda x: np.array([1, 0, *x], np.float32)
        ),
    )


def classes_of(n):
    """(logits of 3 classes, labels), with many equal logits."""
    logit = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 6.0])
    return st.tuples(
        st.lists(logit, min_size=3 * n, max_size=3 * n).map(
            lambda x: np.array(x, np.float32).reshape(n, 3)
        ),
        st.lists(st.integers(0, 2), min_size=n, max_size=n).map(np.array),
    )


def inputs(name, n=N):
    return rows_of(n) if name in BINARY else classes_of(n)


orders = st.permutations(range(N)).map(np.array)
# Rows 0 and 1 are never removed.
removals = st.permutations(range(2, LONG)).map(lambda x: np.array(sorted(x[: LONG - N])))
# Whole weights of sum LONG; rows 0 and 1 at least once.
repeats = st.lists(st.integers(0, N - 1), min_size=LONG - 2, max_size=LONG - 2).map(
    lambda x: np.bincount([0, 1, *x], minlength=N)
)

few = settings(max_examples=20, deadline=None, derandomize=True)


@functools.cache
def compiled(name):
    metric = BINARY.get(name) or LOGITS[name]
    return quick_jit(lambda x, y, w: metric(x, y, weights=w))


def value(name, x, y, weights=None):
    weights = np.ones(len(y)) if weights is None else weights
    return np.asarray(compiled(name)(x, y, np.float32(weights)))


def close(got, want, **kwargs):
    # Sums in another order: a few float32 roundings of numbers below N.
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5, **kwargs)


@pytest.mark.parametrize("name", IN_UNIT_INTERVAL)
def test_in_unit_interval(name):
    @few
    @given(inputs(name))
    def check(xy):
        got = value(name, *xy)
        assert -1e-6 <= got <= 1 + 1e-6

    check()


@pytest.mark.parametrize("name", EVERY)
def test_permutation_invariant(name):
    @few
    @given(inputs(name), orders)
    def check(xy, order):
        x, y = xy
        close(value(name, x[order], y[order]), value(name, x, y))

    check()


@pytest.mark.parametrize("name", EVERY)
def test_permutation_invariant_with_weights(name):
    @few
    @given(inputs(name), orders, repeats)
    def check(xy, order, counts):
        x, y = xy
        close(value(name, x[order], y[order], counts[order]), value(name, x, y, counts))

    check()


@pytest.mark.parametrize("name", EVERY)
def test_weight_one_is_no_weight(name):
    @few
    @given(inputs(name))
    def check(xy):
        close(value(name, *xy), np.asarray(compiled(name)(*xy, None)))

    check()


@pytest.mark.parametrize("name", EVERY)
def test_weight_zero_is_row_removed(name):
    @few
    @given(inputs(name, LONG), removals)
    def check(xy, gone):
        x, y = xy
        weights = np.ones(LONG)
        weights[gone] = 0
        close(value(name, x, y, weights), value(name, np.delete(x, gone, 0), np.delete(y, gone, 0)))

    check()


@pytest.mark.parametrize("name", EVERY)
def test_whole_weight_is_row_repeated(name):
    @few
    @given(inputs(name), repeats)
    def check(xy, counts):
        x, y = xy
        close(value(name, x, y, counts), value(name, np.repeat(x, counts, 0), np.repeat(y, counts)))

    check()


# --- BinStats as a sum -------------------------------------------------------------------------

bins_of = quick_jit(functools.partial(metrics.bin_stats, num_bins=5))
by_mass = quick_jit(functools.partial(metrics.bin_stats, num_bins=5, scheme="mass"))
by_edges = quick_jit(lambda conf, correct, edges: metrics.bin_stats(conf, correct, edges=edges))


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


@few
@given(rows_of(N))
def test_streaming_in_pieces_is_the_batch(rows):
    conf, correct = rows
    pieces = [bins_of(conf[i : i + 4], correct[i : i + 4]) for i in range(0, N, 4)]
    a, b, c = pieces
    same(a + b + c, bins_of(conf, correct))


@few
@given(rows_of(N))
def test_merging_is_associative_and_commutative(rows):
    conf, correct = rows
    a, b, c = [bins_of(conf[i : i + 4], correct[i : i + 4]) for i in range(0, N, 4)]
    same((a + b) + c, a + (b + c))
    same(a + b, b + a)


@few
@given(rows_of(N))
def test_streaming_by_given_edges_is_the_batch(rows):
    conf, correct = rows
    edges = by_mass(conf, correct).edges
    a, b, c = [by_edges(conf[i : i + 4], correct[i : i + 4], edges) for i in range(0, N, 4)]
    same(a + b + c, by_edges(conf, correct, edges))


@few
@given(rows_of(N))
def test_every_row_is_in_exactly_one_bin(rows):
    conf, correct = rows
    for stats in (bins_of(conf, correct), by_mass(conf, correct)):
        np.testing.assert_allclose(np.sum(stats.count), N, rtol=1e-6)
        np.testing.assert_allclose(np.sum(stats.confidence), conf.sum(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.sum(stats.correct), correct.sum(), rtol=1e-5)


@few
@given(rows_of(N))
def test_ece_lies_between_the_overall_gap_and_mce(rows):
    conf, correct = rows
    # Merging bins can only cancel: |mean confidence - accuracy| <= ECE <= RMS <= MCE.
    gap = abs(conf.mean() - correct.mean())
    one, two, worst = (value(k, conf, correct) for k in ("ece", "ece_l2", "mce"))
    assert gap <= one + 1e-5
    assert one <= two + 1e-5
    assert two <= worst + 1e-5


@few
@given(rows_of(N))
def test_negated_scores_mirror_auroc(rows):
    conf, correct = rows
    close(value("auroc", -conf, correct), 1 - value("auroc", conf, correct))
