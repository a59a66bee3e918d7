"""The encoder against PyTorch's hidden states, and what must not depend on padding, dtype or remat."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit

from calib_jax import models
from calib_jax.models._transformer import Dropout, gelu

GOLDEN = pathlib.Path(__file__).parent / "golden"
NAMES = ("bert", "roberta", "electra")
each_name = pytest.mark.parametrize("name", NAMES)


@functools.cache
def load(name):
    """Encoder, its parameters and PyTorch's arrays."""
    classifier, params = models.load_pretrained(GOLDEN / name)
    with np.load(GOLDEN / f"{name}.npz") as file:
        arrays = dict(file)
    return models.Encoder(classifier.config), params["encoder"], arrays


def one_layer(name="bert", **options):
    """The first layer alone: half as much to compile where the number of layers says nothing."""
    encoder, params, _ = load(name)
    config = dataclasses.replace(encoder.config, num_hidden_layers=1, **options)
    return models.Encoder(config), {key: params[key] for key in ("embeddings", "layers_0")}


def apply(module, params, ids, mask, types=None, key=None, train=False):
    rngs = None if key is None else {"dropout": key}
    return module.apply({"params": params}, ids, mask, types, train, rngs=rngs)


run = quick_jit(apply, static_argnums=0, static_argnames="train")


def words(rows=5, length=12, seed=0):
    return np.random.default_rng(seed).integers(5, 100, (rows, length), np.int32)


def lengths(*counts, length=12):
    """A mask for rows of so many words."""
    return (np.arange(length) < np.array(counts)[:, None]).astype(np.int32)


SHORT = lengths(12, 9, 1, 4, 7)
ALL = np.ones((5, 12), np.int32)


# Against PyTorch


@each_name
def test_hidden_states_of_all_layers_match_pytorch(name):
    module, params, golden = load(name)
    inputs = (golden["input_ids"], golden["attention_mask"], golden["token_type_ids"])

    @quick_jit
    def states_of(params, ids, mask, types):
        embeddings = module.apply({"params": params}, ids, types, method="embed")
        _, state = module.apply({"params": params}, ids, mask, types, capture_intermediates=True)
        return embeddings, state["intermediates"]

    embeddings, state = states_of(params, *inputs)
    layers = [state[f"layers_{i}"]["__call__"][0] for i in range(2)]
    states = jnp.stack([embeddings, *layers])
    np.testing.assert_allclose(states, golden["hidden_states"], atol=1e-5)
    last = run(module, params, *inputs)
    np.testing.assert_allclose(last, golden["hidden_states"][-1], atol=1e-5)
    assert (golden["attention_mask"] == 0).any()


@each_name
def test_hidden_states_match_live_pytorch(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    module, params, golden = load(name)
    theirs = transformers.AutoModel.from_pretrained(GOLDEN / name).eval()
    mask = lengths(20, 1, 7, 13, 19, 4, length=20)
    ids = np.where(mask, words(6, 20), module.config.pad_token_id)
    types = (np.arange(20) > 5) * mask * (module.config.type_vocab_size > 1)
    if (
        name == "roberta"
    ):  # padding on the left and inside: positions are counted by ids, not by mask
        ids[4, :3] = ids[5, 2] = module.config.pad_token_id
    tensors = [torch.from_numpy(x.astype(np.int64)) for x in (ids, mask, types)]
    with torch.no_grad():
        expected = theirs(
            input_ids=tensors[0], attention_mask=tensors[1], token_type_ids=tensors[2]
        ).last_hidden_state
        again = theirs(
            input_ids=torch.from_numpy(golden["input_ids"]),
            attention_mask=torch.from_numpy(golden["attention_mask"]),
            token_type_ids=torch.from_numpy(golden["token_type_ids"]),
        ).last_hidden_state
    np.testing.assert_allclose(run(module, params, ids, mask, types), expected, atol=1e-4)
    np.testing.assert_allclose(
        again, golden["hidden_states"][-1], atol=1e-5
    )  # golden is up to date


def test_gelu_is_exact():
    x = np.array([-6.0, -3.0, -1.0, -0.25, 0.0, 0.5, 2.0, 6.0])
    normal_cdf = np.array(  # Φ(x), from tables of the normal distribution
        [9.865876e-10, 0.001349898, 0.158655254, 0.401293674, 0.5, 0.691462461, 0.977249868, 1.0]
    )
    np.testing.assert_allclose(gelu(jnp.float32(x)), x * normal_cdf, atol=1e-6)
    half = gelu(jnp.bfloat16(x))
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(half.astype(jnp.float32), x * normal_cdf, rtol=2**-8, atol=1e-6)


# Padding and positions


@each_name
def test_padding_changes_nothing(name):
    module, params, _ = load(name)
    ids = words()
    short = run(module, params, ids, ALL)
    padded = np.pad(ids, [(0, 0), (0, 8)], constant_values=module.config.pad_token_id)
    mask = np.pad(ALL, [(0, 0), (0, 8)])
    long = run(module, params, padded, mask)
    np.testing.assert_allclose(long[:, :12], short, atol=2e-6)
    # Whatever stands under the mask is not seen at all.
    other = np.where(mask, padded, 77)
    np.testing.assert_array_equal(run(module, params, other, mask)[:, :12], long[:, :12])


def test_row_of_padding_alone_is_finite():
    module, params = one_layer()
    mask = lengths(12, 0, 0, 12, 12)
    assert np.isfinite(run(module, params, words() * mask, mask)).all()
    value, gradient = loss_and_gradient(module, params, words() * mask, mask, KEY)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((value, gradient)))


