"""Networks by name: the registry, its options, and that every train step lowers for accelerators."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calib_jax import models

ENCODERS = ("bert", "roberta", "electra", "xlm-roberta", "distilbert")
KIND = dict.fromkeys(ENCODERS, models.TextClassifier) | {
    "vit": models.ViT,
    "mlp": models.MLP,
    "resnet20": models.ResNet,
    "resnet50": models.ResNet,
    "resnet110": models.ResNet,
    "resnet50_tiny": models.ResNet,
    "resnet110_tiny": models.ResNet,
    "resnet50_imagenet": models.ResNet,
    "resnet110_imagenet": models.ResNet,
    "wide_resnet_26_10": models.ResNet,
    "wide_resnet_28_10": models.WideResNet,
    "densenet121": models.DenseNet,
    "densenet121_imagenet": models.DenseNet,
    "text_cnn": models.TextCNN,
}
TINY_ENCODER = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
TINY_IMAGE_ENCODER = {"image_size": 16, "patch_size": 8, "num_channels": 3}
TINY_IMAGE_ENCODER |= {key: size for key, size in TINY_ENCODER.items() if key != "vocab_size"}


@pytest.mark.parametrize("name", models.NAMES)
def test_every_name(name: str) -> None:
    module = models.create(name, 7)
    assert type(module) is KIND[name]
    assert module.num_classes == 7
    assert all(hasattr(module, cut) for cut in ("embed", "features", "head"))
    assert models.create(name, 7, dtype=jnp.bfloat16).dtype == jnp.bfloat16
    # Equal and hashable: as a static argument of jit it compiles once.
    assert models.create(name, 7) == module
    assert hash(models.create(name, 7)) == hash(module)
    assert models.create(name, 8) != module


def test_no_name_is_missing() -> None:
    assert set(models.NAMES) == set(KIND)
    assert len(set(models.NAMES)) == len(models.NAMES)


@pytest.mark.parametrize(
    ("wrong", "meant"), [("resnet_50", "resnet50"), ("robeta", "roberta"), ("textcnn", "text_cnn")]
)
def test_unknown_name_with_a_hint(wrong: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"model='{wrong}': .* did you mean '{meant}'\\?"):
        models.create(wrong, 10)


def test_unknown_name_without_a_hint() -> None:
    with pytest.raises(ValueError, match=r"expected one of bert, roberta, .*text_cnn$"):
        models.create("xyz", 10)


@pytest.mark.parametrize("name", ["bert", "resnet20", "text_cnn"])
def test_unknown_option_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"model {name}: option 'hiden_size': expected one of "):
        models.create(name, 2, hiden_size=8)


def test_options_get_hints() -> None:
    for name, wrong, meant in (("bert", "hiden_size", "hidden_size"), ("mlp", "width", "widths")):
        with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
            models.create(name, 2, **{wrong: 8})


def test_mlp_is_matrix_products_and_relu() -> None:
    module = models.create("mlp", 3, widths=(5, 4))
    images = jax.random.normal(jax.random.key(0), (2, 3, 3, 1))
    params = module.init(jax.random.key(1), images)["params"]
    x = np.asarray(images).reshape(2, 9)
    for layer in ("layers_0", "layers_1"):
        x = np.maximum(x @ params[layer]["kernel"] + params[layer]["bias"], 0)
    expected = x @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    np.testing.assert_allclose(module.apply({"params": params}, images), expected, atol=1e-5)


def test_image_options_override_the_defaults_of_a_name() -> None:
    module = models.create("resnet110_tiny", 10, stages=(1, 1, 1, 1), pool=1)
    assert (module.stages, module.pool, module.stem) == ((1, 1, 1, 1), 1, "small")


# With two labels and the architecture's own head: what transformers counts.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert", 109_483_778),
        ("roberta", 124_647_170),
        ("electra", 109_483_778),
        ("xlm-roberta", 278_045_186),
        ("distilbert", 66_955_010),
        ("vit", 85_800_194),
    ],
)
def test_base_encoders(name: str, parameters: int) -> None:
    module = models.create(name, 2)
    shapes = jax.eval_shape(module.init, jax.random.key(0), *example(name, module))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == parameters


# What the published config.json of the base size says and a parameter count does not show.
@pytest.mark.parametrize(
    ("name", "heads", "eps", "pad"),
    [
        ("bert", 12, 1e-12, 0),
        ("roberta", 12, 1e-5, 1),
        ("electra", 12, 1e-12, 0),
        ("xlm-roberta", 12, 1e-5, 1),
        ("distilbert", 12, 1e-12, 0),
    ],
)
def test_base_configs(name: str, heads: int, eps: float, pad: int) -> None:
    config = models.create(name, 2).config
    assert config.num_attention_heads == heads
    assert config.layer_norm_eps == eps
    assert config.pad_token_id == pad
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    assert config.initializer_range == 0.02


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_options(name: str) -> None:
    module = models.create(name, 3, remat=True, **TINY_ENCODER)
    config = module.config
    assert {k: getattr(config, k) for k in TINY_ENCODER} == TINY_ENCODER
    assert config.embedding_size == 16  # as wide as the encoder unless said otherwise
    assert config.model_type == name
    assert module.remat
    ids = jnp.ones((2, 5), jnp.int32)
    logits, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), ids, ids)
    assert logits.shape == (2, 3)
    encoder = variables["params"]["encoder"]
    assert "project" not in encoder["embeddings"]
    assert sum(key.startswith("layers_") for key in encoder) == 2

    narrow = models.create(name, 3, embedding_size=8, **TINY_ENCODER)
    assert narrow.config.embedding_size == 8
    shapes = jax.eval_shape(narrow.init, jax.random.key(0), ids, ids)
    assert shapes["params"]["encoder"]["embeddings"]["project"]["kernel"].shape == (8, 16)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("bert", "pooler"),
        ("roberta", "dense_tanh"),
        ("electra", "dense_gelu"),
        ("distilbert", "dense_relu"),
    ],
)
def test_encoder_heads(name: str, own: str) -> None:
    assert models.create(name, 3).head_kind == own
    ids = jnp.ones((2, 5), jnp.int32)
    for kind in models.HEADS:
        choices = jnp.ones((2, 4, 5), jnp.int32) if kind == "multiple_choice" else ids
        module = models.create(name, 3, head=kind, **TINY_ENCODER)
        logits, _ = jax.eval_shape(module.init_with_output, jax.random.key(0), choices, choices)
        assert logits.shape == ((2, 4) if kind == "multiple_choice" else (2, 3))


def train_step(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A step of gradient descent as a pure function, and the shapes of its arguments."""
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs)
    params = variables.pop("params")
    labels = jax.ShapeDtypeStruct((inputs[0].shape[0],), jnp.int32)

    def step(params: Any, rest: Any, inputs: Any, labels: Any, seed: Any) -> Any:
        rngs = {"dropout": jax.random.key(seed)}

        def loss(params: Any) -> Any:
            logits, new = module.apply(
                {"params": params, **rest}, *inputs, train=True, rngs=rngs, mutable=["batch_stats"]
            )
            picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
            return -jnp.mean(picked), rest | new

        (value, rest), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), rest

    return step, (params, variables, inputs, labels, jax.ShapeDtypeStruct((), jnp.int32))


