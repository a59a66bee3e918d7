"""Optimisers and schedules against torch-like recurrences worked out in numpy."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calib_jax import models, train


def test_milestones_count_from_the_start_of_the_run() -> None:
    schedule = train.make_schedule("milestones", 0.1, total_steps=100, milestones=[30, 60])
    found = [float(schedule(step)) for step in (0, 29, 30, 59, 60, 99)]
    np.testing.assert_allclose(found, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001], rtol=1e-6)
    warm = train.make_schedule(
        "milestones", 0.1, total_steps=100, milestones=[30, 60], warmup_steps=10
    )
    found = [float(warm(step)) for step in (0, 5, 10, 29, 30, 60)]
    np.testing.assert_allclose(found, [0, 0.05, 0.1, 0.1, 0.01, 0.001], rtol=1e-6)


@pytest.mark.parametrize(("name", "middle"), [("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)])
def test_schedules_end_where_they_should(name: str, middle: float) -> None:
    schedule = train.make_schedule(name, 2.0, total_steps=110, warmup_steps=10)
    assert float(schedule(5)) == pytest.approx(1.0)
    assert float(schedule(60)) == pytest.approx(2 * middle)
    assert float(schedule(110)) == pytest.approx(2.0 if name == "constant" else 0.0, abs=1e-6)


def _walk(optimizer, params, gradients):
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state, params)
        params = {k: params[k] + updates[k] for k in params}
    return params


def test_sgd_is_clip_then_decay_then_momentum() -> None:
    rng = np.random.default_rng(0)
    start = {"kernel": rng.normal(size=(3, 2)), "bias": rng.normal(size=2)}
    gradients = [{k: rng.normal(size=v.shape) for k, v in start.items()} for _ in range(4)]
    schedule = train.make_schedule("constant", 0.1, total_steps=4)
    for decay_all in (True, False):
        optimizer = train.make_optimizer(
            "sgd", schedule, weight_decay=0.05, clip_norm=1.5, decay_all=decay_all
        )
        found = _walk(
            optimizer,
            {k: jnp.asarray(v, jnp.float32) for k, v in start.items()},
            [{k: jnp.asarray(v, jnp.float32) for k, v in g.items()} for g in gradients],
        )
        params, speed = dict(start), {k: 0.0 for k in start}
        for gradient in gradients:
            norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
            for k in params:
                g = gradient[k] * min(1.0, 1.5 / norm)
                if decay_all or k == "kernel":
                    g = g + 0.05 * params[k]
                speed[k] = 0.9 * speed[k] + g
                params[k] = params[k] - 0.1 * speed[k]
        for k in params:
            np.testing.assert_allclose(found[k], params[k], rtol=1e-5)


def test_no_bias_or_scale_decays_whatever_its_shape() -> None:
    sizes = {"vocab_size": 5, "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1}
    network = train.Network(models.create("bert", 2, **sizes))
    tokens = {key: jnp.ones((1, 4), jnp.int32) for key in ("input_ids", "mask")}
    shapes = jax.eval_shape(network.init, jax.random.key(0), tokens)[0]
    ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), shapes)
    schedule = train.make_schedule("constant", 0.1, total_steps=1)
    optimizer = train.make_optimizer("adamw", schedule, weight_decay=0.5, decay_all=False)
    nothing = jax.tree.map(jnp.zeros_like, ones)
    updates, _ = optimizer.update(nothing, optimizer.init(ones), ones)
    fused = 0
    for path, update in jax.tree_util.tree_leaves_with_path(updates):
        name = path[-1].key
        fused += name == "bias" and update.ndim == 3
        expected = 0.0 if name in ("bias", "scale") else -0.05
        np.testing.assert_allclose(update, expected, err_msg=jax.tree_util.keystr(path))
    assert fused


def test_adamw_decays_weights_not_gradients() -> None:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(2, 2))
    gradients = rng.normal(size=(5, 2, 2))
    schedule = train.make_schedule("constant", 0.01, total_steps=5)
    optimizer = train.make_optimizer("adamw", schedule, weight_decay=0.1)
    found = _walk(
        optimizer,
        {"w": jnp.asarray(w, jnp.float32)},
        [{"w": jnp.asarray(g, jnp.float32)} for g in gradients],
    )["w"]
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        w = w - 0.01 * (step + 0.1 * w)
    np.testing.assert_allclose(found, w, rtol=1e-5)


def test_errors_name_what_is_expected() -> None:
    schedule = train.make_schedule("constant", 0.1, total_steps=1)
    with pytest.raises(ValueError, match="optimizer='sdg': expected one of sgd, adam, adamw"):
        train.make_optimizer("sdg", schedule)
    with pytest.raises(ValueError, match="schedule='step': expected one of constant"):
        train.make_schedule("step", 0.1, total_steps=1)
    with pytest.raises(ValueError, match="'adam' has no weight decay"):
        train.make_optimizer("adam", schedule, weight_decay=0.1)


@pytest.mark.parametrize("size", [0.0, 0.5, 3.0])
def test_clipping_is_as_in_optax(size: float) -> None:
    grads = {"a": size * jnp.array([0.6, 0.0]), "b": size * jnp.array([[0.8]])}
    ours = train.make_optimizer("sgd", optax.constant_schedule(1.0), momentum=0.0, clip_norm=1.5)
    theirs = optax.chain(optax.clip_by_global_norm(1.5), optax.sgd(1.0))
    updates = [opt.update(grads, opt.init(grads), grads)[0] for opt in (ours, theirs)]
    chex.assert_trees_all_close(*updates, rtol=1e-6)
