"""Soft targets: hand-worked rows, plain loops, degenerate cases, the label update of AutoLabel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import targets


def rows_sum_to_one(rows):
    np.testing.assert_allclose(np.asarray(rows).sum(1), np.ones(len(rows)), rtol=1e-6)
    assert (np.asarray(rows) >= -1e-7).all()


# ------------------------------------------------------------------ one-hot, smoothing, mixing


def test_one_hot():
    got = targets.one_hot(np.array([2, 0]), 3)
    assert got.dtype == jnp.float32
    np.testing.assert_array_equal(got, [[0, 0, 1], [1, 0, 0]])


def test_smooth_hand_numbers():
    # K = 4, s = .3. others: .7 and .3 / 3 = .1; all: .7 + .3 / 4 = .775 and .3 / 4 = .075
    labels = np.array([1, 3])
    others = targets.smooth(labels, 4, 0.3)
    np.testing.assert_allclose(others, [[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]], rtol=1e-6)
    everyone = targets.smooth(labels, 4, 0.3, kind="all")
    np.testing.assert_allclose(
        everyone, [[0.075, 0.775, 0.075, 0.075], [0.075, 0.075, 0.075, 0.775]], rtol=1e-6
    )
    np.testing.assert_array_equal(targets.smooth(labels, 4, 0.3, kind="others"), others)
    assert others.dtype == everyone.dtype == jnp.float32


def test_park_footnote_corrected():
    # the paper prints [.99, .0005, .0005] for sigma = .001; its formula gives .999
    got = targets.smooth(np.array([0]), 3, 0.001)
    np.testing.assert_allclose(got, [[0.999, 0.0005, 0.0005]], rtol=1e-5)


@pytest.mark.parametrize("kind", ["others", "all"])
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.05, 1.0])
def test_smooth_rows_sum_to_one(kind, k, smoothing):
    got = targets.smooth(np.array([0, 1, 1]), k, smoothing, kind=kind)
    rows_sum_to_one(got)
    if smoothing == 0:
        np.testing.assert_array_equal(got, targets.one_hot(np.array([0, 1, 1]), k))


def test_smooth_unknown_kind():
    with pytest.raises(ValueError, match="uniform"):
        targets.smooth(np.array([0]), 3, 0.1, kind="uniform")


def test_mix():
    a, b = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    np.testing.assert_allclose(targets.mix(a, b, 0.25), [[0.25, 0.75], [0.625, 0.375]])
    lam = np.array([1.0, 0.5])  # one weight per row, not per column
    np.testing.assert_allclose(targets.mix(a, b, lam), [[1.0, 0.0], [0.75, 0.25]])
    # three dimensions: the same function mixes inputs
    x, y = np.ones((2, 3, 4)), np.zeros((2, 3, 4))
    got = targets.mix(x, y, lam)
    np.testing.assert_allclose(got, np.broadcast_to(np.array([1, 0.5])[:, None, None], (2, 3, 4)))


# ------------------------------------------------------------------ AutoLabel, eq. 2


def autolabel_loop(labels, confidence, k):
    out = np.zeros((len(labels), k))
    for i, y in enumerate(labels):
        for j in range(k):
            out[i, j] = confidence[i] if j == y else (1 - confidence[i]) / (k - 1)
    return out


@pytest.mark.parametrize("k", [2, 3, 10])
def test_autolabel_equation_2(k):
    labels = np.array([0, 1, 1, 0])
    confidence = np.array([1.0, 0.9, 0.5, 0.0], np.float32)
    got = targets.autolabel(labels, confidence, k)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, autolabel_loop(labels, confidence, k), rtol=1e-6, atol=1e-7)
    rows_sum_to_one(got)
    np.testing.assert_allclose(
        targets.autolabel(labels, 0.8, k), autolabel_loop(labels, [0.8] * 4, k), rtol=1e-6
    )


def test_autolabel_confidence_one_is_one_hot():
    labels = np.array([2, 0])
    np.testing.assert_array_equal(targets.autolabel(labels, 1.0, 3), targets.one_hot(labels, 3))


# ------------------------------------------------------------------ AutoLabel for mixup


def mixup_loop(minor, major, lam, confidence, k):
    out = np.zeros((len(minor), k))
    for i in range(len(minor)):
        c, g = float(confidence[i]), float(lam[i])
        share = min(1 - c, g / (1 - g) * c)
        rest = 1 - c - share
        if minor[i] == major[i]:
            out[i] = rest / (k - 1)
            out[i, major[i]] = c + share
        elif k == 2:
            out[i, major[i]], out[i, minor[i]] = c, 1 - c
        else:
            out[i] = rest / (k - 2)
            out[i, major[i]], out[i, minor[i]] = c, share
    return out


def test_autolabel_mixup_hand_numbers():
    # K = 4, c = .6, g = .25: g/(1-g) c = .2 < .4; rest .2 over 2 classes
    got = targets.autolabel_mixup(np.array([0]), np.array([2]), 0.25, 0.6, 4)
    np.testing.assert_allclose(got, [[0.2, 0.1, 0.6, 0.1]], rtol=1e-5)
    # g = .5: .6 > .4, so the minor class takes all of 1 - c
    got = targets.autolabel_mixup(np.array([0]), np.array([2]), 0.5, 0.6, 4)
    np.testing.assert_allclose(got, [[0.4, 0.0, 0.6, 0.0]], rtol=1e-5, atol=1e-7)
    # same class: .6 + .2 on it, .2 over the 3 others
    got = targets.autolabel_mixup(np.array([2]), np.array([2]), 0.25, 0.6, 4)
    np.testing.assert_allclose(got, [[0.2 / 3, 0.2 / 3, 0.8, 0.2 / 3]], rtol=1e-5)
    # K = 2: nobody else can take the rest
    got = targets.autolabel_mixup(np.array([0]), np.array([1]), 0.25, 0.6, 2)
    np.testing.assert_allclose(got, [[0.4, 0.6]], rtol=1e-5)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_autolabel_mixup_matches_loop(k):
    grid = [
        (i, j, g, c)
        for i in range(2)
        for j in range(2)
        for g in (0.0, 0.1, 0.25, 0.5)
        for c in (0.0, 0.3, 0.75, 1.0)
    ]
    minor, major = (np.array(v) for v in list(zip(*grid, strict=True))[:2])
    lam, confidence = (np.array(v, np.float32) for v in list(zip(*grid, strict=True))[2:])
    got = targets.autolabel_mixup(minor, major, lam, confidence, k)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(
        got, mixup_loop(minor, major, lam, confidence, k), rtol=1e-5, atol=1e-6
    )
    rows_sum_to_one(got)


# ------------------------------------------------------------------ CCAT


def test_ccat_hand_numbers():
    # K = 4, eps = .03, rho = 2: d = .015: g = (1/2)^2 = .25: .25 + .75/4 = .4375 and .1875
    # d = 0: one-hot; d >= eps: uniform
    labels = np.array([0, 1, 2, 3])
    distance = np.array([0.015, 0.0, 0.03, 0.5])
    want = [[0.4375, 0.1875, 0.1875, 0.1875], [0, 1, 0, 0], [0.25] * 4, [0.25] * 4]
    got = targets.ccat(labels, distance, 0.03, 4, rho=2)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    rows_sum_to_one(got)


def test_ccat_default_power_and_eps_per_example():
    # rho = 10, d = eps / 10: .9^10 = .34867844; + (1 - .34867844)/2 = .67433922 for K = 2
    got = targets.ccat(np.array([0, 1]), np.array([0.001, 0.002]), np.array([0.01, 0.02]), 2)
    np.testing.assert_allclose(got, [[0.67433922, 0.32566078], [0.32566078, 0.67433922]], rtol=1e-5)


# ------------------------------------------------------------------ AutoLabel, eq. 1


def test_autolabel_update_hand_numbers():
    # over-confident: .9 - .5 * .1 = .85; under-confident: .9 + .05 = .95; exactly right: unchanged
    # below: .65 - .05 = .6 is raised to the accuracy .62; above: .98 + .05 is cut to 1
    confidence = np.array([0.9, 0.9, 0.9, 0.65, 0.98])
    mean = np.array([0.8, 0.6, 0.7, 0.8, 0.7])
    accuracy = np.array([0.7, 0.7, 0.7, 0.62, 0.9])
    got = targets.autolabel_update(confidence, np.full(5, 0.1), mean, accuracy, 0.5)
    np.testing.assert_allclose(got, [0.85, 0.95, 0.9, 0.62, 1.0], rtol=1e-6)


def test_autolabel_update_scalars_jit_and_trajectory():
    got = targets.autolabel_update(1.0, 0.2, 0.9, 0.6, 0.25)
    np.testing.assert_allclose(got, 0.95, rtol=1e-6)
    # 40 epochs of over-confidence fall by alpha * ece each and stop at the accuracy
    update = jax.jit(targets.autolabel_update)
    table, want = np.ones(3), np.ones(3)
    ece, mean = np.array([0.1, 0.2, 0.3]), np.array([0.9, 0.9, 0.9])
    accuracy = np.array([0.85, 0.5, 0.2])
    for _ in range(40):
        table = update(table, ece, mean, accuracy, 0.05)
        want = np.clip(want - 0.05 * ece * np.sign(mean - accuracy), accuracy, 1)
    np.testing.assert_allclose(table, want, rtol=1e-5)
    assert want[0] == accuracy[0]
    assert want[2] > accuracy[2]


# ------------------------------------------------------------------ jit, vmap, types


CALLS = {
    "one_hot": lambda y, c: targets.one_hot(y, 4),
    "smooth": lambda y, c: targets.smooth(y, 4, 0.1),
    "autolabel": lambda y, c: targets.autolabel(y, c, 4),
    "autolabel_mixup": lambda y, c: targets.autolabel_mixup(y, y[::-1], c / 2, c, 4),
    "ccat": lambda y, c: targets.ccat(y, c, 0.5, 4),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_jit_and_vmap(name):
    labels = np.array([[0, 3, 1], [2, 2, 0]])
    values = np.array([[0.2, 0.9, 0.4], [1.0, 0.0, 0.7]], np.float32)
    want = [CALLS[name](labels[i], values[i]) for i in range(2)]
    jitted = jax.jit(CALLS[name])(labels[0], values[0])
    stacked = jax.jit(jax.vmap(CALLS[name]))(labels, values)
    np.testing.assert_allclose(jitted, want[0], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(stacked, np.stack(want), rtol=1e-6, atol=1e-7)
    for rows in want:
        assert rows.shape == (3, 4)
        assert rows.dtype == jnp.float32
        rows_sum_to_one(rows)


def test_low_precision_confidence_gives_float32_rows():
    got = targets.autolabel(jnp.array([0, 1]), jnp.array([0.75, 0.5], jnp.bfloat16), 11)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got.sum(1), [1.0, 1.0], rtol=1e-6)  # .025 is not a bfloat16
    np.testing.assert_allclose(got[0, 1], 0.025, rtol=1e-6)


def test_shape_errors():
    labels = np.array([0, 1, 2])
    with pytest.raises(ValueError, match="confidence"):
        targets.autolabel(labels, np.ones(2), 3)
    with pytest.raises(ValueError, match="labels"):
        targets.autolabel_mixup(labels, labels[:2], 0.2, 0.5, 3)
    with pytest.raises(ValueError, match="distance"):
        targets.ccat(labels, np.ones(2), 0.5, 3)
    with pytest.raises(ValueError, match="lam"):
        targets.mix(np.ones((3, 2)), np.ones((3, 2)), np.ones(2))
    with pytest.raises(ValueError, match="labels"):  # soft labels of another K
        targets.one_hot(np.ones((3, 2)), 3)


@pytest.mark.parametrize("wrong", [-1, 4])
@pytest.mark.parametrize("name", sorted(set(CALLS) - {"autolabel_mixup"}))
def test_an_invalid_label_has_a_nan_target(name, wrong):
    got = CALLS[name](np.array([0, wrong, 3]), np.array([0.2, 0.9, 0.4]))
    np.testing.assert_array_equal(np.isnan(got).all(1), [False, True, False])
    np.testing.assert_array_equal(np.isnan(got).any(1), [False, True, False])


@pytest.mark.parametrize("wrong", [-1, 4])
def test_either_label_of_a_mixed_pair_may_be_invalid(wrong):
    labels, bad = np.array([0, 1, 3]), np.array([2, wrong, 3])
    for minor, major in ((labels, bad), (bad, labels)):
        got = targets.autolabel_mixup(minor, major, 0.25, 0.6, 4)
        np.testing.assert_array_equal(np.isnan(got).all(1), [False, True, False])
        np.testing.assert_array_equal(np.isnan(got).any(1), [False, True, False])


def test_classes_beyond_the_range_of_the_labels_type():
    got = targets.one_hot(np.array([3, 200], np.uint8), 500)
    np.testing.assert_array_equal(np.argmax(got, 1), [3, 200])
    np.testing.assert_array_equal(np.sum(got, 1), [1, 1])


def test_smooth_soft_labels():
    # K = 3, s = .3 on (1/2, 1/2, 0). others: .7 y + .3 (1 - y) / 2; all: .7 y + .1
    y = np.array([[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(targets.smooth(y, 3, 0.3), [[0.425, 0.425, 0.15]], rtol=1e-6)
    np.testing.assert_allclose(targets.smooth(y, 3, 0.3, "all"), [[0.45, 0.45, 0.1]], rtol=1e-6)


def test_float64_under_x64():
    with jax.enable_x64(True):
        labels, value = np.array([0, 1]), np.array([0.1, 0.7])
        assert targets.one_hot(labels, 3).dtype == jnp.float32
        assert targets.smooth(labels, 3, 0.1).dtype == jnp.float32
        for got in (
            targets.one_hot(np.eye(3), 3),
            targets.smooth(labels, 3, value),
            targets.autolabel(labels, value, 3),
            targets.autolabel_mixup(labels, labels, value / 2, value, 3),
            targets.ccat(labels, value, 1.0, 3),
            targets.mix(np.eye(2), np.ones((2, 2)), np.float32([0.1, 0.2])),
            targets.autolabel_update(value, value, value, value, 0.1),
        ):
            assert got.dtype == jnp.float64
        # In float64 throughout: 0.3 on each of two others is exact to 16 digits.
        got = targets.autolabel(labels, np.array([0.4, 0.7]), 3)
        np.testing.assert_allclose(got, [[0.4, 0.3, 0.3], [0.15, 0.7, 0.15]], rtol=1e-15)


def test_no_examples():
    with pytest.raises(ValueError, match="n = 0"):
        targets.one_hot(np.zeros(0, int), 3)
    with pytest.raises(ValueError, match="n = 0"):
        targets.mix(np.zeros((0, 3)), np.zeros((0, 3)), 0.5)
