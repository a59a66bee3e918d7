"""Records of training are the definitions applied to the logits that training saw."""

import jax
import jax.numpy as jnp
import numpy as np
from experiment import small

from calib_jax import methods

N, K, B, EPOCHS = 10, 3, 4, 3


def test_records_over_three_epochs() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, K, N)
    logits = 2 * rng.normal(size=(EPOCHS, N, K))
    method = methods.dynamics_recorder(methods.create("adafocal"))
    state = method.init(methods.Info(N, K))
    after_step = jax.jit(method.after_step)
    for epoch in range(EPOCHS):
        order = np.resize(rng.permutation(N), 12)  # two rows only fill up
        weights = (np.arange(12) < N).astype(np.float32)
        for rows, weight in zip(order.reshape(3, B), weights.reshape(3, B), strict=True):
            z = jnp.asarray(logits[epoch][rows], jnp.float32)
            z = jnp.where(weight[:, None] > 0, z, 99.0)
            batch = methods.Batch({}, jnp.asarray(labels[rows]), rows, jnp.asarray(weight))
            state = after_step(state, batch, methods.Aux(z, {}))
    found = methods.recorded_dynamics(state)
    assert sorted(found) == ["aum", "confidence", "correctness", "logits", "variability"]

    own = np.eye(K, dtype=bool)[labels]
    margin = [z[own] - np.where(own, -np.inf, z).max(1) for z in logits]
    np.testing.assert_allclose(found["aum"], np.mean(margin, 0), rtol=1e-5, atol=1e-6)
    gold = [(np.exp(z) / np.exp(z).sum(1, keepdims=True))[own] for z in logits]
    np.testing.assert_allclose(found["confidence"], np.mean(gold, 0), rtol=1e-5)
    np.testing.assert_allclose(found["variability"], np.std(gold, 0), rtol=1e-4, atol=1e-6)
    right = [z.argmax(1) == labels for z in logits]
    np.testing.assert_allclose(found["correctness"], np.mean(right, 0), rtol=1e-6)
    np.testing.assert_allclose(found["logits"], logits[-1], rtol=1e-6)


def test_recording_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    logits, labels = jnp.asarray(rng.normal(size=(N, K)), jnp.float32), jnp.arange(N) % K
    plain = methods.create("adafocal", num_bins=5)
    method = methods.dynamics_recorder(plain)
    info, key = methods.Info(N, K), jax.random.key(0)
    batch = methods.Batch({"image": logits}, labels, jnp.arange(N), jnp.ones(N))

    def apply(params, inputs, key):
        return params * inputs["image"], {}

    state = method.init(info)
    value, _ = method.loss(apply, 1.0, state, batch, key)
    same, _ = plain.loss(apply, 1.0, plain.init(info), batch, key)
    assert float(value) == float(same)
    after = method.after_epoch(state, small.Evaluator(logits, labels), key)
    expected = plain.after_epoch(plain.init(info), small.Evaluator(logits, labels), key)
    np.testing.assert_array_equal(after.method.gamma, expected.gamma)
    assert (
        method.report(after, logits, labels).keys() == plain.report(expected, logits, labels).keys()
    )
