"""XLM-RoBERTa, DistilBERT and ViT: PyTorch's logits and gradients, and folders that go both ways."""

import dataclasses
import functools
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import quick_jit
from safetensors.numpy import load_file, save_file

from calib_jax import models

GOLDEN = pathlib.Path(__file__).parent / "golden"
TEXTS = ("xlm-roberta", "distilbert")
each_name = pytest.mark.parametrize("name", [*TEXTS, "vit"])
each_text = pytest.mark.parametrize("name", TEXTS)


@functools.cache
def load(name):
    """Module, parameters, PyTorch's arrays and the inputs in the order of our arguments."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        arrays = dict(file)
    if name == "vit":
        inputs = (
            arrays["pixel_values"].transpose(0, 2, 3, 1),
        )  # to [batch, height, width, channels]
    else:
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = tuple(arrays[key] for key in names if key in arrays)
    return *models.load_pretrained(GOLDEN / name), arrays, inputs


@functools.partial(quick_jit, static_argnums=0, static_argnames=("train", "method"))
def run(module, params, *inputs, key=None, train=False, method="__call__"):
    rngs = None if key is None else {"dropout": key}
    return module.apply({"params": params}, *inputs, train=train, rngs=rngs, method=method)


@functools.partial(quick_jit, static_argnums=0)
def gradient_and_logits(module, params, labels, *inputs):
    def loss(params):
        logits = module.apply({"params": params}, *inputs)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels]), logits

    return jax.grad(loss, has_aux=True)(params)


def trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@each_name
def test_logits_and_all_gradients_match_pytorch(name, tmp_path):
    module, params, golden, inputs = load(name)
    gradients, logits = gradient_and_logits(module, params, golden["labels"], *inputs)
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
    models.save_pretrained(tmp_path, module, gradients)  # under PyTorch's names
    ours = load_file(tmp_path / "model.safetensors")
    theirs = load_file(GOLDEN / name / "gradients.safetensors")
    assert ours.keys() == theirs.keys()
    largest = max(np.abs(x).max() for x in theirs.values())
    for key, want in theirs.items():
        np.testing.assert_allclose(ours[key], want, atol=1e-5 * largest, err_msg=key)


@each_text
def test_multiple_choice_matches_pytorch(name, tmp_path):
    *_, golden, inputs = load(name)
    tensors = load_file(GOLDEN / name / "model.safetensors")
    outside = ("classifier.", "pre_classifier.")
    tensors = {k: v for k, v in tensors.items() if not k.startswith(outside)}
    tensors |= {k.split("/")[1]: v for k, v in golden.items() if k.startswith("choice_head/")}
    save_file(tensors, tmp_path / "model.safetensors")
    config = (GOLDEN / name / "config.json").read_text()
    config = config.replace("ForSequenceClassification", "ForMultipleChoice")
    (tmp_path / "config.json").write_text(config)
    module, params = models.load_pretrained(tmp_path)
    assert module.head_kind == "multiple_choice"
    logits = run(module, params, *(x.reshape(2, 2, -1) for x in inputs))
    np.testing.assert_allclose(logits, golden["choice/logits"], atol=1e-5)
    models.save_pretrained(tmp_path / "again", module, params)
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == tensors.keys()


@each_name
def test_a_folder_is_written_as_it_was_read(name, tmp_path):
    module, params, *_ = load(name)
    models.save_pretrained(tmp_path, module, params)
    trees_equal(
        load_file(tmp_path / "model.safetensors"), load_file(GOLDEN / name / "model.safetensors")
    )
    ours, theirs = (json.loads((p / "config.json").read_text()) for p in (tmp_path, GOLDEN / name))
    assert {key: theirs.get(key, value) for key, value in ours.items()} == ours
    again, params_again = models.load_pretrained(tmp_path)
    assert again == module
    trees_equal(params_again, params)


@each_name
def test_pytorch_loads_what_is_saved(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    module, params, golden, _ = load(name)
    params = jax.tree.map(lambda x: 0.9 * x, params)  # not the folder that PyTorch wrote
    models.save_pretrained(tmp_path, module, params, label_names=["a", "b", "c"])
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert config.id2label == {0: "a", 1: "b", 2: "c"}
    auto = getattr(transformers, config.architectures[0])
    theirs, report = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    names = ("pixel_values", "input_ids", "attention_mask", "token_type_ids")
    batch = {key: torch.from_numpy(golden[key]) for key in names if key in golden}
    with torch.no_grad():
        logits = theirs.eval()(**batch).logits
    np.testing.assert_allclose(run(module, params, *load(name)[3]), logits, atol=1e-4)


@each_name
def test_bare_encoder_is_loaded_saved_and_read_by_pytorch(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    module, params, *_ = load(name)
    cls = models.VisionEncoder if name == "vit" else models.Encoder
    models.save_pretrained(tmp_path, cls(module.config), params["encoder"])
    again, encoder = models.load_pretrained(tmp_path)
    assert again == cls(module.config)
    trees_equal(encoder, params["encoder"])
    options = {} if name == "distilbert" else {"add_pooling_layer": False}
    auto = transformers.AutoModel
    _, report = auto.from_pretrained(tmp_path, output_loading_info=True, **options)
    assert not any(report.values()), report
    # A classifier on top of it has a new head.
    classifier, new = models.load_pretrained(tmp_path, 5)
    assert classifier.num_classes == 5
    trees_equal(new["encoder"], params["encoder"])


@each_name
def test_created_by_name(name):
    module, params, *_ = load(name)
    sizes = dataclasses.asdict(module.config)
    del sizes["model_type"]
    created = models.create(name, 3, **sizes)
    assert created == module
    shapes = jax.eval_shape(lambda *x: created.init(jax.random.key(0), *x), *load(name)[3])
    assert jax.tree.map(jnp.shape, shapes["params"]) == jax.tree.map(jnp.shape, params)


def test_distilbert_has_no_token_types():
    module, params, _, inputs = load("distilbert")
    assert "token_type" not in params["encoder"]["embeddings"]
    with_types = run(module, params, *inputs, jnp.ones_like(inputs[0]))  # another tokenizer's
    np.testing.assert_array_equal(with_types, run(module, params, *inputs))


def test_xlm_roberta_counts_positions_from_the_padding_id():
    module, params, golden, (ids, mask, types) = load("xlm-roberta")
    wide = [
        np.pad(x, [(0, 0), (0, 3)], constant_values=v) for x, v in ((ids, 1), (mask, 0), (types, 0))
    ]
    np.testing.assert_allclose(run(module, params, *wide), golden["logits"], atol=1e-5)
    with pytest.raises(ValueError, match="input of length 13: this encoder has 12 positions"):
        run(module, params, *(np.pad(x, [(0, 0), (0, 4)]) for x in (ids, mask, types)))


# ViT


def test_cuts_of_vit_compose_to_the_whole():
    module, params, _, (images,) = load("vit")
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    module = dataclasses.replace(module, config=dataclasses.replace(module.config, **rates))
    cut = functools.partial(run, module, params, key=jax.random.key(4), train=True)
    embeddings = cut(images, method="embed")
    assert embeddings.shape == (4, 10, 8)
    features = cut(embeddings, method="features")
    assert features.shape == (4, 8)
    whole = cut(images)
    np.testing.assert_allclose(cut(features, method="head"), whole, atol=5e-6)
    assert np.abs(whole - run(module, params, images)).max() > 0.01  # dropout was on


def test_mixing_embeddings_of_vit_is_mixing_images():
    module, params, _, (images,) = load("vit")
    mixed = 0.3 * images + 0.7 * images[::-1]
    embeddings = run(module, params, images, method="embed")
    want = 0.3 * embeddings + 0.7 * embeddings[::-1]
    np.testing.assert_allclose(run(module, params, mixed, method="embed"), want, atol=1e-5)


def test_vit_computes_in_bfloat16_and_with_recomputed_layers():
    module, params, _, (images,) = load("vit")
    exact = run(module, params, images)
    half = run(dataclasses.replace(module, dtype=jnp.bfloat16), params, images)
    assert half.dtype == jnp.float32
    assert np.abs(half - exact).max() < 0.05 * np.abs(exact).max()
    again = run(dataclasses.replace(module, remat=True), params, images)
    np.testing.assert_allclose(again, exact, atol=1e-6)


@pytest.mark.parametrize("shape", [(32, 32, 2), (12, 12, 3), (12, 8, 2)])
def test_vit_refuses_images_of_another_size_in_one_line(shape):
    module, params, *_ = load("vit")
    given = " x ".join(map(str, shape))
    message = f"^images of {given}: this ViT takes 12 x 12 x 2 .height x width x channels.; resize"
    with pytest.raises(ValueError, match=message) as caught:
        run(module, params, np.zeros((1, *shape), np.float32))
    assert "\n" not in str(caught.value)


def test_vit_refuses_sizes_and_heads_that_it_does_not_have():
    with pytest.raises(ValueError, match="image_size=30: expected a multiple of patch_size=16"):
        models.create("vit", 2, image_size=30)
    with pytest.raises(ValueError, match="head='pooler': a ViT has only 'linear'"):
        models.load_pretrained(GOLDEN / "vit", 3, head="pooler")


def test_image_statistics(tmp_path):
    module, params, *_ = load("vit")
    assert models.image_statistics(GOLDEN / "vit") is None
    mean, std = (0.5, 0.4), (0.3, 0.2)
    models.save_pretrained(tmp_path, module, params, mean=mean, std=std)
    assert models.image_statistics(tmp_path) == (mean, std)
    file = tmp_path / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps(settings | {"do_normalize": False}))
    assert models.image_statistics(tmp_path) == ((0.0,), (1.0,))
    file.write_text(json.dumps(settings | {"rescale_factor": 1.0}))
    with pytest.raises(ValueError, match=r"rescale_factor=1\.0: expected 1/255"):
        models.image_statistics(tmp_path)
    file.write_text(json.dumps({"image_mean": [0.5]}))
    with pytest.raises(ValueError, match="expected image_mean and image_std"):
        models.image_statistics(tmp_path)


def test_what_is_not_implemented_is_refused(tmp_path):
    for name, changes, message in (
        ("distilbert", {"sinusoidal_pos_embds": True}, "sinusoidal_pos_embds=True: only False"),
        ("distilbert", {"activation": "relu"}, "hidden_act='relu': only 'gelu'"),
        ("vit", {"qkv_bias": False}, "qkv_bias=False: only True"),
    ):
        shutil.copytree(GOLDEN / name, tmp_path, dirs_exist_ok=True)
        config = json.loads((GOLDEN / name / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ValueError, match=message):
            models.load_pretrained(tmp_path)
