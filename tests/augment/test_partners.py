"""Saliency against autodiff, partners against a brute-force search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import augment, losses


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
