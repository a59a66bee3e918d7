"""Saliency against autodiff, partners against a brute-force search."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import augment, losses

KEY = jax.random.key(0)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return 0.0 if norms == 0 else float(a @ b / norms)


def similarities(saliency, candidates):
    rows, others = (np.asarray(x, np.float64) for x in (saliency, candidates))
    return np.array([[cosine(row, other) for other in others] for row in rows])


def example(num_classes, n, seed):
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=(n, num_classes)), rng.integers(0, num_classes, n)


@pytest.mark.parametrize("num_classes", [2, 3, 4, 100])
def test_saliency_is_the_slope_of_cross_entropy(num_classes) -> None:
    logits, labels = example(num_classes, 9, 0)
    slope = jax.vmap(jax.grad(losses.cross_entropy))(jnp.asarray(logits, jnp.float32), labels)
    np.testing.assert_allclose(augment.saliency(logits, labels), np.abs(slope), atol=1e-6)
    soft = 0.9 * np.eye(num_classes)[labels] + 0.1 / num_classes
    slope = jax.vmap(jax.grad(losses.cross_entropy))(
        jnp.asarray(logits, jnp.float32), jnp.asarray(soft, jnp.float32)
    )
    found = augment.saliency(logits, jnp.asarray(soft, jnp.float32))
    np.testing.assert_allclose(found, np.abs(slope), atol=1e-6)


@pytest.mark.parametrize("num_classes", [3, 4, 100])
@pytest.mark.parametrize("masked", [False, True])
def test_partners_are_those_of_a_search(num_classes, masked) -> None:
    anchors = np.asarray(augment.saliency(*example(num_classes, 20, 1)))
    others = np.asarray(augment.saliency(*example(num_classes, 30, 2)))
    valid = np.arange(30) % 3 > 0 if masked else None
    all_of_them = similarities(anchors, others)
    allowed = all_of_them[:, valid] if masked else all_of_them
    for function in (augment.partners, jax.jit(augment.partners)):
        nearest, farthest = function(anchors, others, valid=valid)
        if masked:
            assert valid[nearest].all()
            assert valid[farthest].all()
        # By similarity, not by index: two candidates may be as similar as rounding can tell.
        rows = np.arange(20)
        np.testing.assert_allclose(all_of_them[rows, nearest], allowed.max(1), atol=1e-5)
        np.testing.assert_allclose(all_of_them[rows, farthest], allowed.min(1), atol=1e-5)


def test_two_classes_are_all_alike_and_the_first_counts() -> None:
    anchors = augment.saliency(*example(2, 50, 3))
    others = augment.saliency(*example(2, 60, 4))
    for found in augment.partners(anchors, others):
        np.testing.assert_array_equal(found, 0)
    valid = np.arange(60) >= 7
    for found in augment.partners(anchors, others, valid=valid):
        np.testing.assert_array_equal(found, 7)


def test_ties_zeros_and_tiny_vectors() -> None:
    one, two, zero = [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]
    nearest, farthest = augment.partners([one, zero], [zero, two, one, one])
    np.testing.assert_array_equal(nearest, [2, 0])  # of two equal ones the first; zero is like none
    np.testing.assert_array_equal(farthest, [0, 0])
    tiny = np.float32(1e-25) * np.array([[3.0, 4.0, 0.0]])
    nearest, farthest = augment.partners(tiny, [[0.0, 0.0, 1.0], [0.6, 0.8, 0.0]])
    assert (int(nearest[0]), int(farthest[0])) == (1, 0)
    # An example is its own nearest whatever its length.
    x = np.random.default_rng(0).uniform(size=(25, 7))
    np.testing.assert_array_equal(augment.partners(5 * x, x)[0], np.arange(25))


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"expected \[batch, width\] and \[number, width\]"):
        augment.partners(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"valid: expected shape \(2,\), got \(3,\)"):
        augment.partners(np.ones((2, 3)), np.ones((2, 3)), valid=np.ones(3, bool))


def exact_saliency(logits, labels):
    """In float64; `1 - p` as the sum of the others, exact at any margin."""
    rows = []
    for z, y in zip(np.asarray(logits, np.float64), labels, strict=True):
        p = np.exp(z - z.max())
        p /= p.sum()
        p[y] = sum(p[k] for k in range(len(z)) if k != y)
        rows.append(p)
    return np.array(rows)


def test_saliency_keeps_its_gold_entry_at_any_margin() -> None:
    logits = [[18.0, 0, 0], [40.0, 0, 1], [1e4, 0, 0], [1e4, 0, 1e4], [-1e4, 5, 1], [0, -1e4, -1e4]]
    for labels in np.ndindex(3, 3):
        chosen = np.resize(labels, len(logits))
        found = augment.saliency(logits, chosen)
        chex.assert_trees_all_close(found, exact_saliency(logits, chosen), rtol=2e-6, atol=0)
        one_hot = np.eye(3, dtype=np.float32)[chosen]
        chex.assert_trees_all_equal(augment.saliency(logits, one_hot), found)
    # By hand: 2 e^-18 / (1 + 2 e^-18) and half of it; the difference 1 - p_y would be 0.
    found = np.asarray(augment.saliency([[18.0, 0, 0]], [0])[0], np.float64)
    np.testing.assert_allclose(found, [3.04599596e-08, 1.52299798e-08, 1.52299798e-08], rtol=1e-6)


def test_a_confident_example_finds_the_partner_of_its_direction() -> None:
    sure = augment.saliency([[18.0, 0, 0]], [0])  # along (2, 1, 1)
    nearest, farthest = augment.partners(sure, [[0.0, 1, 1], [2.0, 1, 1], [1.0, 0, 0]])
    assert (int(nearest[0]), int(farthest[0])) == (1, 0)


def test_masked_classes_and_labels_that_are_none() -> None:
    logits = [[20.0, -np.inf, 0.0], [0.0, -np.inf, -np.inf], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    found = np.asarray(augment.saliency(logits, [0, 1, 3, -1]))
    np.testing.assert_allclose(found[0], [np.exp(-20.0), 0, np.exp(-20.0)], rtol=1e-5)
    np.testing.assert_array_equal(found[1], [1, 1, 0])
    assert np.isnan(found[2:]).all()


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_gradient_saliency_of_cross_entropy_is_the_closed_form(num_classes) -> None:
    logits, labels = example(num_classes, 11, 5)
    logits[0] = 0.0
    logits[0, labels[0]] = 30.0  # float32 would find no slope along the gold logit

    def loss(z, y):
        return jax.scipy.special.logsumexp(z) - z[y]

    with jax.enable_x64(True):
        slope = augment.gradient_saliency(loss, jnp.asarray(logits), jnp.asarray(labels))
        assert slope.dtype == jnp.float64
        gold = np.asarray(slope)[np.arange(11), labels]
        assert (gold < 0).all(), "with its sign"
        slope = np.abs(np.asarray(slope))
    # 1 - p_y of the first is a difference of numbers near 1, to 16 digits.
    np.testing.assert_allclose(slope, exact_saliency(logits, labels), rtol=1e-10, atol=3e-16)
    found = augment.saliency(logits, labels)
    np.testing.assert_allclose(found, slope, rtol=5e-6, atol=3e-16)


def test_gradient_saliency_is_each_examples_own_at_any_cut() -> None:
    rng = np.random.default_rng(0)
    weight = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
    inputs = {"a": rng.normal(size=(6, 4)), "b": rng.normal(size=(6, 4))}
    inputs = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), inputs)
    labels, masks = jnp.arange(6) % 3, jnp.asarray(rng.integers(0, 2, (6, 4)), jnp.float32)

    def loss(x, label_and_mask):
        label, mask = label_and_mask
        return losses.cross_entropy(mask * x["a"] @ weight + x["b"] @ weight, label)

    found = jax.jit(lambda x: augment.gradient_saliency(loss, x, (labels, masks)))(inputs)
    chex.assert_trees_all_equal_shapes(found, inputs)
    for i in range(6):  # one example after the other: nothing of the batch is mixed or averaged
        alone = jax.grad(loss)(jax.tree.map(lambda x, i=i: x[i], inputs), (labels[i], masks[i]))
        row = jax.tree.map(lambda x, i=i: x[i], found)
        chex.assert_trees_all_close(row, alone, rtol=1e-5, atol=1e-6)


def test_a_key_chooses_among_equals_for_each_anchor() -> None:
    anchors, others = augment.saliency(*example(2, 4000, 3)), augment.saliency(*example(2, 5, 4))
    valid = np.array([True, True, False, True, True])
    find = jax.jit(augment.partners)
    nearest, farthest = (np.asarray(x) for x in find(anchors, others, valid=valid, key=KEY))
    pairs = np.zeros((5, 5))
    np.add.at(pairs, (nearest, farthest), 1 / 4000)
    expected = np.outer(valid, valid) / 16  # independently, each of four: 1/16 ± 0.0038
    np.testing.assert_allclose(pairs, expected, atol=0.02)
    again = find(anchors, others, valid=valid, key=KEY)
    chex.assert_trees_all_equal((nearest, farthest), tuple(map(np.asarray, again)))
    other, _ = find(anchors, others, valid=valid, key=jax.random.key(1))
    assert 0.6 < np.mean(other != nearest) < 0.9


def test_a_key_changes_nothing_where_nobody_is_equal() -> None:
    anchors = augment.saliency(*example(5, 20, 1))
    others = augment.saliency(*example(5, 30, 2))
    # Of each pair of twins one; nothing that is less similar is ever chosen.
    twins = jnp.concatenate([others, others])
    first = augment.partners(anchors, others)
    for found, expected in zip(augment.partners(anchors, twins, key=KEY), first, strict=True):
        chex.assert_trees_all_equal(found % 30, expected)
        assert 0 < np.mean(found >= 30) < 1
    chex.assert_trees_all_equal(augment.partners(anchors, others, key=KEY), first)


def test_partners_under_vmap() -> None:
    anchors = augment.saliency(*example(2, 12, 1)).reshape(3, 4, 2)
    others = augment.saliency(*example(2, 15, 2)).reshape(3, 5, 2)
    keys = jax.random.split(KEY, 3)
    found = jax.vmap(lambda a, b, k: augment.partners(a, b, key=k))(anchors, others, keys)
    for i in range(3):
        alone = augment.partners(anchors[i], others[i], key=keys[i])
        chex.assert_trees_all_equal(tuple(x[i] for x in found), alone)


def test_the_published_clamp_tells_two_classes_apart() -> None:
    """`a · b / max(|a| |b|, eps)` of slopes of a batch's mean, in float64."""
    rng = np.random.default_rng(8)
    margins = np.concatenate([rng.normal(0.0, 1.0, 8), rng.uniform(6.0, 12.0, 8)])
    logits = np.stack([margins, np.zeros(16)], axis=1)
    saliency = exact_saliency(logits, np.zeros(16, int)) / 16
    clamped = saliency @ saliency.T
    lengths = np.linalg.norm(saliency, axis=1)
    clamped /= np.maximum(np.outer(lengths, lengths), 1e-6)
    found = augment.partners(saliency, saliency, key=KEY, eps=1e-6)
    nearest, farthest = (np.asarray(x) for x in found)
    rows = np.arange(16)
    np.testing.assert_allclose(clamped[rows, nearest], clamped.max(1), atol=4e-6)
    np.testing.assert_allclose(clamped[rows, farthest], clamped.min(1), atol=4e-6)
    assert (nearest != farthest).all()
    # Not so for the cosine, which is 1 for all; the first of all is nearest and farthest.
    np.testing.assert_array_equal(augment.partners(saliency, saliency), 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_no_silent_promotion(dtype) -> None:
    strict = {"jax_numpy_dtype_promotion": "strict", "jax_numpy_rank_promotion": "raise"}
    before = {name: getattr(jax.config, name) for name in strict}
    try:
        for name, value in strict.items():
            jax.config.update(name, value)
        with jax.enable_x64(True):
            logits = jnp.asarray(example(4, 6, 0)[0], dtype)
            saliency = augment.saliency(logits, jnp.arange(6) % 4)
            chosen = augment.partners(saliency, saliency[::-1], valid=jnp.ones(6, bool), key=KEY)
            chex.assert_shape(chosen, (6,))
            np.testing.assert_array_equal(chosen[0], np.arange(6)[::-1])
            assert augment.partners(saliency, saliency, eps=1e-6)[0].shape == (6,)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