def test_roberta_counts_positions_from_the_padding_id_on():
    module, params, _ = load("roberta")

    embed = quick_jit(functools.partial(module.apply, method="embed"))

    def of(*ids, params=params):
        return np.asarray(embed({"params": params}, np.array([ids])))[0]

    np.testing.assert_allclose(of(1, 1, 5, 6)[2:], of(5, 6, 1, 1)[:2], atol=1e-6)
    np.testing.assert_allclose(of(5, 1, 6, 1)[::2], of(5, 6, 1, 1)[:2], atol=1e-6)
    table = np.array(params["embeddings"]["position"]["embedding"])
    table[2] = table[2, ::-1]
    changed = params | {"embeddings": params["embeddings"] | {"position": {"embedding": table}}}
    difference = np.abs(of(5, 6, 1, 1, params=changed) - of(5, 6, 1, 1)).max(-1)
    np.testing.assert_array_equal(
        difference > 1e-3, [True, False, False, False]
    )  # the first word's


def test_bert_counts_positions_from_zero():
    module, params, _ = load("bert")
    embed = quick_jit(functools.partial(module.apply, {"params": params}, method="embed"))
    first, second = np.asarray(embed(np.array([[5, 5]])))[0]
    assert np.abs(second - first).max() > 1e-2
    padded = np.asarray(embed(np.array([[0, 5]])))[0]
    np.testing.assert_allclose(padded[1], second, atol=1e-6)


@pytest.mark.parametrize(("name", "available"), [("bert", 24), ("roberta", 22), ("electra", 24)])
def test_too_long_input_is_refused(name, available):
    module, params, _ = load(name)
    embed = functools.partial(module.apply, {"params": params}, method="embed")
    assert jax.eval_shape(embed, words(1, available)).shape == (1, available, 32)
    with pytest.raises(ValueError, match=f"length {available + 1}: .* {available} positions"):
        jax.eval_shape(embed, words(1, available + 1))


def test_token_types_default_to_zero_and_matter():
    module, params, _ = load("bert")
    default = run(module, params, words(), ALL)
    zeros = np.zeros_like(ALL)
    np.testing.assert_allclose(run(module, params, words(), ALL, zeros), default, atol=1e-6)
    assert np.abs(default - run(module, params, words(), ALL, zeros + 1)).max() > 1e-2


# Compute type and remat

KEY = jax.random.key(3, impl="rbg")


@functools.partial(quick_jit, static_argnums=0)
def loss_and_gradient(module, params, ids, mask, key=None):
    weights = jax.random.normal(KEY, (ids.shape[1], 32))

    def loss(params):
        hidden = apply(module, params, ids, mask, None, key, train=key is not None)
        return jnp.mean(jnp.sum(hidden.astype(jnp.float32) * weights, (1, 2)))

    return jax.value_and_grad(loss)(params)


def distance(value, want):
    value, want = (np.asarray(x, np.float32) for x in (value, want))
    return np.linalg.norm(value - want) / np.linalg.norm(want)


@each_name
def test_bfloat16_is_close_and_parameters_stay_float32(name):
    module, params, _ = load(name)
    half = dataclasses.replace(module, dtype=jnp.bfloat16)
    fresh = jax.eval_shape(lambda: half.init(KEY, words(), SHORT)["params"])
    assert {x.dtype for x in jax.tree.leaves(fresh)} == {jnp.dtype("float32")}
    output = run(half, params, words(), SHORT)
    assert output.dtype == jnp.bfloat16
    exact = run(module, params, words(), SHORT)
    assert distance(output, exact) < 0.02


