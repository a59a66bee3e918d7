"""Properties that must hold for every metric, on rows that hypothesis makes awkward.

All examples share three shapes (N rows, N minus the removed, the repeated), so that each metric is
compiled three times and not once per example.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib_jax import metrics

N, REMOVED, REPEATED = 12, 4, 20

BINARY = {
    "ece": metrics.ece,
    "ece_left": functools.partial(metrics.ece, closed="left", num_bins=4),
    "ece_l2": functools.partial(metrics.ece, norm=2),
    "ece_mass": functools.partial(metrics.ece, scheme="mass", num_bins=5),
    "mce": metrics.mce,
    "mce_mass": functools.partial(metrics.mce, scheme="mass", num_bins=5),
    "debiased": functools.partial(metrics.ece_debiased, num_bins=3),
    "debiased_l1": functools.partial(metrics.ece_debiased, num_bins=3, norm=1, scheme="width"),
    "sweep_mass": functools.partial(metrics.ece_sweep, scheme="mass"),
    "sweep_width": functools.partial(metrics.ece_sweep, scheme="width"),
    "smooth": metrics.smooth_ece,
    "smooth_fixed": functools.partial(metrics.smooth_ece, bandwidth=0.1),
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
    "f1_macro": metrics.f1,
    "f1_weighted": functools.partial(metrics.f1, average="weighted"),
    "confusion_matrix": metrics.confusion_matrix,
    "refinement": metrics.refinement,
    "classwise": lambda z, y, **kw: metrics.classwise_ece(jax.nn.softmax(z), y, **kw),
}
IN_UNIT_INTERVAL = [k for k in BINARY if k not in ("decomposition", "e_aurc")]
# Equal-mass bins cut the sorted rows, so a bin border may fall inside a repeated row.
EVERY = [*BINARY, *LOGITS]

# Exact edges of 4, 5 and 15 bins, the two ends, close neighbours, and a few values to tie on.
AWKWARD = [0.0, 1.0, 0.25, 0.5, 0.75, 0.2, 0.4, 0.6, 0.8, 1 / 15, 7 / 15, 14 / 15, 0.5000001, 0.3]
confidences = st.lists(
    st.one_of(st.sampled_from(AWKWARD), st.floats(0, 1, width=32)), min_size=N, max_size=N
).map(lambda x: np.array(x, np.float32))
# Both outcomes always occur, in rows 0 and 1, which are never removed: auroc needs them.
outcomes = st.lists(st.booleans(), min_size=N - 2, max_size=N - 2).map(
    lambda x: np.array([1, 0, *x], np.float32)
)
logit_rows = st.lists(
    st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.0, 6.0]), min_size=3 * N, max_size=3 * N
).map(lambda x: np.array(x, np.float32).reshape(N, 3))
class_labels = st.lists(st.integers(0, 2), min_size=N, max_size=N).map(np.array)
orders = st.permutations(range(N)).map(np.array)
removals = st.permutations(range(2, N)).map(lambda x: np.array(sorted(x[:REMOVED])))
# Whole weights with a fixed sum; rows 0 and 1 at least once.
repeats = st.lists(st.integers(0, N - 1), min_size=REPEATED - 2, max_size=REPEATED - 2).map(
    lambda x: np.bincount([0, 1, *x], minlength=N)
)

few = settings(max_examples=25, deadline=None, derandomize=True)


@functools.cache
def compiled(name):
    metric = BINARY.get(name) or LOGITS[name]
    return jax.jit(lambda x, y, w: metric(x, y, weights=w))


def value(name, x, y, weights=None):
    return np.asarray(compiled(name)(x, y, weights))


def close(got, want, **kwargs):
    # Sums in another order: a few float32 roundings of numbers below N.
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5, **kwargs)


@st.composite
def inputs(draw, name):
    if name in BINARY:
        return draw(confidences), draw(outcomes)
    return draw(logit_rows), draw(class_labels)


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
    def check(xy, order, weights):
        x, y = xy
        close(
            value(name, x[order], y[order], np.float32(weights[order])),
            value(name, x, y, np.float32(weights)),
        )

    check()


@pytest.mark.parametrize("name", EVERY)
def test_weight_one_is_no_weight(name):
    @few
    @given(inputs(name))
    def check(xy):
        close(value(name, *xy, np.ones(N, np.float32)), value(name, *xy))

    check()


@pytest.mark.parametrize("name", EVERY)
def test_weight_zero_is_row_removed(name):
    @few
    @given(inputs(name), removals)
    def check(xy, gone):
        x, y = xy
        weights = np.ones(N, np.float32)
        weights[gone] = 0
        close(value(name, x, y, weights), value(name, np.delete(x, gone, 0), np.delete(y, gone, 0)))

    check()


@pytest.mark.parametrize("name", EVERY)
def test_whole_weight_is_row_repeated(name):
    @few
    @given(inputs(name), repeats)
    def check(xy, counts):
        x, y = xy
        got = value(name, x, y, np.float32(counts))
        close(got, value(name, np.repeat(x, counts, 0), np.repeat(y, counts, 0)))

    check()


# --- BinStats as a sum -------------------------------------------------------------------------

bins_of = jax.jit(functools.partial(metrics.bin_stats, num_bins=5))


def same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


@few
@given(confidences, outcomes)
def test_streaming_in_pieces_is_the_batch(conf, correct):
    pieces = [bins_of(conf[i : i + 4], correct[i : i + 4]) for i in range(0, N, 4)]
    a, b, c = pieces
    same(a + b + c, bins_of(conf, correct))


@few
@given(confidences, outcomes)
def test_merging_is_associative_and_commutative(conf, correct):
    a, b, c = [bins_of(conf[i : i + 4], correct[i : i + 4]) for i in range(0, N, 4)]
    same((a + b) + c, a + (b + c))
    same(a + b, b + a)


@few
@given(confidences, outcomes)
def test_streaming_by_given_edges_is_the_batch(conf, correct):
    edges = metrics.bin_stats(conf, correct, num_bins=3, scheme="mass").edges
    by_edges = jax.jit(lambda c, k: metrics.bin_stats(c, k, edges=edges))
    a, b, c = [by_edges(conf[i : i + 4], correct[i : i + 4]) for i in range(0, N, 4)]
    same(a + b + c, by_edges(conf, correct))


@few
@given(confidences, outcomes)
def test_every_row_is_in_exactly_one_bin(conf, correct):
    for scheme in ("width", "mass"):
        stats = metrics.bin_stats(conf, correct, num_bins=5, scheme=scheme)
        np.testing.assert_allclose(np.sum(stats.count), N, rtol=1e-6)
        np.testing.assert_allclose(np.sum(stats.confidence), conf.sum(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.sum(stats.correct), correct.sum(), rtol=1e-5)


@few
@given(confidences, outcomes)
def test_ece_lies_between_the_overall_gap_and_mce(conf, correct):
    # Merging bins can only cancel: |mean confidence - accuracy| <= ECE <= RMS <= MCE.
    gap = abs(conf.mean() - correct.mean())
    one, two, worst = (value(k, conf, correct) for k in ("ece", "ece_l2", "mce"))
    assert gap <= one + 1e-5
    assert one <= two + 1e-5
    assert two <= worst + 1e-5


@few
@given(confidences, outcomes)
def test_swapping_the_outcome_and_the_score_mirrors_auroc(conf, correct):
    close(value("auroc", 1 - conf, correct), 1 - value("auroc", conf, correct))
