"""Training dynamics: margins, area under the margin, data maps, the median split."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import dynamics


def softmax(z):
    e = np.exp(np.asarray(z, np.float64) - np.max(z, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def margin_loop(logits, labels):
    return np.array(
        [
            z[y] - max(v for k, v in enumerate(z) if k != y)
            for z, y in zip(np.asarray(logits, np.float64), labels, strict=True)
        ]
    )


def epochs(seed, n=13, k=4, times=5):
    """Logits [times, n, k] of n examples, fixed labels, and a random visiting order per epoch."""
    rng = np.random.default_rng(seed)
    logits = (2 * rng.normal(size=(times, n, k))).astype(np.float32)
    labels = rng.integers(0, k, n)
    orders = [rng.permutation(n) for _ in range(times)]
    return logits, labels, orders


def batches(order, size=4):
    return [order[i : i + size] for i in range(0, len(order), size)]


def padded(ids, size=4):
    """A short last batch filled with copies of example 0 at weight 0, as a loader would."""
    rows = np.concatenate([ids, np.zeros(size - len(ids), ids.dtype)])
    return rows, (np.arange(size) < len(ids)).astype(np.float32)


# ------------------------------------------------------------------ margin


def test_margin_hand_numbers():
    # 3 - 1 = 2; 1 - 3 = -2; a tie at the top: 0; K = 2: difference of the two
    logits = np.array([[3.0, 1.0, -5.0], [3.0, 1.0, -5.0], [2.0, 2.0, 0.0]])
    np.testing.assert_allclose(dynamics.margin(logits, np.array([0, 1, 0])), [2.0, -2.0, 0.0])
    np.testing.assert_allclose(dynamics.margin(np.array([[-1.0, 4.0]]), np.array([0])), [-5.0])


def test_margin_matches_loop_jit_grad_and_types():
    logits, labels, _ = epochs(0)
    z = logits[0]
    np.testing.assert_allclose(dynamics.margin(z, labels), margin_loop(z, labels), rtol=1e-6)
    np.testing.assert_allclose(
        jax.jit(dynamics.margin)(z, labels), margin_loop(z, labels), rtol=1e-6
    )
    low = jnp.asarray(z, jnp.bfloat16)
    got = dynamics.margin(low, labels)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(
        got, margin_loop(np.asarray(low.astype(jnp.float32)), labels), rtol=1e-6
    )
    grad = jax.grad(lambda z: dynamics.margin(z, labels).sum())(z)
    for row, y, values in zip(np.asarray(grad), labels, z, strict=True):
        rival = max((k for k in range(4) if k != y), key=lambda k, v=values: v[k])
        want = np.zeros(4)
        want[y], want[rival] = 1, -1
        np.testing.assert_array_equal(row, want)
    big = dynamics.margin(np.array([[1e4, -1e4], [-1e4, 1e4]]), np.array([0, 0]))
    np.testing.assert_allclose(big, [2e4, -2e4])


# ------------------------------------------------------------------ AUM


def test_aum_equals_mean_margin_over_epochs():
    logits, labels, orders = epochs(1)
    update = jax.jit(dynamics.aum_update)
    state = dynamics.aum_init(13)
    for t, order in enumerate(orders):
        for chunk in batches(order):
            ids, weights = padded(chunk)
            state = update(state, ids, logits[t][ids], labels[ids], weights)
    want = np.mean([margin_loop(logits[t], labels) for t in range(5)], 0)
    np.testing.assert_allclose(dynamics.aum_values(state), want, rtol=1e-5, atol=1e-6)


def test_aum_under_scan_equals_loop():
    logits, labels, orders = epochs(2, n=12)
    ids = np.stack([np.stack(batches(o)) for o in orders]).reshape(-1, 4)
    steps = np.repeat(np.arange(5), 3)
    z, y = logits[steps[:, None], ids], labels[ids]

    def step(state, batch):
        return dynamics.aum_update(state, *batch), None

    scanned = jax.jit(lambda s: jax.lax.scan(step, s, (ids, z, y))[0])(dynamics.aum_init(12))
    want = np.mean([margin_loop(logits[t], labels) for t in range(5)], 0)
    np.testing.assert_allclose(dynamics.aum_values(scanned), want, rtol=1e-5, atol=1e-6)


def test_aum_unseen_is_nan_and_seen_unevenly_divides_by_its_own_count():
    logits = np.array([[3.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    state = dynamics.aum_init(4)
    assert np.isnan(dynamics.aum_values(state)).all()
    state = dynamics.aum_update(state, np.array([2, 0, 2]), logits, np.zeros(3, np.int32))
    # id 2 twice in one batch: (3 + 5) / 2 = 4; id 0 once: 1
    np.testing.assert_allclose(dynamics.aum_values(state), [1.0, np.nan, 4.0, np.nan])
    state = dynamics.aum_update(state, np.array([2]), logits[:1] * 2, np.ones(1, np.int32))
    np.testing.assert_allclose(dynamics.aum_values(state), [1.0, np.nan, 2 / 3, np.nan], rtol=1e-6)


BAD_IDS = np.array([-1, -4, 4, 1_000_000, 1])


@pytest.mark.parametrize("jit", [False, True])
def test_aum_ignores_ids_outside_and_weight_zero(jit):
    update = jax.jit(dynamics.aum_update) if jit else dynamics.aum_update
    logits, labels = np.tile(np.array([[7.0, 0.0]]), (5, 1)), np.zeros(5, np.int32)
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    state = update(dynamics.aum_init(4), BAD_IDS, logits, labels, weights)
    assert np.isnan(dynamics.aum_values(state)).all()


def test_weight_zero_rows_may_hold_nan():
    # padding is whatever the loader left there: 0 * NaN must not reach the sums
    logits = np.array([[2.0, 0.0], [np.nan, np.inf]])
    ids, labels, weights = np.array([0, 0]), np.array([0, 0]), np.array([1.0, 0.0])
    aum = dynamics.aum_update(dynamics.aum_init(1), ids, logits, labels, weights)
    np.testing.assert_allclose(dynamics.aum_values(aum), [2.0])
    state = dynamics.datamap_update(dynamics.datamap_init(1), ids, logits, labels, weights)
    np.testing.assert_allclose(dynamics.datamap_values(state).confidence, [0.8807971], rtol=1e-6)


# ------------------------------------------------------------------ data maps


def test_datamap_hand_numbers():
    # gold probability 1/4 then 3/4: mean 1/2, population std 1/4, right once of two: 1/2
    state = dynamics.datamap_init(2)
    for odds in (1.0, 9.0):
        logits = np.log(np.array([[odds, 3.0]]))
        state = dynamics.datamap_update(state, np.array([1]), logits, np.array([0]))
    got = dynamics.datamap_values(state)
    np.testing.assert_allclose(got.confidence, [np.nan, 0.5], rtol=1e-6)
    np.testing.assert_allclose(got.variability, [np.nan, 0.25], rtol=1e-5)
    np.testing.assert_allclose(got.correctness, [np.nan, 0.5], rtol=1e-6)


def test_datamap_matches_numpy_mean_and_std():
    logits, labels, orders = epochs(3)
    update = jax.jit(dynamics.datamap_update)
    state = dynamics.datamap_init(13)
    for t, order in enumerate(orders):
        for chunk in batches(order):
            ids, weights = padded(chunk)
            state = update(state, ids, logits[t][ids], labels[ids], weights)
    p = softmax(logits)[:, np.arange(13), labels]
    got = dynamics.datamap_values(state)
    assert got.confidence.dtype == got.variability.dtype == jnp.float32
    np.testing.assert_allclose(got.confidence, p.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.variability, p.std(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got.correctness, (logits.argmax(2) == labels).mean(0), rtol=1e-6)


def test_datamap_under_scan_equals_numpy():
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(size=(9, 3, 2)).astype(np.float32), np.array([0, 1, 1])

    def step(state, z):
        return dynamics.datamap_update(state, np.arange(3), z, labels), None

    state = jax.jit(lambda s: jax.lax.scan(step, s, logits)[0])(dynamics.datamap_init(3))
    p = softmax(logits)[:, np.arange(3), labels]
    np.testing.assert_allclose(
        dynamics.datamap_values(state).variability, p.std(0), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("gap", [0.0, 0.3, 3.0, 7.0, 1e4, -7.0])
def test_datamap_constant_probability_has_no_variability(gap):
    # E[p^2] - E[p]^2 in float32 would leave sqrt(1e-7) = 3e-4 here
    logits = np.array([[gap, 0.0, 0.1]])
    update = jax.jit(dynamics.datamap_update)
    state = dynamics.datamap_init(1)
    for _ in range(30):
        state = update(state, np.array([0]), logits, np.array([0]))
    got = dynamics.datamap_values(state)
    np.testing.assert_allclose(got.variability, [0.0], atol=1e-6)
    np.testing.assert_allclose(got.confidence, softmax(np.asarray(logits))[:, 0], rtol=1e-5)


def test_datamap_small_variability_is_resolved():
    # p moves by 1e-4 around .9: the spread must come out, not the rounding of p^2
    p = np.array([0.9, 0.9001, 0.9002, 0.8999, 0.9])
    state = dynamics.datamap_init(1)
    for v in p:
        logits = np.array([[np.log(v / (1 - v)), 0.0]], jnp.float32)
        state = dynamics.datamap_update(state, np.array([0]), logits, np.array([0]))
    got = dynamics.datamap_values(state).variability
    np.testing.assert_allclose(got, [p.std()], rtol=5e-3)  # p itself carries 6e-8 of 1e-4


def test_datamap_id_twice_in_a_batch_and_bad_ids():
    # gold p: id 0 sees 1/4 and 3/4 in one batch, then 1/2: mean 1/2, std sqrt(1/24) = .20412415
    logits = np.log(np.array([[1.0, 3.0], [3.0, 1.0]]))
    update = jax.jit(dynamics.datamap_update)
    state = update(dynamics.datamap_init(4), np.array([0, 0]), logits, np.array([0, 0]))
    state = update(state, np.array([0, -1]), np.zeros((2, 2)), np.array([0, 0]))
    got = dynamics.datamap_values(state)
    np.testing.assert_allclose(got.confidence, [0.5, np.nan, np.nan, np.nan], rtol=1e-6)
    np.testing.assert_allclose(got.variability[0], 0.20412415, rtol=1e-5)
    seven = np.tile(np.array([[7.0, 0.0]]), (5, 1))
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    state = update(dynamics.datamap_init(4), BAD_IDS, seven, np.zeros(5, np.int32), weights)
    for values in dynamics.datamap_values(state):
        assert np.isnan(values).all()


def test_bfloat16_logits_give_float32_statistics():
    logits = jnp.asarray(np.log([[1.0, 3.0]]), jnp.bfloat16)
    state = dynamics.datamap_update(dynamics.datamap_init(1), np.array([0]), logits, np.array([1]))
    got = dynamics.datamap_values(state)
    want = softmax(np.asarray(logits.astype(jnp.float32)))[0, 1]
    assert got.confidence.dtype == jnp.float32
    np.testing.assert_allclose(got.confidence, [want], rtol=1e-6)


@pytest.mark.parametrize("kind", ["aum", "datamap"])
def test_shape_errors(kind):
    state = getattr(dynamics, f"{kind}_init")(5)
    update = getattr(dynamics, f"{kind}_update")
    ids, logits, labels = np.arange(3), np.zeros((3, 2), np.float32), np.zeros(3, np.int32)
    with pytest.raises(ValueError, match="labels"):
        update(state, ids, logits, labels[:2])
    with pytest.raises(ValueError, match="ids"):
        update(state, ids[:2], logits, labels)
    with pytest.raises(ValueError, match="ids"):  # one row would be counted for three ids
        update(state, ids, logits[:1], labels[:1])
    with pytest.raises(ValueError, match="weights"):
        update(state, ids, logits, labels, np.ones(2, np.float32))
    with pytest.raises(ValueError, match="weights"):  # would count every row three times
        update(state, ids, logits, labels, np.ones((3, 1), np.float32))


def test_margin_shape_error():
    with pytest.raises(ValueError, match="labels"):
        dynamics.margin(np.zeros((3, 2), np.float32), np.zeros(2, np.int32))


# ------------------------------------------------------------------ median split


def split_loop(values):
    """ceil(n/2) largest; NaN below everything; ties to the lower index."""
    key = [(1, -v) if v == v else (2, 0.0) for v in values]
    order = sorted(range(len(values)), key=lambda i: (key[i], i))
    out = np.zeros(len(values), bool)
    out[order[: (len(values) + 1) // 2]] = True
    return out


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([3.0, 1.0, 2.0, 4.0], [1, 0, 0, 1]),
        ([3.0, 1.0, 2.0], [1, 0, 1]),  # odd: the larger half is the high one
        ([5.0], [1]),
        ([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0]),  # all tied: the lower indices
        ([0.0, 2.0, 1.0, 1.0, 1.0, 5.0], [0, 1, 1, 0, 0, 1]),  # tie at the cut
        ([np.nan, 1.0, np.nan, 2.0], [0, 1, 0, 1]),
        ([np.nan, 1.0, np.nan, np.nan, np.nan], [1, 1, 1, 0, 0]),  # NaN ties go by index too
        ([np.nan, -np.inf], [0, 1]),  # NaN is below -inf
        ([-0.0, 0.0], [1, 0]),  # equal numbers, whatever their sign bit
    ],
)
def test_median_split_rules(values, want):
    values = np.array(values, np.float32)
    np.testing.assert_array_equal(split_loop(values), np.array(want, bool))
    got = jax.jit(dynamics.median_split)(values)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, np.array(want, bool))


@pytest.mark.parametrize("seed", range(4))
def test_median_split_matches_loop(seed):
    rng = np.random.default_rng(seed)
    values = rng.choice(np.array([-1.0, 0.0, 0.5, 2.0, np.nan], np.float32), 24 + seed % 2)
    got = np.asarray(jax.jit(dynamics.median_split)(values))
    np.testing.assert_array_equal(got, split_loop(values))
    assert got.sum() == (len(values) + 1) // 2


# ------------------------------------------------------------------ invalid labels, masks, no examples


@pytest.mark.parametrize("wrong", [-1, 3, 99])
def test_an_invalid_label_makes_its_example_nan_and_no_other(wrong):
    logits = np.array([[3.0, 1.0, -5.0], [0.0, 1.0, 2.0], [2.0, 4.0, 0.0]])
    labels, ids = np.array([0, wrong, 1]), np.array([2, 0, 1])
    np.testing.assert_array_equal(dynamics.margin(logits, labels), [2.0, np.nan, 2.0])
    area = dynamics.aum_values(dynamics.aum_update(dynamics.aum_init(3), ids, logits, labels))
    np.testing.assert_array_equal(area, [np.nan, 2.0, 2.0])
    state = dynamics.datamap_update(dynamics.datamap_init(3), ids, logits, labels)
    for statistic in dynamics.datamap_values(state):
        np.testing.assert_array_equal(np.isnan(statistic), [True, False, False])
    # With weight 0 it is padding.
    weights = np.array([1.0, 0.0, 1.0])
    area = dynamics.aum_update(dynamics.aum_init(3), ids, logits, labels, weights)
    chex.assert_tree_all_finite(area)


def test_margin_of_masked_classes():
    # Ahead of a masked class by its logit; ahead of none but masked ones by 1e30.
    logits = np.array(
        [[1.5, -np.inf, 0.5], [1.5, -np.inf, -np.inf], [1.5, -np.inf, 0.5]], np.float32
    )
    value, slope = jax.value_and_grad(
        lambda z: jnp.sum(dynamics.margin(z, np.array([0, 0, 2])) * np.array([1, 0, 1]))
    )(logits)
    np.testing.assert_allclose(value, 0.0)
    np.testing.assert_array_equal(slope, [[1, 0, -1], [0, 0, 0], [-1, 0, 1]])
    np.testing.assert_allclose(dynamics.margin(logits[1:2], np.array([0])), [1e30])
    np.testing.assert_allclose(dynamics.margin(logits[1:2], np.array([1])), [-1e30])


def test_states_are_float32_under_x64_and_stay_what_they_are():
    with jax.enable_x64(True):
        logits, labels, ids = np.eye(3), np.arange(3), np.arange(3)
        for init, update in (
            (dynamics.aum_init, dynamics.aum_update),
            (dynamics.datamap_init, dynamics.datamap_update),
        ):
            state = init(3)
            chex.assert_type(jax.tree.leaves(state), jnp.float32)
            chex.assert_type(jax.tree.leaves(update(state, ids, logits, labels)), jnp.float32)
            wide = jax.tree.map(lambda x: x.astype(jnp.float64), state)
            chex.assert_type(jax.tree.leaves(update(wide, ids, logits, labels)), jnp.float64)


def test_no_examples():
    for call in (
        lambda: dynamics.aum_init(0),
        lambda: dynamics.datamap_init(0),
        lambda: dynamics.margin(np.zeros((0, 3)), np.zeros(0, int)),
        lambda: dynamics.median_split(np.zeros(0)),
    ):
        with pytest.raises(ValueError, match="n = 0"):
            call()
