"""The text CNN against plain numpy loops and torch."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import models

MODULE = models.TextCNN(3, vocab_size=11, dim=2, width=4)
IDS = np.random.default_rng(0).integers(0, 11, (5, 26)).astype(np.int32)
LABELS = np.array([0, 2, 1, 1, 0])


def random_variables() -> dict[str, Any]:
    shapes = jax.eval_shape(MODULE.init, jax.random.key(0), IDS)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32) / 2, shapes)


VARIABLES = random_variables()


def by_numpy(variables: dict[str, Any], ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features and logits, position after position, in float64."""
    p = jax.tree.map(np.float64, variables["params"])
    features = []
    for sentence in ids:
        x = variables["frozen"]["vectors"][sentence].astype(np.float64)
        for i in range(3):
            kernel, bias = p[f"convolutions_{i}"]["kernel"], p[f"convolutions_{i}"]["bias"]
            windows = [x[t : t + 5] for t in range(len(x) - 4)]
            x = np.stack([np.einsum("kc,kco->o", w, kernel) + bias for w in windows])
            x = np.maximum(x, 0)
            if i < 2:
                x = np.stack([x[t : t + 5].max(0) for t in range(len(x) - 4)])
        features.append(np.maximum(x.max(0) @ p["dense"]["kernel"] + p["dense"]["bias"], 0))
    stacked = np.stack(features)
    return stacked, stacked @ p["classifier"]["kernel"] + p["classifier"]["bias"]


def apply(variables: Any, x: Any, train: bool = False, **options: Any) -> Any:
    return MODULE.apply(variables, x, train, rngs={"dropout": jax.random.key(2)}, **options)


@pytest.mark.parametrize("length", [26, 21])
def test_numpy(length: int) -> None:
    features, logits = by_numpy(VARIABLES, IDS[:, :length])
    assert np.count_nonzero(features) > 5
    np.testing.assert_allclose(apply(VARIABLES, IDS[:, :length]), logits, rtol=1e-5, atol=1e-5)
    embeddings = apply(VARIABLES, IDS[:, :length], method="embed")
    np.testing.assert_array_equal(embeddings, VARIABLES["frozen"]["vectors"][IDS[:, :length]])
    got = apply(VARIABLES, embeddings, method="features")
    np.testing.assert_allclose(got, features, rtol=1e-5, atol=1e-5)


def test_torch_with_gradients() -> None:
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    p = jax.tree.map(lambda a: torch.tensor(a).requires_grad_(), VARIABLES["params"])
    vectors = torch.tensor(VARIABLES["frozen"]["vectors"])
    x = F.embedding(torch.tensor(IDS), vectors).transpose(1, 2)
    for i in range(3):
        kernel = p[f"convolutions_{i}"]["kernel"].permute(2, 1, 0)
        x = F.conv1d(x, kernel, p[f"convolutions_{i}"]["bias"]).relu()
        x = F.max_pool1d(x, 5, stride=1) if i < 2 else x
    x = F.linear(x.amax(2), p["dense"]["kernel"].T, p["dense"]["bias"]).relu()
    logits = F.linear(x, p["classifier"]["kernel"].T, p["classifier"]["bias"])
    F.cross_entropy(logits, torch.tensor(LABELS)).backward()

    def loss(params: Any) -> jax.Array:
        picked = jax.nn.log_softmax(apply(VARIABLES | {"params": params}, IDS))
        return -jnp.mean(picked[np.arange(5), LABELS])

    np.testing.assert_allclose(apply(VARIABLES, IDS), logits.detach(), rtol=1e-5, atol=1e-5)
    grads = jax.jit(jax.grad(loss))(VARIABLES["params"])
    compare = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(compare, grads, jax.tree.map(lambda a: a.grad.numpy(), p))


def test_vectors_are_frozen() -> None:
    assert set(VARIABLES) == {"params", "frozen"}
    assert set(VARIABLES["frozen"]) == {"vectors"}
    assert VARIABLES["frozen"]["vectors"].shape == (11, 2)
    assert set(VARIABLES["params"]) == {
        *(f"convolutions_{i}" for i in range(3)),
        "dense",
        "classifier",
    }
    # A step in train mode that lets the module write to them leaves them as they were.
    _, new = apply(VARIABLES, IDS, True, mutable=["frozen"])
    np.testing.assert_array_equal(new["frozen"]["vectors"], VARIABLES["frozen"]["vectors"])