def test_gradients_in_bfloat16_are_close_and_float32():
    module, params = one_layer("electra")
    half = dataclasses.replace(module, dtype=jnp.bfloat16)
    gradient = loss_and_gradient(half, params, words(), SHORT)[1]
    expected = loss_and_gradient(module, params, words(), SHORT)[1]
    for path, value in jax.tree.leaves_with_path(gradient):
        want = functools.reduce(lambda tree, key: tree[key.key], path, expected)
        assert value.dtype == jnp.float32
        if path[-2].key == "qkv" and path[-1].key == "bias":  # the keys' bias changes no softmax
            value, want = np.delete(value, 1, 0), np.delete(want, 1, 0)
        assert distance(value, want) < 0.05, path


def test_embedding_gradients_add_up_in_float32():
    """In bfloat16 a row that occurs a thousand times would lose most of the small terms."""
    module, params, _ = load("bert")
    half = dataclasses.replace(module, dtype=jnp.bfloat16)
    ids = np.full((96, 16), 7)

    @functools.partial(quick_jit, static_argnums=0)
    def gradient(module, params):
        def loss(params):
            x = module.apply({"params": params}, ids, method="embed").astype(jnp.float32)
            return (x * (1 + jnp.arange(16.0)[:, None])).sum(1).std(-1).sum()

        return jax.grad(loss)(params)["embeddings"]["word"]["embedding"][7]

    assert distance(gradient(half, params), gradient(module, params)) < 0.01


def test_remat_gives_the_same_values_and_gradients():
    module, params = one_layer()
    again = dataclasses.replace(module, remat=True)
    value, gradient = loss_and_gradient(module, params, words(), SHORT, KEY)
    value_again, gradient_again = loss_and_gradient(again, params, words(), SHORT, KEY)
    np.testing.assert_allclose(value_again, value, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradient_again, gradient)
    for candidate, expected in ((module, False), (again, True)):
        step = functools.partial(loss_and_gradient.__wrapped__, candidate)
        assert ("remat" in str(jax.make_jaxpr(step)(params, words(), SHORT, KEY))) == expected


# Dropout


def drop(x, rate, key, train=True):
    return Dropout(rate).apply({}, x, train, rngs={"dropout": key})


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_has_the_right_rate_and_scale(impl, rate):
    x = jnp.full((400, 501), 3.0)  # odd: the last word of each row is half used
    y = np.asarray(drop(x, rate, jax.random.key(0, impl=impl)))
    kept = y != 0
    np.testing.assert_allclose(y[kept], 3 / (1 - rate), rtol=1e-6)
    deviation = (rate * (1 - rate) / x.size) ** 0.5
    assert abs(kept.mean() - (1 - rate)) < 4 * deviation
    # Rows, columns and the two halves of a word are independent of each other.
    assert abs(kept.mean(0) - (1 - rate)).max() < 5 * (rate * (1 - rate) / 400) ** 0.5
    assert abs(kept.mean(1) - (1 - rate)).max() < 5 * (rate * (1 - rate) / 501) ** 0.5
    for a, b in ((kept[:, 1:], kept[:, :-1]), (kept[1:], kept[:-1]), (kept[:, 2:], kept[:, :-2])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.015


def test_dropout_in_bfloat16_keeps_the_mean():
    x = jnp.arange(1.0, 257.0, dtype=jnp.bfloat16).reshape(1, 256)  # exact in bfloat16
    y = drop(jnp.tile(x, (4, 1)), 0.1, jax.random.key(1)).astype(jnp.float32)
    ratio = (y / x.astype(jnp.float32))[y != 0]
    assert abs(ratio.mean() - 1 / 0.9) < 5e-4  # 1 / 0.9 itself rounds to 1.109


def test_dropout_is_a_function_of_the_key_and_off_in_evaluation():
    x = jnp.ones((8, 64))
    first = drop(x, 0.3, jax.random.key(1))
    np.testing.assert_array_equal(first, drop(x, 0.3, jax.random.key(1)))
    assert (first != drop(x, 0.3, jax.random.key(2))).any()
    np.testing.assert_array_equal(drop(x, 0.3, jax.random.key(1), train=False), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, True), x)  # needs no key


