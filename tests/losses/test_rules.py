"""What all losses have in common: invalid labels, masked classes, narrow integer labels."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import losses, metrics

STATE = losses.AdaFocalState(edges=jnp.array([0.3, 0.7]), gamma=jnp.array([-1.0, 0.5, 3.0]))
BINS = metrics.BinStats(
    count=jnp.array([2.0, 3.0]),
    confidence=jnp.array([0.4, 2.4]),
    correct=jnp.array([1.0, 2.0]),
    edges=jnp.array([0.0, 0.5, 1.0]),
)


def distilled(logits, labels):
    teacher = jnp.where(jnp.isneginf(logits), -jnp.inf, 0.3)
    return losses.distillation(logits, teacher, labels, weight=0.4, temperature=2.0)


PER_EXAMPLE = {
    "cross_entropy": losses.cross_entropy,
    "brier": losses.brier,
    "bsce_gra": losses.bsce_gra,
    "logit_norm": losses.logit_norm,
    "focal": functools.partial(losses.focal, gamma=2.0),
    "focal-0": functools.partial(losses.focal, gamma=0.0),
    "focal-small": functools.partial(losses.focal, gamma=0.25),
    "inverse_focal": functools.partial(losses.inverse_focal, gamma=2.0),
    "flsd53": losses.flsd53,
    "dual_focal": losses.dual_focal,
    "adafocal": functools.partial(losses.adafocal, state=STATE),
    "calfocal-2": functools.partial(losses.calfocal, bins=BINS, lam=2.0, per_sample=True),
    "calfocal-3": functools.partial(losses.calfocal, bins=BINS, lam=2.0, per_sample=False),
    "distillation": distilled,
}
COUPLED = {
    "mmce": losses.mmce,
    "mmce_weighted": losses.mmce_weighted,
    "mdca": losses.mdca,
    "mbls": losses.mbls,
}
LOGITS = np.array([[2.0, -1.0, 0.5], [0.1, 0.2, -0.3], [1.0, 3.0, -2.0]], np.float32)


def value_and_grad(loss):
    def total(logits, labels):
        value = loss(logits, labels)
        return jnp.sum(value), value

    run = jax.jit(jax.value_and_grad(total, has_aux=True))

    def both(logits, labels):
        (_, value), slope = run(logits, labels)
        return value, slope

    return both


@pytest.mark.parametrize("wrong", [-1, 3, 1000])
@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_an_invalid_label_is_nan_in_its_row_and_nowhere_else(name, wrong):
    run = value_and_grad(PER_EXAMPLE[name])
    value, slope = run(LOGITS, np.array([0, wrong, 2]))
    want, want_slope = run(LOGITS, np.array([0, 1, 2]))
    np.testing.assert_array_equal(np.isnan(value), [False, True, False])
    np.testing.assert_array_equal(value[jnp.array([0, 2])], want[jnp.array([0, 2])])
    np.testing.assert_array_equal(slope[1], 0)
    np.testing.assert_array_equal(slope[jnp.array([0, 2])], want_slope[jnp.array([0, 2])])


@pytest.mark.parametrize("wrong", [-1, 3])
@pytest.mark.parametrize("name", COUPLED)
def test_an_invalid_label_makes_a_coupled_loss_nan_unless_it_is_padding(name, wrong):
    labels = np.array([0, wrong, 2])
    loss = jax.jit(COUPLED[name])
    assert np.isnan(loss(LOGITS, labels))
    padded = loss(LOGITS, labels, weights=np.array([1.0, 0.0, 1.0]))
    np.testing.assert_allclose(padded, loss(LOGITS[[0, 2]], labels[[0, 2]]), rtol=1e-6)


def test_a_contrastive_anchor_with_an_invalid_label_is_nan_and_nobody_is_compared_with_it():
    rng = np.random.default_rng(0)
    features, helper = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    labels = np.array([0, 1, 0, -1, 1])
    loss = functools.partial(losses.label_aware_contrastive, tau=0.3)
    rest = np.array([0, 1, 2, 4])
    value = loss(features, labels, helper)
    np.testing.assert_array_equal(np.isnan(value), labels < 0)
    np.testing.assert_allclose(
        value[rest], loss(features[rest], labels[rest], helper[rest]), rtol=1e-6
    )


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", PER_EXAMPLE)
def test_a_single_class_that_is_not_masked_is_certain(name, kind):
    # p = 1 for the label: every one of these losses is 0 and has no slope (1 - p is 0, log p is 0).
    logits = np.where(np.eye(3, dtype=bool), LOGITS, -np.inf).astype(np.float32)
    labels = np.arange(3) if kind == "hard" else np.eye(3, dtype=np.float32)
    value, slope = value_and_grad(PER_EXAMPLE[name])(logits, labels)
    np.testing.assert_allclose(value, 0, atol=1e-6)
    np.testing.assert_allclose(slope, 0, atol=1e-6)


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", PER_EXAMPLE | COUPLED)
def test_a_masked_class_takes_no_part(name, kind):
    loss = (PER_EXAMPLE | COUPLED)[name]
    labels = np.array([0, 1, 2])
    mask = np.full((3, 1), -np.inf, np.float32)
    masked = np.concatenate([LOGITS, mask], axis=1)
    if kind == "hard":
        value, slope = value_and_grad(loss)(masked, labels)
        want, want_slope = value_and_grad(loss)(LOGITS, labels)
    else:
        soft = np.array([[0.7, 0.2, 0.1], [0, 1, 0], [0.3, 0.3, 0.4]], np.float32)
        extended = np.concatenate([soft, np.zeros((3, 1), np.float32)], axis=1)
        value, slope = value_and_grad(loss)(masked, extended)
        want, want_slope = value_and_grad(loss)(LOGITS, soft)
    if name == "mdca":  # a mean over classes, of which there is one more that is always right
        want, want_slope = want * 3 / 4, want_slope * 3 / 4
    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(slope[:, :3], want_slope, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(slope[:, 3], 0)


def test_a_label_on_a_masked_class_costs_1e30():
    logits = np.array([[0.0, -np.inf, 1.0]], np.float32)
    for name in ("cross_entropy", "focal", "flsd53", "dual_focal"):
        value, slope = value_and_grad(PER_EXAMPLE[name])(logits, np.array([1]))
        np.testing.assert_allclose(value, [1e30], rtol=1e-6)
        chex.assert_tree_all_finite(slope)


@pytest.mark.parametrize("name", ["cross_entropy", "focal", "dual_focal", "brier", "mmce"])
def test_classes_beyond_the_range_of_the_labels_type(name):
    # 300 classes and labels of 8 bits: class 256 + y must not pass for class y.
    logits = np.random.default_rng(1).normal(size=(3, 300)).astype(np.float32)
    logits[:, 256:] += 5
    loss = (PER_EXAMPLE | COUPLED)[name]
    for dtype in (np.uint8, np.int16, np.uint32):
        got = loss(logits, np.array([3, 7, 100], dtype))
        np.testing.assert_array_equal(got, loss(logits, np.array([3, 7, 100], np.int32)))