def test_pretrained_vectors_are_put_in_as_documented() -> None:
    variables = jax.jit(MODULE.init)(jax.random.key(0), IDS)
    vectors = VARIABLES["frozen"]["vectors"]
    variables["frozen"]["vectors"] = vectors
    _, logits = by_numpy(jax.device_get(variables), IDS)
    np.testing.assert_allclose(apply(variables, IDS), logits, rtol=1e-5, atol=1e-5)
    assert np.ptp(logits, axis=0).max() > 1e-3


@pytest.mark.parametrize("length", [20, 4, 0])
def test_too_short(length: int) -> None:
    with pytest.raises(ValueError, match=f"input of length {length}.* at least 21 words"):
        MODULE.apply(VARIABLES, IDS[:, :length])


def test_three_cuts_compose_in_train_mode() -> None:
    embeddings = apply(VARIABLES, IDS, True, method="embed")
    features = apply(VARIABLES, embeddings, True, method="features")
    logits = apply(VARIABLES, features, True, method="head")
    np.testing.assert_array_equal(logits, apply(VARIABLES, IDS, True))
    assert np.any(logits != apply(VARIABLES, IDS))  # dropout


def test_dropout_is_before_the_output_layer() -> None:
    module = models.TextCNN(64, vocab_size=11, dim=2, width=64)
    identity = {"kernel": np.eye(64, dtype=np.float32), "bias": np.zeros(64, np.float32)}
    features = np.random.default_rng(0).uniform(1, 2, (200, 64)).astype(np.float32)
    rngs = {"dropout": jax.random.key(0)}
    variables = {"params": {"classifier": identity}, "frozen": {"vectors": np.zeros((11, 2))}}
    kept = np.asarray(module.apply(variables, features, True, method="head", rngs=rngs))
    assert np.mean(kept == 0) == pytest.approx(0.3, abs=0.02)  # 5 standard errors
    np.testing.assert_allclose(kept[kept != 0], features[kept != 0] / 0.7, rtol=1e-5)


def test_bfloat16() -> None:
    module = MODULE.clone(dtype=jnp.bfloat16)
    shapes = jax.eval_shape(module.init, jax.random.key(0), IDS)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32)}
    embeddings = module.apply(VARIABLES, IDS, method="embed")
    features = module.apply(VARIABLES, embeddings, method="features")
    assert embeddings.dtype == features.dtype == jnp.bfloat16
    logits = module.apply(VARIABLES, features, method="head")
    assert logits.dtype == jnp.float32
    _, expected = by_numpy(VARIABLES, IDS)
    np.testing.assert_allclose(logits, expected, atol=0.03 * np.max(np.abs(expected)))


def test_parameter_count() -> None:
    """20 Newsgroups: 100 numbers a word, 20,000 words."""
    module = models.create("text_cnn", 20)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 1000), jnp.int32))
    convolutions = (5 * 100 + 1) * 128 + 2 * (5 * 128 + 1) * 128
    counted = convolutions + (128 + 1) * 128 + (128 + 1) * 20
    total = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
    assert total == counted == 247_316
    assert shapes["frozen"]["vectors"].shape == (20_000, 100)


def test_learned_vectors() -> None:
    """The same network, with the vectors as parameters; padding stays zero and is not trained."""
    learned = models.TextCNN(3, vocab_size=11, dim=2, width=4, learned=True)
    params = {**VARIABLES["params"], "vectors": VARIABLES["frozen"]["vectors"]}
    frozen = VARIABLES["frozen"]["vectors"].copy()
    frozen[0] = 0
    expected = apply({"params": VARIABLES["params"], "frozen": {"vectors": frozen}}, IDS)
    np.testing.assert_allclose(learned.apply({"params": params}, IDS), expected, rtol=1e-6)
    gradient = jax.grad(lambda p: learned.apply({"params": p}, IDS).sum())(params)["vectors"]
    assert not gradient[0].any()
    assert np.count_nonzero(gradient[1:]) > 0
    shapes = jax.eval_shape(learned.init, jax.random.key(0), IDS)
    assert shapes["params"]["vectors"].shape == (11, 2)
    assert "frozen" not in shapes
