"""Fine-tuning: its loss by hand, and epochs that are a pass over the new examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import data, methods


class Fixed:
    """A network whose logits are its parameters."""

    def __call__(self, params, inputs, key):
        return params, {}


def test_loss_by_hand() -> None:
    new, old = np.log([0.5, 0.25, 0.25]), np.log([0.2, 0.2, 0.6])
    logits = jnp.asarray([new, new, old, old], jnp.float32)  # the second new one only fills up
    batch = methods.Batch({}, jnp.array([0, 1, 2, 2]), jnp.arange(4), jnp.array([1.0, 0, 1, 1]))
    key = jax.random.key(3)
    for mixed in (0.0, 0.5, 1.0):
        method = methods.fine_tuning(10, 20, alpha=5.0, mixed=mixed).method
        value, aux = method.loss(Fixed(), logits, (), batch, key)
        lam = float(jax.random.beta(jax.random.split(key, 3)[1], 5.0, 5.0))
        assert 0.05 < lam < 0.95
        z = lam * new + (1 - lam) * old
        log_p = z - np.log(np.exp(z).sum())
        mixture = -lam * log_p[0] - (1 - lam) * log_p[2]
        assert float(value) == pytest.approx((1 - mixed) * np.log(2) + mixed * mixture, rel=1e-5)
        assert aux.logits.shape == (4, 3)


def test_an_epoch_is_a_pass_over_the_new_ones() -> None:
    phase = methods.fine_tuning(5, 40)
    assert phase.groups is not None
    groups = phase.groups.positions(methods.Info(45, 3))
    lengths = np.concatenate([np.full(5, 4), np.arange(1, 41)])
    seen = []
    for epoch in range(30):
        plan = data.shuffled(
            groups, 2, seed=0, epoch=epoch, lengths=lengths, buckets=(40,), count=5
        )
        assert plan.rows.shape == (3, 4)
        real = plan.weights > 0
        assert sorted(plan.rows[:, :2][real[:, :2]]) == [0, 1, 2, 3, 4]
        assert plan.rows[:, 2:].min() >= 5
        seen.append(plan.rows[:, 2:])
    # Old ones of all lengths have their turn, not only the shortest of each epoch.
    assert len(np.unique(seen)) >= 38