def example(name: str, module: Any, batch: int = 2) -> tuple[Any, ...]:
    if name in ENCODERS:
        ids = jax.ShapeDtypeStruct((batch, 8), jnp.int32)
        return ids, ids
    if name == "text_cnn":
        return (jax.ShapeDtypeStruct((batch, 30), jnp.int32),)
    if name == "vit":
        side = module.config.image_size
    else:
        side = 64 if "tiny" in name or "imagenet" in name else 32
    return (jax.ShapeDtypeStruct((batch, side, side, 3), jnp.float32),)


SMALL: dict[str, dict[str, Any]] = {
    "bert": TINY_ENCODER,
    "roberta": TINY_ENCODER | {"remat": True},
    "electra": TINY_ENCODER | {"embedding_size": 8},
    "distilbert": TINY_ENCODER,
    "vit": TINY_IMAGE_ENCODER,
    "resnet20": {},
    "resnet50": {"stages": (1, 1), "widths": (8, 8)},
    "resnet110_tiny": {"stages": (1, 1), "widths": (8, 8)},
    "resnet50_imagenet": {"stages": (1, 1), "widths": (8, 8)},
    "wide_resnet_26_10": {"stages": (1, 1), "widths": (8, 8)},
    "wide_resnet_28_10": {"widen": 1},
    "densenet121": {"blocks": (2, 2), "growth": 4},
    "densenet121_imagenet": {"blocks": (2, 2), "growth": 4},
    "text_cnn": {"vocab_size": 50},
    "mlp": {},
}


def check_lowering(name: str, dtype: str, options: dict[str, Any]) -> None:
    module = models.create(name, 3, dtype=jnp.dtype(dtype), **options)
    step, arguments = train_step(module, example(name, module))
    exported = jax.export.export(jax.jit(step), platforms=["cuda", "tpu"])(*arguments)
    assert exported.platforms == ("cuda", "tpu")
    # Whatever is computed in bfloat16, what goes from step to step is float32.
    assert {aval.dtype for aval in exported.out_avals} == {np.dtype(np.float32)}
    lines = exported.mlir_module().splitlines()
    # An encoder's attention has some float32 products: its softmax is float32.
    dense = name in (*ENCODERS, "vit", "mlp")
    operation = "stablehlo.dot_general" if dense else "stablehlo.convolution"
    products = ["xbf16>" in line for line in lines if operation in line]
    assert len(products) >= (5 if name == "mlp" else 6)
    if dtype == "float32":
        assert not any(products)
    else:
        assert any(products) if dense else all(products)


@pytest.mark.parametrize("name", SMALL)
def test_train_step_lowers_for_cuda_and_tpu(name: str) -> None:
    check_lowering(name, "bfloat16", SMALL[name])


# Everything else is tested in float32, so two are enough by default.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ("bert", "resnet20") else [pytest.mark.slow]) for n in SMALL],
)
def test_train_step_in_float32_lowers_for_cuda_and_tpu(name: str) -> None:
    check_lowering(name, "float32", SMALL[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", models.NAMES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_train_step_lowers_at_full_size(name: str, dtype: str) -> None:
    check_lowering(name, dtype, {})