def test_encoder_drops_out_in_training_only():
    module, params = one_layer("roberta")
    calm = run(module, params, words(), SHORT)
    np.testing.assert_array_equal(run(module, params, words(), SHORT, None, KEY), calm)
    trained = run(module, params, words(), SHORT, None, KEY, train=True)
    again = run(module, params, words(), SHORT, None, KEY, train=True)
    np.testing.assert_array_equal(again, trained)
    assert np.abs(trained - calm).max() > 0.1
    other = jax.random.fold_in(KEY, 1)
    other = run(module, params, words(), SHORT, None, other, train=True)
    assert np.abs(trained - other).max() > 0.1


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_rate_acts_and_zero_rates_need_no_key(field):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    module, params = one_layer(**rates)
    calm = run(module, params, words(), SHORT)
    np.testing.assert_allclose(run(module, params, words(), SHORT, train=True), calm, atol=2e-6)
    module, _ = one_layer(**rates | {field: 0.2})
    trained = run(module, params, words(), SHORT, None, KEY, train=True)
    assert np.abs(trained - calm).max() > 0.1


def test_attention_of_training_is_the_attention_of_evaluation():
    """A rate that rounds to nothing: the training path without the dropping."""
    module, params = one_layer(hidden_dropout_prob=0.0, attention_probs_dropout_prob=1e-9)
    trained = run(module, params, words(), SHORT, None, KEY, train=True)
    np.testing.assert_allclose(trained, run(module, params, words(), SHORT), atol=2e-6)


# Sizes


def json_of(**changes):
    config = models.create("bert", 2).config.to_json() | changes
    return {key: value for key, value in config.items() if value != "drop"}


@pytest.mark.parametrize("name", NAMES)
def test_config_survives_json(name):
    config = load(name)[0].config
    assert models.EncoderConfig.from_json(config.to_json()) == config
    assert config.embedding_size == (16 if name == "electra" else 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type='gpt2': expected one of bert, roberta, xlm-"),
        ({"model_type": "drop"}, "model_type=None"),
        ({"hidden_act": "relu"}, "hidden_act='relu': only 'gelu'"),
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new': only 'gelu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"vocab_size": "drop", "hidden_size": "drop"}, "lacks .*hidden_size.*vocab_size"),
        ({"model_type": "electra"}, "lacks embedding_size"),
        ({"hidden_size": 100}, "hidden_size=100: expected a multiple of num_attention_heads=12"),
    ],
)
def test_config_that_is_not_implemented_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        models.EncoderConfig.from_json(json_of(**changes))


def test_defaults_of_a_config():
    roberta = json_of(model_type="roberta", pad_token_id="drop", embedding_size=64)
    config = models.EncoderConfig.from_json(roberta)
    assert (config.pad_token_id, config.embedding_size) == (1, 768)
    assert models.EncoderConfig.from_json(json_of(pad_token_id=None)).pad_token_id == 0


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("bert", {}, 109_483_778),  # bert-base-uncased, two classes
        ("roberta", {}, 124_647_170),  # roberta-base
        ("electra", {}, 109_483_778),  # electra-base
        (
            "electra",  # electra-small
            {
                "hidden_size": 256,
                "embedding_size": 128,
                "num_attention_heads": 4,
                "intermediate_size": 1024,
            },
            13_549_314,
        ),
    ],
)
def test_parameter_counts_are_those_of_the_published_networks(name, options, count):
    module = models.create(name, 2, **options)
    ids = jnp.zeros((1, 4), jnp.int32)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), ids, ids))
    assert sum(x.size for x in jax.tree.leaves(shapes)) == count


# Accelerators


@each_name
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_training_step_lowers_for_accelerators(name, dtype):
    module = models.TextClassifier(load(name)[0].config, 3, "linear", dtype, remat=name == "bert")
    ids = jnp.zeros((2, 8), jnp.int32)
    params = jax.eval_shape(lambda: module.init(jax.random.key(0), ids, ids)["params"])

    def step(params, ids, mask, labels, seed):
        def loss(params):
            rngs = {"dropout": jax.random.key(seed, impl="rbg")}
            logits = module.apply({"params": params}, ids, mask, train=True, rngs=rngs)
            return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(2), labels])

        value, gradient = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradient)

    labels = jnp.zeros(2, jnp.int32)
    for platform in ("cuda", "tpu"):
        lower = jax.export.export(jax.jit(step), platforms=[platform])
        exported = lower(params, ids, ids, labels, jnp.int32(0))
        assert exported.platforms == (platform,)
        assert ("bf16" in exported.mlir_module()) == (dtype == jnp.bfloat16)
        assert {x.dtype for x in exported.out_avals} == {jnp.dtype("float32")}
