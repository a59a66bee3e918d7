"""Heads on top of the encoders: PyTorch's logits and gradients, the three cuts, dropout, padding."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit
from safetensors.numpy import load_file, save_file

from calib_jax import models

GOLDEN = pathlib.Path(__file__).parent / "golden"
KEY = jax.random.key(4, impl="rbg")
each_name = pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
each_head = pytest.mark.parametrize("head", models.HEADS)


@functools.cache
def load(name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        return *models.load_pretrained(GOLDEN / name), dict(file)


@functools.cache
def one_layer(head, num_classes=3, **options):
    """A classifier with one layer and dropout in the head only, its parameters far from zero."""
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    rates |= {"num_hidden_layers": 1, "classifier_dropout": 0.3} | options
    config = dataclasses.replace(load("bert")[0].config, **rates)
    module = models.TextClassifier(config, num_classes, head)
    ids = words(head)
    shapes = jax.eval_shape(lambda: module.init(KEY, ids, ids)["params"])
    rng = np.random.default_rng(0)

    def fill(path, leaf):
        return np.float32(rng.normal(path[-1].key == "scale", 0.3, leaf.shape))

    return module, jax.tree.map_with_path(fill, shapes)


def words(head="linear", length=8, seed=0):
    """Ids `[4, length]`, as many choices of two examples where the head asks for choices."""
    ids = np.random.default_rng(seed).integers(5, 100, (4, length), np.int32)
    return ids.reshape(2, 2, length) if head == "multiple_choice" else ids


@functools.partial(quick_jit, static_argnums=0, static_argnames=("train", "method"))
def run(module, params, *inputs, key=None, train=False, method="__call__"):
    rngs = None if key is None else {"dropout": key}
    return module.apply({"params": params}, *inputs, train=train, rngs=rngs, method=method)


@functools.partial(quick_jit, static_argnums=0)
def gradient_and_logits(module, params, labels, *inputs):
    def loss(params):
        logits = module.apply({"params": params}, *inputs)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(5), labels]), logits

    return jax.grad(loss, has_aux=True)(params)


# Against PyTorch


@each_name
def test_logits_and_gradients_match_pytorch(name):
    module, params, golden = load(name)
    inputs = [golden[k] for k in ("labels", "input_ids", "attention_mask", "token_type_ids")]
    ours, logits = gradient_and_logits(module, params, *inputs)
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
    ours = jax.tree.map(np.asarray, ours)
    encoder = ours["encoder"]
    first, second = encoder["layers_0"], encoder["layers_1"]
    layer = f"{name}.encoder.layer"
    last = "classifier" if name == "bert" else "classifier.out_proj"
    pairs = {
        f"{name}.embeddings.word_embeddings.weight": encoder["embeddings"]["word"]["embedding"],
        f"{name}.embeddings.position_embeddings.weight": (
            encoder["embeddings"]["position"]["embedding"]
        ),
        f"{layer}.0.attention.self.query.weight": (
            first["qkv"]["kernel"][:, 0].reshape(32, 32).T  # [in, heads, width] to [out, in]
        ),
        f"{layer}.1.attention.self.value.bias": second["qkv"]["bias"][2].reshape(32),
        f"{layer}.0.attention.output.dense.weight": first["out"]["kernel"].reshape(32, 32).T,
        f"{layer}.0.output.LayerNorm.weight": first["norm"]["scale"],
        f"{layer}.1.intermediate.dense.weight": second["up"]["kernel"].T,
        f"{last}.weight": ours["classifier"]["kernel"].T,
        f"{last}.bias": ours["classifier"]["bias"],
    }
    if name != "bert":
        pairs["classifier.dense.weight"] = ours["pool"]["kernel"].T
        pairs["classifier.dense.bias"] = ours["pool"]["bias"]
    assert {"grad/" + key for key in pairs} == {key for key in golden if key.startswith("grad/")}
    for key, value in pairs.items():
        want = golden["grad/" + key]
        error = np.abs(value - want).max() / np.abs(want).max()
        assert error < 1e-4, (key, error)


@each_name
def test_multiple_choice_matches_pytorch(name, tmp_path):
    *_, golden = load(name)
    tensors = load_file(GOLDEN / name / "model.safetensors")
    tensors = {k: v for k, v in tensors.items() if not k.startswith("classifier.")}
    tensors |= {k.split("/")[1]: v for k, v in golden.items() if k.startswith("choice_head/")}
    save_file(tensors, tmp_path / "model.safetensors")
    config = (GOLDEN / name / "config.json").read_text()
    (tmp_path / "config.json").write_text(
        config.replace("ForSequenceClassification", "ForMultipleChoice")
    )
    module, params = models.load_pretrained(tmp_path)
    assert module.head_kind == "multiple_choice"
    inputs = [golden["choice/" + k] for k in ("input_ids", "attention_mask", "token_type_ids")]
    logits = run(module, params, *inputs)
    assert logits.shape == (2, 3)
    np.testing.assert_allclose(logits, golden["choice/logits"], atol=1e-5)


@each_name
def test_logits_and_all_gradients_match_live_pytorch(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    auto = transformers.AutoModelForSequenceClassification
    theirs = auto.from_pretrained(GOLDEN / name).eval()
    module, params, _ = load(name)
    rng = np.random.default_rng(7)
    mask = (np.arange(12) < np.array([12, 3, 9, 5, 1])[:, None]).astype(np.int32)
    ids = np.where(mask, rng.integers(5, 100, mask.shape), module.config.pad_token_id)
    types = mask * (np.arange(12) > 3) * (module.config.type_vocab_size > 1)
    labels = rng.integers(0, 3, 5)
    arrays = [np.int32(x) for x in (labels, ids, mask, types)]
    tensors = [torch.from_numpy(x.astype(np.int64)) for x in arrays]
    logits = theirs(
        input_ids=tensors[1], attention_mask=tensors[2], token_type_ids=tensors[3]
    ).logits
    torch.nn.functional.cross_entropy(logits, tensors[0]).backward()
    ours, ours_logits = gradient_and_logits(module, params, *arrays)
    np.testing.assert_allclose(ours_logits, logits.detach(), atol=1e-4)
    models.save_pretrained(tmp_path, module, ours)  # gradients under PyTorch's names
    ours = load_file(tmp_path / "model.safetensors")
    scale = max(float(p.grad.abs().max()) for p in theirs.parameters())
    for key, weight in theirs.named_parameters():
        np.testing.assert_allclose(ours.pop(key), weight.grad, atol=1e-3 * scale, err_msg=key)
    assert not ours


# The cuts


@each_head
def test_cuts_compose_to_the_whole(head):
    """In training too: with one key for all, each part draws its own masks."""
    module, params = one_layer(head)
    ids = words(head)
    mask = np.broadcast_to(np.arange(8) < 6, ids.shape)

    def part(method, *inputs):
        return run(module, params, *inputs, key=KEY, train=True, method=method)

    embeddings = part("embed", ids)
    assert embeddings.shape == (*ids.shape, 32)
    features = part("features", embeddings, mask)
    assert features.shape == (*ids.shape[:-1], 32)
    whole = part("__call__", ids, mask)
    np.testing.assert_allclose(part("head", features), whole, atol=5e-6)
    assert whole.shape == ((2, 2) if head == "multiple_choice" else (4, 3))


@each_head
def test_mixing_features_is_mixing_logits(head):
    module, params = one_layer(head)
    features = np.random.default_rng(1).normal(size=(2, 4, 32)).astype(np.float32)
    logits = [np.asarray(run(module, params, f, method="head")) for f in features]
    mixed = run(module, params, 0.3 * features[0] + 0.7 * features[1], method="head")
    np.testing.assert_allclose(mixed, 0.3 * logits[0] + 0.7 * logits[1], atol=1e-5)


def test_linear_head_is_an_affine_map_of_the_first_hidden_state():
    module, params = one_layer("linear")
    mask = np.ones_like(words())
    hidden = run(models.Encoder(module.config), params["encoder"], words(), mask)
    affine = (
        np.asarray(hidden)[:, 0] @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    )
    np.testing.assert_allclose(run(module, params, words(), mask), affine, atol=1e-5)
    assert "pool" not in params


def test_choices_are_scored_one_by_one():
    module, params = one_layer("multiple_choice")
    ids = words("multiple_choice")
    mask = np.ones_like(ids)
    logits = run(module, params, ids, mask)
    swapped = run(module, params, ids[:, ::-1], mask)
    np.testing.assert_allclose(swapped, logits[:, ::-1], atol=1e-6)
    alone = run(module, params, ids.reshape(4, 1, 8), mask.reshape(4, 1, 8))
    np.testing.assert_allclose(alone.reshape(2, 2), logits, atol=1e-6)


@pytest.mark.parametrize("head", ["linear", "dense_gelu", "multiple_choice"])
def test_padding_does_not_change_logits(head):
    module, params = one_layer(head)
    ids = words(head)
    pad = [(0, 0)] * (ids.ndim - 1) + [(0, 5)]
    short = run(module, params, ids, np.ones_like(ids))
    long = run(module, params, np.pad(ids, pad), np.pad(np.ones_like(ids), pad))
    np.testing.assert_allclose(long, short, atol=2e-6)


# Dropout, dtype, errors


@pytest.mark.parametrize("head", ["linear", "multiple_choice"])
def test_heads_without_dropout_need_no_key(head):
    module, params = one_layer(head)
    ids = words(head)
    trained = run(module, params, ids, np.ones_like(ids), train=True)
    np.testing.assert_allclose(trained, run(module, params, ids, np.ones_like(ids)), atol=1e-6)


@pytest.mark.parametrize(
    ("head", "before_dense"), [("pooler", False), ("dense_tanh", True), ("dense_gelu", True)]
)
def test_own_heads_drop_out_where_pytorch_does(head, before_dense):
    module, params = one_layer(head)
    mask = np.ones_like(words())
    embeddings = run(module, params, words(), method="embed")
    calm = run(module, params, embeddings, mask, method="features")
    trained = run(module, params, embeddings, mask, key=KEY, train=True, method="features")
    assert (np.abs(trained - calm).max() > 0.01) == before_dense
    # Before the affine map: with the identity as kernel, features are zero or scaled.
    identity = params | {
        "classifier": {"kernel": np.eye(32, dtype=np.float32), "bias": np.zeros(32, np.float32)}
    }
    module = dataclasses.replace(module, num_classes=32)
    ones = np.ones((64, 32), np.float32)
    dropped = np.asarray(run(module, identity, ones, key=KEY, train=True, method="head"))
    np.testing.assert_allclose(np.unique(dropped), [0, 1 / 0.7], rtol=1e-6)
    assert abs((dropped == 0).mean() - 0.3) < 0.05


def test_dropout_of_the_head_defaults_to_the_encoders():
    features = np.ones((64, 32), np.float32)
    module, params = one_layer("pooler", classifier_dropout=None, hidden_dropout_prob=0.0)
    calm = run(module, params, features, method="head")
    np.testing.assert_array_equal(run(module, params, features, train=True, method="head"), calm)
    module, params = one_layer("pooler", classifier_dropout=None, hidden_dropout_prob=0.2)
    assert np.abs(run(module, params, features, key=KEY, train=True, method="head") - calm).any()


@pytest.mark.parametrize("head", ["pooler", "multiple_choice"])
def test_logits_are_float32_in_bfloat16_compute(head):
    module, params = one_layer(head)
    half = dataclasses.replace(module, dtype=jnp.bfloat16)
    ids = words(head)
    logits = run(half, params, ids, np.ones_like(ids))
    assert logits.dtype == jnp.float32
    exact = np.asarray(run(module, params, ids, np.ones_like(ids)))
    assert np.abs(logits - exact).max() < 0.05 * np.abs(exact).max()


def test_unknown_head_is_named():
    module = dataclasses.replace(one_layer("linear")[0], head_kind="lineal")
    with pytest.raises(ValueError, match="head='lineal': expected one of linear, pooler"):
        module.init(KEY, words(), words())
