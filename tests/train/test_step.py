"""The pure step against a numpy softmax regression, and what accumulation and filling do to it."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from calib_jax import methods, train
from calib_jax.train import _state

N, D, K = 12, 5, 3


class Linear(nn.Module):
    """Softmax regression; `noisy` adds dropout, `statistics` batch statistics."""

    noisy: bool = False
    statistics: bool = False

    @nn.compact
    def __call__(self, image, train=False):
        if self.statistics:
            image = nn.BatchNorm(momentum=0.9)(image, use_running_average=not train)
        if self.noisy:
            image = nn.Dropout(0.5)(image, deterministic=not train)
        return nn.Dense(K, name="out")(image)


def _batch(seed=0, n=N, filled=0):
    rng = np.random.default_rng(seed)
    return methods.Batch(
        {"image": jnp.asarray(rng.normal(size=(n, D)), jnp.float32)},
        jnp.asarray(rng.integers(0, K, n)),
        jnp.arange(n),
        jnp.asarray(np.arange(n) < n - filled, jnp.float32),
    )


def _start(module, method, optimizer):
    network = train.Network(module)
    params, collections = network.init(jax.random.key(0), _batch().inputs)
    info = methods.Info(N, K)
    return network, _state.init_state(method, optimizer, info, params, collections)


def _run(module=None, method="cross_entropy", batches=None, lr=0.5, **options):
    optimizer = optax.sgd(lr)
    made = methods.create(method) if isinstance(method, str) else method
    network, state = _start(module or Linear(), made, optimizer)
    step = jax.jit(train.make_train_step(network, made, optimizer, **options))
    for batch in batches or [_batch()]:
        state = step(state, batch, jax.random.key(1))
    return state


def test_step_is_gradient_descent_on_the_mean_cross_entropy() -> None:
    batches = [_batch(seed) for seed in range(3)]
    state = _run(batches=batches)
    _, start = _start(Linear(), methods.create("cross_entropy"), optax.sgd(0.5))
    w = np.asarray(start.params["out"]["kernel"], np.float64)
    b = np.asarray(start.params["out"]["bias"], np.float64)
    total = correct = 0.0
    for batch in batches:
        x, y = np.asarray(batch.inputs["image"], np.float64), np.asarray(batch.labels)
        z = x @ w + b
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        total += -np.log(p[np.arange(N), y]).sum()
        correct += (z.argmax(1) == y).sum()
        g = (p - np.eye(K)[y]) / N
        w, b = w - 0.5 * x.T @ g, b - 0.5 * g.sum(0)
    np.testing.assert_allclose(state.params["out"]["kernel"], w, rtol=1e-5)
    np.testing.assert_allclose(state.params["out"]["bias"], b, rtol=1e-5, atol=1e-7)
    assert int(state.step) == 3
    assert float(state.metrics.loss) == pytest.approx(total, rel=1e-5)
    assert (float(state.metrics.correct), float(state.metrics.weight)) == (correct, 3 * N)
    assert int(state.metrics.failed) == -1


@pytest.mark.parametrize("method", methods.OBJECTIVES)
def test_filling_changes_nothing(method: str) -> None:
    full = _batch(filled=4)
    short = jax.tree.map(lambda x: x[: N - 4], full)
    for a, b in zip(
        jax.tree.leaves(_run(method=method, batches=[full]).params),
        jax.tree.leaves(_run(method=method, batches=[short]).params),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("filled", [0, 5, N - 1])
@pytest.mark.parametrize("sum_loss", [False, True])
def test_accumulation_gives_the_gradient_of_the_whole(filled: int, sum_loss: bool) -> None:
    batches = [_batch(filled=filled)]
    whole = _run(batches=batches, sum_loss=sum_loss)
    parts = _run(batches=batches, sum_loss=sum_loss, accumulate=3)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_accumulation_keeps_rows_in_their_places() -> None:
    seen = []

    def after_step(state, batch, aux):
        return jnp.stack([jnp.argmax(aux.logits, -1), aux.extra])

    def loss(apply, params, state, batch, key):
        logits, network = apply(params, batch.inputs, key)
        return jnp.mean(logits), methods.Aux(logits, network, batch.position)

    method = methods.Method(lambda info: jnp.zeros((2, N), jnp.int32), loss, after_step)
    for accumulate in (1, 4):
        seen.append(np.asarray(_run(method=method, accumulate=accumulate).method_state))
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0][1], np.arange(N))


def test_sum_loss_is_the_batch_times_the_mean() -> None:
    mean, summed = _run(lr=0.5), _run(lr=0.5 / N, sum_loss=True)
    np.testing.assert_allclose(
        mean.params["out"]["kernel"], summed.params["out"]["kernel"], rtol=1e-6
    )
    # What is logged is the mean either way.
    assert float(mean.metrics.loss) == pytest.approx(float(summed.metrics.loss), rel=1e-6)


def test_batch_statistics_move_on_and_noise_differs_by_step() -> None:
    state = _run(Linear(statistics=True), batches=[_batch()])
    x = np.asarray(_batch().inputs["image"])
    mean = state.model_state["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-4, atol=1e-6)

    method, optimizer = methods.create("cross_entropy"), optax.sgd(0.0)
    network, state = _start(Linear(noisy=True), method, optimizer)
    step = jax.jit(train.make_train_step(network, method, optimizer))
    values = []
    for _ in range(3):
        state = step(state._replace(metrics=_state.zero_metrics()), _batch(), jax.random.key(1))
        values.append(float(state.metrics.loss))
    assert len(set(values)) == 3
    again = step(
        state._replace(step=jnp.int32(0), metrics=_state.zero_metrics()),
        _batch(),
        jax.random.key(1),
    )
    assert float(again.metrics.loss) == values[0]


def test_augmentation_has_its_own_noise_each_step() -> None:
    def augment(key, inputs):
        return {"image": inputs["image"] + jax.random.normal(key, inputs["image"].shape)}

    plain = _run()
    noisy = _run(augment=augment)
    assert not np.allclose(plain.params["out"]["kernel"], noisy.params["out"]["kernel"])
    again = _run(augment=augment)
    np.testing.assert_array_equal(noisy.params["out"]["kernel"], again.params["out"]["kernel"])


def test_first_failure_is_kept_with_what_failed() -> None:
    bad = _batch(1)
    bad = bad._replace(inputs={"image": bad.inputs["image"].at[0, 0].set(jnp.nan)})
    state = _run(batches=[_batch(), bad, bad])
    assert int(state.metrics.failed) == 1
    assert bool(state.metrics.loss_failed)

    def loss(apply, params, state, batch, key):
        # Finite, with a slope that is not.
        logits, network = apply(params, batch.inputs, key)
        return jnp.sum(jnp.sqrt(0.0 * logits)), methods.Aux(logits, network)

    state = _run(method=methods.Method(lambda info: (), loss))
    assert int(state.metrics.failed) == 0
    assert not bool(state.metrics.loss_failed)


def test_network_cuts_agree_with_the_whole() -> None:
    from calib_jax import models

    network = train.Network(models.create("mlp", K, widths=(8,)), mean=(0.3,), std=(0.2,))
    inputs = {"image": jax.random.uniform(jax.random.key(0), (4, 3, 3, 1))}
    params, collections = network.init(jax.random.key(1), inputs)
    bound = network.bind(collections)
    embeddings = bound.embed(params, inputs)
    np.testing.assert_allclose(embeddings, (inputs["image"] - 0.3) / 0.2, rtol=1e-5)
    features, _ = bound.features(params, embeddings, inputs)
    np.testing.assert_array_equal(bound.head(params, features), bound(params, inputs)[0])
    assert dataclasses.is_dataclass(bound)


def test_text_network_cuts_agree_with_the_whole() -> None:
    from calib_jax import models

    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 12}
    network = train.Network(models.create("bert", K, **sizes))
    ids = jnp.asarray([[2, 5, 6, 3], [2, 7, 3, 0]])
    inputs = {"input_ids": ids, "mask": (ids > 0).astype(jnp.int32)}
    inputs["token_type_ids"] = jnp.asarray([[0, 0, 1, 1], [0, 1, 1, 0]])
    params, collections = network.init(jax.random.key(1), inputs)
    bound = network.bind(collections)
    features, _ = bound.features(params, bound.embed(params, inputs), inputs)
    np.testing.assert_allclose(
        bound.head(params, features), bound(params, inputs)[0], rtol=1e-6, atol=1e-6
    )
    other = inputs | {"token_type_ids": jnp.zeros_like(ids)}
    assert not np.allclose(bound(params, other)[0], bound(params, inputs)[0])
