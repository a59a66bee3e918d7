"""Numbers inside the losses, each by a value that would be another one without it."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax import losses, metrics

TWO = np.log(np.array([[3.0, 1.0], [2.0, 3.0]]))
TWO_LABELS = np.array([0, 0])


def test_flsd53_changes_at_one_fifth():
    # -(1 - p)^5 ln p below 1/5, -(1 - p)^3 ln p from there on
    p = np.array([0.19, 0.199, 0.201, 0.21])
    logits = np.log(np.stack([p, 1 - p], axis=1))
    want = -((1 - p) ** np.array([5, 5, 3, 3])) * np.log(p)
    np.testing.assert_allclose(losses.flsd53(logits, np.zeros(4, np.int32)), want, rtol=1e-5)


def test_dual_focal_has_gamma_5():
    # p = (1/2, 3/10, 1/5), label 0: (1 - 1/2 + 3/10)^5 ln 2
    logits = np.log(np.array([[5.0, 3.0, 2.0]]))
    np.testing.assert_allclose(
        losses.dual_focal(logits, np.array([0])), [0.8**5 * math.log(2)], rtol=1e-5
    )


def test_logit_norm_has_tau_0_04():
    # logits (3, 4): the unit vector (.6, .8) / .04 = (15, 20): ln(1 + e^5) and ln(1 + e^-5)
    logits = np.array([[3.0, 4.0], [3.0, 4.0]])
    want = [math.log1p(math.exp(5)), math.log1p(math.exp(-5))]
    np.testing.assert_allclose(losses.logit_norm(logits, np.array([0, 1])), want, rtol=1e-5)
    # Also of logits whose squares are 0 in float32, and of none at all.
    tiny = losses.logit_norm(1e-25 * logits, np.array([0, 1]))
    np.testing.assert_allclose(tiny, want, rtol=1e-4)
    zero = losses.logit_norm(np.zeros((1, 2)), np.array([0]))
    np.testing.assert_allclose(zero, [math.log(2)], rtol=1e-6)


def test_calfocal_gamma_is_at_most_exp_60():
    # lam (C - A) = 100 * .7 = 70. With p = e^-60 the weight is (1 - p)^(e^60) = e^-1.
    bins = metrics.BinStats(
        count=jnp.array([1.0]),
        confidence=jnp.array([0.9]),
        correct=jnp.array([0.2]),
        edges=jnp.array([0.0, 1.0]),
    )
    got = losses.calfocal(np.array([[0.0, 60.0]]), np.array([0]), bins, lam=100.0, per_sample=False)
    np.testing.assert_allclose(got, [60 * math.exp(-1)], rtol=1e-4)


def test_mmce_weighted_twice_normalized_divides_by_pairs_plus_1e_5():
    # m = n = 1: the squares .0625 + .36 - 2 * .25 * .6 e^-.375, divided by 1.00001
    with jax.enable_x64(True):
        squared = 0.0625 + 0.36 - 0.3 * math.exp(-0.375)
        got = losses.mmce_weighted(TWO, TWO_LABELS, double_normalized=True)
        np.testing.assert_allclose(got, math.sqrt(squared / 1.00001 + 1e-10), rtol=1e-12)
        got = losses.mmce_weighted(TWO, TWO_LABELS)
        np.testing.assert_allclose(got, math.sqrt(squared + 1e-10), rtol=1e-12)


def test_mmce_weighted_is_1e_5_at_its_zero():
    # r = 1/2 for one right and one wrong example: 1/4 + 1/4 - 2/4 = 0, and the root of 1e-10
    got = losses.mmce_weighted(np.zeros((2, 2)), np.array([0, 1]))
    np.testing.assert_allclose(got, 1e-5, rtol=1e-5)


def test_contrastive_features_have_length_1_unless_they_are_tiny():
    # Two equal features of length 1e-6: |f|^2 + 1e-12 is twice |f|^2, their similarity 1/2.
    # Uniform helper of 2 classes, a third feature at a right angle: -1/2 (1/2 - ln(e^.5 / 2 + 1/2)).
    features = np.array([[1e-6, 0.0], [1e-6, 0.0], [0.0, 1.0]])
    got = losses.label_aware_contrastive(features, np.array([0, 0, 1]), np.zeros((3, 2)), tau=1.0)
    want = -0.5 * (0.5 - math.log(math.exp(0.5) / 2 + 0.5))
    np.testing.assert_allclose(got, [want, want, 0.0], rtol=1e-4, atol=1e-7)


def test_distillation_has_temperature_1_and_no_factor():
    # teacher (1/4, 3/4), student (1/2, 1/2): KL = 1/4 ln(1/2) + 3/4 ln(3/2) = .13081204
    teacher = np.log(np.array([[1.0, 3.0]]))
    got = losses.distillation(np.zeros((1, 2)), teacher, np.array([0]), weight=1.0)
    np.testing.assert_allclose(got, [0.13081204], rtol=1e-5)


def test_soft_labels_need_not_be_normalized():
    # 2 and 1 on p = (1/4, 3/4): twice and once the loss of a class
    logits = np.log(np.array([[1.0, 3.0]]))
    got = losses.cross_entropy(logits, np.array([[2.0, 1.0]]))
    np.testing.assert_allclose(got, [2 * math.log(4) - math.log(0.75)], rtol=1e-6)
