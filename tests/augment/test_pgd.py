"""PGD stays where it may go and raises the loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import augment, losses

RNG = np.random.default_rng(0)
IMAGES = jnp.asarray(RNG.random((12, 5, 5, 2)), jnp.float32)
LABELS = jnp.asarray(RNG.integers(0, 4, 12))
WEIGHTS = jnp.asarray(RNG.normal(size=(2, 50, 16)), jnp.float32)
HEAD = jnp.asarray(RNG.normal(size=(16, 4)), jnp.float32)
KEY = jax.random.key(0)


def loss(images, labels):
    x = images.reshape(len(images), -1)
    hidden = jnp.tanh(x @ WEIGHTS[0]) * (x @ WEIGHTS[1])
    return losses.cross_entropy(hidden @ HEAD / 10, labels)


def _pgd(key, images=IMAGES, eps=0.1, **options):
    return jax.jit(lambda *x: augment.pgd(x[0], loss, x[1], LABELS, eps=x[2], **options))(
        key, images, eps
    )


@pytest.mark.parametrize("eps", [0.03, np.linspace(0.0, 0.2, 12)])
@pytest.mark.parametrize("restarts", [1, 3])
def test_within_the_ball_and_the_range_with_more_loss(eps, restarts) -> None:
    attack = jax.jit(lambda key: augment.pgd(key, loss, IMAGES, LABELS, eps=eps, restarts=restarts))
    for seed in range(3):
        found = attack(jax.random.key(seed))
        away = np.abs(np.asarray(found) - IMAGES).max((1, 2, 3))
        assert (away <= np.asarray(eps) + 1e-6).all()
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
        assert float(loss(found, LABELS).mean()) > float(loss(IMAGES, LABELS).mean())
        np.testing.assert_allclose(away, np.broadcast_to(eps, 12), atol=1e-5)  # to the very edge


def test_a_loop_gives_what_single_steps_give_also_under_jit() -> None:
    def attack(key, unroll):
        return augment.pgd(key, loss, IMAGES, LABELS, eps=0.05, steps=4, unroll=unroll)

    x = augment.pgd_start(KEY, IMAGES, eps=0.05)
    step = jax.jit(lambda x: augment.pgd_step(loss, x, IMAGES, LABELS, eps=0.05))
    for _ in range(4):
        x = step(x)
    np.testing.assert_allclose(attack(KEY, False), x, atol=1e-6)
    for unroll in (False, True):
        jitted = jax.jit(attack, static_argnums=1)(KEY, unroll)
        np.testing.assert_allclose(jitted, x, atol=1e-6)


def test_restarts_keep_the_worst_of_each_example() -> None:
    options = {"eps": 0.3, "steps": 2}
    worst = _pgd(KEY, restarts=4, **options)
    each = [loss(_pgd(jax.random.fold_in(KEY, i), **options), LABELS) for i in range(4)]
    np.testing.assert_allclose(loss(worst, LABELS), np.max(each, axis=0), rtol=1e-5)
    assert len(set(np.argmax(each, axis=0).tolist())) > 1


def test_no_step_is_the_random_start_and_step_size_counts() -> None:
    start = _pgd(KEY, steps=0)
    np.testing.assert_allclose(start, augment.pgd_start(KEY, IMAGES, eps=0.1), atol=1e-7)
    one = _pgd(KEY, steps=1, step_size=0.001)
    moved = np.abs(np.asarray(one) - start)
    assert moved.max() == pytest.approx(0.001, rel=1e-3)


def test_no_gradient_flows_through_the_attack_and_bytes_become_floats() -> None:
    def through(scale):
        found = augment.pgd(KEY, lambda x, y: scale * loss(x, y), IMAGES, LABELS, eps=0.1, steps=2)
        return found.sum()

    assert float(jax.jit(jax.grad(through))(1.0)) == 0
    whole = np.asarray(255 * IMAGES).astype(np.uint8)
    found = _pgd(KEY, whole, 0.01, steps=1)
    assert found.dtype == jnp.float32
    assert np.abs(np.asarray(found) - whole / 255).max() <= 0.01 + 1e-6


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="restarts=0, steps=1"):
        augment.pgd(KEY, loss, IMAGES, LABELS, eps=0.1, steps=1, restarts=0)
    with pytest.raises(ValueError, match=r"eps: expected a scalar or shape \(12,\), got \(3,\)"):
        augment.pgd(KEY, loss, IMAGES, LABELS, eps=np.ones(3))
