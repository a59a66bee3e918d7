"""bin_stats and BinStats: which row lands in which bin, by hand and by plain Python loops."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit, run

from calib_jax import metrics
from calib_jax.metrics import _binning


def loop_width(conf, correct, num_bins, closed, weights=None):
    """Sums per equal-width bin, one row at a time: [count, confidence, correct]."""
    inner = [np.float32(i / num_bins) for i in range(1, num_bins)]
    sums = np.zeros((3, num_bins))
    for i, p in enumerate(np.asarray(conf, np.float32)):
        w = 1.0 if weights is None else float(weights[i])
        b = sum(e < p if closed == "right" else e <= p for e in inner)
        sums[:, b] += w, w * float(p), w * float(correct[i])
    return sums


def loop_mass(conf, correct, num_bins, weights=None):
    """Sums per equal-mass bin: row of rank r -> bin floor(r M / N); tied rows share their mean."""
    conf = [float(p) for p in np.asarray(conf, np.float32)]
    weights = [1] * len(conf) if weights is None else [int(w) for w in weights]
    shared = []
    for p in conf:
        group = [i for i, q in enumerate(conf) if q == p and weights[i]]
        mass = sum(weights[i] for i in group)
        shared.append(sum(weights[i] * float(correct[i]) for i in group) / mass if mass else 0.0)
    sums, before, total = np.zeros((3, num_bins)), 0, sum(weights)
    for i in sorted(range(len(conf)), key=lambda i: conf[i]):
        b = min(num_bins - 1, before * num_bins // total)
        sums[:, b] += weights[i], weights[i] * conf[i], weights[i] * shared[i]
        before += weights[i]
    return sums


def stacked(stats):
    return np.stack([stats.count, stats.confidence, stats.correct])


def make_rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    conf = rng.uniform(0.05, 1.0, n).astype(np.float32)
    return conf, (rng.uniform(size=n) < conf**2).astype(np.float32)


def test_width_by_hand():
    # Four bins of width 1/4, right-closed: 0.25 belongs to the first, 0.26 to the second.
    stats = run(
        metrics.bin_stats,
        jnp.array([0.1, 0.25, 0.26, 0.9, 1.0]),
        jnp.array([0, 1, 1, 1, 0]),
        num_bins=4,
    )
    np.testing.assert_allclose(stats.count, [2, 1, 0, 2])
    np.testing.assert_allclose(stats.confidence, [0.35, 0.26, 0, 1.9], atol=1e-6)
    np.testing.assert_allclose(stats.correct, [1, 1, 0, 1])
    np.testing.assert_allclose(stats.edges, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(stats.weight, [0.4, 0.2, 0, 0.4], atol=1e-6)
    # The empty third bin has gap 0, not NaN and not 0 - 0 / eps.
    np.testing.assert_allclose(stats.gap, [0.175 - 0.5, 0.26 - 1, 0, 0.95 - 0.5], atol=1e-6)
    # 0.4 * 0.325 + 0.2 * 0.74 + 0.4 * 0.45
    np.testing.assert_allclose(stats.ece(), 0.458, atol=1e-6)
    np.testing.assert_allclose(stats.mce(), 0.74, atol=1e-6)
    rms = np.sqrt(0.4 * 0.325**2 + 0.2 * 0.74**2 + 0.4 * 0.45**2)
    np.testing.assert_allclose(stats.ece(norm=2), rms, atol=1e-6)


def test_derived_properties_are_ratios_of_the_sums():
    stats = run(metrics.bin_stats, *make_rows(), num_bins=5)
    full = np.asarray(stats.count) > 0
    assert full.all()
    np.testing.assert_allclose(stats.accuracy, stats.correct / stats.count, rtol=1e-6)
    np.testing.assert_allclose(stats.mean_confidence, stats.confidence / stats.count, rtol=1e-6)
    np.testing.assert_allclose(stats.gap, stats.mean_confidence - stats.accuracy, atol=1e-7)
    np.testing.assert_allclose(np.sum(stats.weight), 1, rtol=1e-6)


@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_width_against_loop(num_bins, closed):
    conf, correct = make_rows()
    got = run(metrics.bin_stats, conf, correct, num_bins=num_bins, closed=closed)
    np.testing.assert_allclose(
        stacked(got), loop_width(conf, correct, num_bins, closed), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("num_bins", [4, 15, 300])
def test_mass_against_loop(num_bins):
    # 300 bins for 200 rows: more bins than rows leaves bins empty (torch-uncertainty#300).
    conf, correct = make_rows()
    got = run(metrics.bin_stats, conf, correct, num_bins=num_bins, scheme="mass")
    # A bin is a difference of running sums up to 100: each carries 1e-7 of that.
    np.testing.assert_allclose(
        stacked(got), loop_mass(conf, correct, num_bins), rtol=1e-5, atol=2e-5
    )


def test_mass_by_hand_with_uneven_bins():
    # N=5, M=2: ranks 0,1,2 go to floor(2r/5) = 0, ranks 3,4 to 1. Rows given out of order.
    conf, correct = jnp.array([0.9, 0.1, 0.5, 0.7, 0.3]), jnp.array([1, 0, 1, 0, 0])
    stats = run(metrics.bin_stats, conf, correct, num_bins=2, scheme="mass")
    np.testing.assert_allclose(stacked(stats), [[3, 2], [0.9, 1.6], [1, 1]], rtol=1e-6, atol=1e-6)


def test_mass_ties_share_their_mean_correctness():
    # All confidences equal: rank still splits them 2/2/2 (TrustLens#163), each bin at mean 1/3.
    conf, correct = jnp.full(6, 0.8), jnp.array([1, 1, 0, 0, 0, 0])
    stats = run(metrics.bin_stats, conf, correct, num_bins=3, scheme="mass")
    np.testing.assert_allclose(stats.count, [2, 2, 2])
    np.testing.assert_allclose(stats.accuracy, [1 / 3] * 3, rtol=1e-6)
    np.testing.assert_allclose(stats.ece(), 0.8 - 1 / 3, rtol=1e-6)


def test_mass_ties_against_loop():
    conf, correct = make_rows()
    conf = np.round(conf, 1)  # ten distinct values: long runs of ties across bin borders
    got = run(metrics.bin_stats, conf, correct, num_bins=15, scheme="mass")
    np.testing.assert_allclose(stacked(got), loop_mass(conf, correct, 15), rtol=1e-5, atol=1e-5)


def test_mass_ranks_skip_rows_of_weight_zero():
    conf, correct = make_rows()
    weights = np.random.default_rng(1).integers(0, 2, len(conf))
    got = run(metrics.bin_stats, conf, correct, num_bins=10, scheme="mass", weights=weights)
    np.testing.assert_allclose(
        stacked(got), loop_mass(conf, correct, 10, weights), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("num_bins", [10, 13, 15, 100])
@pytest.mark.parametrize("closed", ["right", "left"])
def test_exact_edges_and_their_float_neighbours(num_bins, closed):
    # p * M in float32 rounds across the border for some i/M; comparing with the edge does not.
    inner = np.array([np.float32(i / num_bins) for i in range(1, num_bins)])
    conf = np.concatenate([inner, np.nextafter(inner, 0), np.nextafter(inner, 1)])
    below, above = np.arange(num_bins - 1), np.arange(1, num_bins)
    at = below if closed == "right" else above
    want = np.bincount(np.concatenate([at, below, above]), minlength=num_bins)
    stats = run(
        metrics.bin_stats,
        conf.astype(np.float32),
        np.zeros(len(conf)),
        num_bins=num_bins,
        closed=closed,
    )
    np.testing.assert_array_equal(stats.count, want)


@pytest.mark.parametrize("scheme", ["width", "mass"])
@pytest.mark.parametrize("closed", ["right", "left"])
def test_zero_and_one_are_first_and_last_bin(scheme, closed):
    # torchmetrics#1646 (0 crashed) and #3510 (1 fell into a hidden extra bin).
    stats = run(
        metrics.bin_stats,
        jnp.array([0.0, 1.0]),
        jnp.array([0, 1]),
        num_bins=2,
        scheme=scheme,
        closed=closed,
    )
    np.testing.assert_array_equal(stats.count, [1, 1])
    np.testing.assert_array_equal(stats.confidence, [0, 1])


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_one_row(scheme):
    stats = run(metrics.bin_stats, jnp.array([0.7]), jnp.array([1]), num_bins=15, scheme=scheme)
    assert np.isfinite(stacked(stats)).all()
    np.testing.assert_allclose(np.sum(stats.count), 1)
    np.testing.assert_allclose(stats.ece(), 0.3, atol=1e-6)
    np.testing.assert_allclose(stats.mce(), 0.3, atol=1e-6)


@pytest.mark.parametrize("closed", ["right", "left"])
def test_given_edges(closed):
    edges = jnp.array([0.0, 0.5, 0.8, 1.0])
    conf = jnp.array([0.0, 0.5, 0.6, 0.8, 0.95, 1.0])
    stats = metrics.bin_stats(conf, jnp.ones(6), edges=edges, closed=closed)
    np.testing.assert_array_equal(stats.count, [2, 2, 2] if closed == "right" else [1, 2, 3])
    np.testing.assert_array_equal(stats.edges, edges)


def test_mass_edges_bin_the_same_rows_again():
    # Streaming equal-mass: edges found on one set, then used for others.
    conf, correct = make_rows()
    stats = run(metrics.bin_stats, conf, correct, num_bins=8, scheme="mass")
    edges = np.asarray(stats.edges)
    assert edges.shape == (9,)
    assert edges[0] == 0
    assert edges[-1] == 1
    assert (np.diff(edges) > 0).all()
    again = metrics.bin_stats(conf, correct, edges=stats.edges)
    np.testing.assert_allclose(stacked(again), stacked(stats), rtol=1e-5, atol=1e-6)


def test_addition_merges_and_keeps_left_edges():
    conf, correct = make_rows()
    whole = run(metrics.bin_stats, conf, correct)
    parts = [run(metrics.bin_stats, conf[s], correct[s]) for s in (slice(0, 70), slice(70, 200))]
    merged = parts[0] + parts[1]
    np.testing.assert_allclose(stacked(merged), stacked(whole), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(merged.edges, parts[0].edges)


def test_addition_refuses_other_edges():
    conf, correct = make_rows()
    a, b = (
        metrics.bin_stats(conf[s], correct[s], scheme="mass") for s in (slice(70), slice(70, 200))
    )
    with pytest.raises(ValueError, match="different edges"):
        a + b
    with pytest.raises(ValueError, match="different edges"):
        a + run(metrics.bin_stats, conf, correct)
    # The way to merge parts: all by the edges of one of them.
    again = metrics.bin_stats(conf[70:], correct[70:], edges=a.edges)
    np.testing.assert_allclose(np.sum((a + again).count), 200)


def test_addition_inside_jit_and_scan():
    conf, correct = make_rows()
    parts = run(metrics.bin_stats, conf, correct), run(metrics.bin_stats, 1 - conf, correct)
    want = stacked(parts[0] + parts[1])
    np.testing.assert_array_equal(stacked(jax.jit(lambda a, b: a + b)(*parts)), want)
    np.testing.assert_array_equal(stacked(jax.jit(lambda a: a + parts[1])(parts[0])), want)
    np.testing.assert_array_equal(stacked(jax.jit(lambda: parts[0] + parts[1])()), want)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    empty = jax.tree.map(jnp.zeros_like, parts[0])
    total, _ = jax.lax.scan(lambda sums, part: (part + sums, None), empty, both)
    np.testing.assert_allclose(stacked(total), want, rtol=1e-6)
    np.testing.assert_array_equal(total.edges, parts[0].edges)


def test_padding_weighs_nothing_even_if_not_finite():
    conf, correct = make_rows(50)
    weights = np.r_[np.ones(50), np.zeros(14)]
    for pad in (0.0, 0.5, 1.0, np.nan, -np.nan):
        padded = np.r_[conf, np.full(14, pad)].astype(np.float32)
        for scheme in ("width", "mass"):
            want = run(metrics.bin_stats, conf, correct, num_bins=6, scheme=scheme)
            got = run(
                metrics.bin_stats,
                padded,
                np.r_[correct, np.ones(14)],
                num_bins=6,
                scheme=scheme,
                weights=weights,
            )
            np.testing.assert_allclose(stacked(got), stacked(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_bfloat16_rows_give_float32_sums(scheme):
    # 2000 rows: a bfloat16 counter would stop at 256.
    conf = jnp.asarray(make_rows(2000)[0]).astype(jnp.bfloat16)
    correct = jnp.asarray(make_rows(2000)[1]).astype(jnp.bfloat16)
    got = run(metrics.bin_stats, conf, correct, num_bins=4, scheme=scheme)
    want = run(
        metrics.bin_stats,
        conf.astype(jnp.float32),
        correct.astype(jnp.float32),
        num_bins=4,
        scheme=scheme,
    )
    assert all(x.dtype == jnp.float32 for x in (got.count, got.confidence, got.correct))
    np.testing.assert_allclose(stacked(got), stacked(want), rtol=1e-6)


def test_a_million_equal_rows_do_not_drift():
    # Adding 0.9 one row at a time in float32 rounds every addition the same way (2 % off).
    n = 2**20
    conf, correct = np.full(n, 0.9, np.float32), np.arange(n) % 10 != 0
    stats = run(metrics.bin_stats, conf, correct)
    np.testing.assert_allclose(np.sum(stats.confidence), n * np.float64(np.float32(0.9)), rtol=1e-4)
    np.testing.assert_allclose(stats.ece(), 0.0, atol=1e-4)


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32])
def test_correct_may_be_bool_int_or_float(dtype):
    conf, correct = make_rows()
    np.testing.assert_array_equal(
        stacked(run(metrics.bin_stats, conf, correct.astype(dtype))),
        stacked(run(metrics.bin_stats, conf, correct)),
    )


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_jit_and_vmap_parity(scheme):
    conf, correct = make_rows()

    def f(c, k):
        return stacked_jnp(metrics.bin_stats(c, k, num_bins=6, scheme=scheme))

    def stacked_jnp(s):
        return jnp.stack([s.count, s.confidence, s.correct])

    want = np.stack([f(conf[i::4], correct[i::4]) for i in range(4)])
    batch = jnp.stack([conf[i::4] for i in range(4)]), jnp.stack([correct[i::4] for i in range(4)])
    np.testing.assert_allclose(quick_jit(jax.vmap(f))(*batch), want, rtol=1e-6, atol=1e-6)
    # BinStats itself crosses a jit border.
    through = jax.jit(lambda s: s + s)(run(metrics.bin_stats, conf, correct))
    np.testing.assert_allclose(np.sum(through.count), 400)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"scheme": "quantile"}, "quantile"),
        ({"closed": "both"}, "both"),
        ({"num_bins": 0}, "0"),
        ({"weights": np.ones(3)}, "3"),
    ],
)
def test_bad_arguments_name_the_value(kwargs, match):
    conf, correct = make_rows(10)
    with pytest.raises(ValueError, match=match):
        run(metrics.bin_stats, conf, correct, **kwargs)


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_no_rows_is_an_error(scheme):
    with pytest.raises(ValueError, match=r"0|empty|no "):
        run(metrics.bin_stats, jnp.zeros(0), jnp.zeros(0), scheme=scheme)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="3"):
        run(metrics.bin_stats, jnp.full(4, 0.5), jnp.ones(3))


# --- one switch, two backends ------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 100, 20_000])
@pytest.mark.parametrize("num_bins", [1, 15, 29])
def test_scatter_and_compare_agree(n, num_bins):
    # 20,000 rows make the scatter side work in several chunks, the last one short.
    rng = np.random.default_rng(n)
    index = rng.integers(0, num_bins, n).astype(np.int32)
    columns = [rng.uniform(size=n).astype(np.float32) for _ in range(3)]
    scatter = _binning._scatter_sums(index, num_bins, columns)
    compare = _binning._compare_sums(index, num_bins, columns)
    want = [np.bincount(index, c, num_bins) for c in columns]
    np.testing.assert_allclose(np.stack(scatter), want, rtol=2e-6)
    np.testing.assert_allclose(np.stack(compare), want, rtol=2e-6)


def test_groups_are_binned_each_by_itself():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 7, (3000, 4)).astype(np.int32)
    column = rng.uniform(size=(3000, 4)).astype(np.float32)
    want = [np.bincount(index[:, g], column[:, g], 7) for g in range(4)]
    for sums in (_binning._scatter_sums, _binning._compare_sums):
        np.testing.assert_allclose(sums(jnp.asarray(index), 7, [column])[0], want, rtol=2e-6)


def test_the_switch_takes_scatter_on_cpu_and_compare_elsewhere():
    bins = jax.jit(lambda index, *columns: _binning.bin_sums(index, 15, *columns))
    index, column = jnp.zeros(64, jnp.int32), jnp.ones(64)
    for platform, scatters in (("cpu", True), ("cuda", False), ("tpu", False)):
        exported = jax.export.export(bins, platforms=[platform])(index, column, column)
        assert ("stablehlo.scatter" in exported.mlir_module()) == scatters, platform


@pytest.mark.parametrize(
    "metric",
    [
        metrics.ece,
        functools.partial(metrics.ece, scheme="mass"),
        functools.partial(metrics.ece, scheme="mass", weights=np.ones(64)),
        metrics.ece_sweep,
        metrics.smooth_ece,
    ],
)
def test_lowers_for_every_platform(metric):
    conf, correct = make_rows(64)
    exported = jax.export.export(jax.jit(metric), platforms=["cpu", "cuda", "tpu"])(conf, correct)
    assert set(exported.platforms) == {"cpu", "cuda", "tpu"}
