"""Losses of yes/no labels against float64 formulas, and against the softmax losses of two logits."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses

RNG = np.random.default_rng(0)
LOGITS = 3 * RNG.normal(size=(40, 3))
LABELS = RNG.integers(0, 2, (40, 3))
SOFT = RNG.random((40, 3))
STATE = losses.AdaFocalState(
    edges=jnp.array([0.3, 0.5, 0.9]), gamma=jnp.array([3.0, 0.5, -2.0, -0.3])
)


def _focal(p: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """The loss of an answer that has probability p."""
    weight = np.where(gamma >= 0, (1 - p) ** np.abs(gamma), (1 + p) ** np.abs(gamma))
    return -weight * np.log(p)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0, -2.0])
@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["hard", "soft"])
def test_focal_in_float64(gamma: float, labels: np.ndarray) -> None:
    p = 1 / (1 + np.exp(-LOGITS))
    want = labels * _focal(p, np.array(gamma)) + (1 - labels) * _focal(1 - p, np.array(gamma))
    with jax.enable_x64(True):
        np.testing.assert_allclose(losses.sigmoid_focal(LOGITS, labels, gamma), want, rtol=1e-12)
    np.testing.assert_allclose(
        losses.sigmoid_focal(LOGITS.astype(np.float32), labels, gamma),
        want,
        rtol=2e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["hard", "soft"])
def test_adafocal_looks_up_the_true_answers_probability(labels: np.ndarray) -> None:
    p = 1 / (1 + np.exp(-LOGITS))
    gammas = np.asarray(STATE.gamma, np.float64)

    def loss(q: np.ndarray) -> np.ndarray:
        return _focal(q, gammas[np.digitize(q, np.asarray(STATE.edges, np.float64))])

    want = labels * loss(p) + (1 - labels) * loss(1 - p)
    with jax.enable_x64(True):
        np.testing.assert_allclose(losses.sigmoid_adafocal(LOGITS, labels, STATE), want, rtol=1e-7)


def test_one_label_is_the_softmax_loss_of_two_logits() -> None:
    z, y = jnp.asarray(LOGITS[:, 0], jnp.float32), LABELS[:, 0]
    gamma = jnp.asarray(np.resize([0.0, 0.4, 2.0, -1.0], z.shape), jnp.float32)

    def two(z: jax.Array) -> jax.Array:
        return jnp.stack([jnp.zeros_like(z), z], axis=-1)

    pairs = [
        (lambda z: losses.sigmoid_focal(z, y, gamma), lambda z: losses.focal(two(z), y, gamma)),
        (
            lambda z: losses.sigmoid_adafocal(z, y, STATE),
            lambda z: losses.adafocal(two(z), y, STATE),
        ),
    ]
    for sigmoid, softmax in pairs:
        np.testing.assert_allclose(sigmoid(z), softmax(z), rtol=2e-5, atol=1e-7)
        slopes = [jax.grad(lambda z, f=f: jnp.sum(f(z)))(z) for f in (sigmoid, softmax)]
        np.testing.assert_allclose(*slopes, rtol=2e-4, atol=1e-6)


def test_the_update_of_the_docstring_moves_gamma_by_the_gap_of_binary_confidences() -> None:
    logits, labels = jnp.asarray(LOGITS, jnp.float32), jnp.asarray(LABELS)
    confidence = jax.nn.sigmoid(jnp.abs(logits)).ravel()
    correct = ((logits > 0) == labels).ravel()
    after = losses.adafocal_update(losses.adafocal_init(num_bins=1), confidence, correct)
    p = 1 / (1 + np.exp(-LOGITS))
    gap = np.maximum(p, 1 - p).mean() - ((p > 0.5) == LABELS).mean()
    assert float(after.gamma[0]) == pytest.approx(np.exp(gap), rel=1e-5)


def test_each_label_may_have_its_own_state() -> None:
    gammas = jnp.array([[1.0], [-2.0], [4.0]])
    states = losses.AdaFocalState(edges=jnp.zeros((3, 0)), gamma=gammas)
    each = jax.vmap(losses.sigmoid_adafocal, (1, 1, 0), 1)(jnp.asarray(LOGITS), LABELS, states)
    for i, gamma in enumerate((1.0, -2.0, 4.0)):
        want = losses.sigmoid_focal(LOGITS[:, i], LABELS[:, i], gamma)
        np.testing.assert_allclose(each[:, i], want, rtol=1e-6)


@pytest.mark.parametrize("gamma", [0.25, 3.0, -2.0])
def test_huge_logits_have_finite_values_and_gradients(gamma: float) -> None:
    logits = jnp.array([1e4, 1e4, -1e4, -1e4, -jnp.inf])
    for labels in (jnp.array([1, 0, 1, 0, 0]), jnp.full(5, 0.5)):
        value, slope = jax.value_and_grad(
            lambda z, y=labels: jnp.sum(losses.sigmoid_focal(z, y, gamma))
        )(logits)
        chex.assert_tree_all_finite((value, slope))
    wrong = losses.sigmoid_focal(logits[1:2], [0], 3.0)
    np.testing.assert_allclose(wrong, 1e4, rtol=1e-6)


def test_labels_other_than_0_and_1_are_nan_without_gradient() -> None:
    def total(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = losses.sigmoid_focal(z, jnp.array([1, 2, -1, 0]), 2.0)
        return jnp.sum(value), value

    slope, value = jax.grad(total, has_aux=True)(jnp.array([0.5, 0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(np.isnan(value), [False, True, True, False])
    np.testing.assert_array_equal(np.asarray(slope) == 0, [False, True, True, False])


def test_bools_are_labels_and_shapes_are_checked() -> None:
    np.testing.assert_array_equal(
        losses.sigmoid_focal([2.0, 2.0], [True, False], 1.0),
        losses.sigmoid_focal([2.0, 2.0], [1, 0], 1.0),
    )
    with pytest.raises(ValueError, match=r"labels: expected integers, bools or floats \(2,\)"):
        losses.sigmoid_focal([2.0, 1.0], [[1], [0]], 1.0)
    with pytest.raises(ValueError, match=r"gamma: expected a scalar or shape \(2,\), got \(3,\)"):
        losses.sigmoid_focal([2.0, 1.0], [1, 0], [1.0, 2.0, 3.0])
