"""Load and save networks in the Hugging Face layout: `config.json` and safetensors, never a pickle."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from calib_jax._io import write_atomic, write_json
from calib_jax.models._encoder import Encoder, EncoderConfig
from calib_jax.models._hub import find_pretrained
from calib_jax.models._text_classifier import DEFAULT_HEAD, TextClassifier
from calib_jax.models._torch_names import ARCHITECTURES, POOLERS, HubModule, TorchNames
from calib_jax.models._transformer import Json, TransformerConfig
from calib_jax.models._vit import VisionEncoder, ViT, ViTConfig

Params = dict[str, Any]  # nested, with arrays as leaves
Shapes = Mapping[str, jax.ShapeDtypeStruct]
Tensors = dict[str, np.ndarray]

# Tensors of pre-training tasks and buffers, which a classifier does not use.
_IGNORED = (
    "cls.",
    "lm_head.",
    "discriminator_predictions.",
    "generator_predictions.",
    "generator_lm_head.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "decoder.",
    "embeddings.position_ids",
    "embeddings.mask_token",
)

# Suffix of the PyTorch class that computes a head. Our logits of a linear head on a text are those of
# token classification for the first token.
_TASK = {
    "linear": "ForTokenClassification",
    "pooler": "ForSequenceClassification",
    "dense_tanh": "ForSequenceClassification",
    "dense_gelu": "ForSequenceClassification",
    "dense_relu": "ForSequenceClassification",
    "multiple_choice": "ForMultipleChoice",
}


def load_pretrained(
    path_or_id: str | os.PathLike[str],
    num_classes: int | None = None,
    *,
    head: str | None = None,
    dtype: DTypeLike = jnp.float32,
    remat: bool = False,
    seed: int = 0,
) -> tuple[nn.Module, Params]:
    """Load an encoder of texts or images, or a classifier on top of one.

    Args:
      path_or_id: Folder with `config.json` and `model.safetensors` (or shards with their index), or
        an id of the Hugging Face Hub, `org/name` or `org/name@revision`; see `find_pretrained`.
      num_classes: Number of classes of a `TextClassifier` or `ViT`. A head of the same kind in the
        folder is used, its last layer only if the number of classes agrees; other layers are
        initialized at random. `None`: a classifier if the folder contains one, otherwise the bare
        `Encoder` or `VisionEncoder`.
      head: Name of a text classifier's head, one of `HEADS`; `None` means the folder's, or else the
        architecture's default.
      dtype: Type of the activations.
      remat: Whether to recompute activations, as in `Encoder`.
      seed: Seed of layers that are not in the folder.

    Returns:
      The module and its float32 parameters, for `module.apply({"params": params}, …)`.

    >>> import tempfile
    >>> from calib_jax import models
    >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    >>> module = models.create("bert", 2, vocab_size=20, num_hidden_layers=1, **sizes)
    >>> ids = jnp.ones((1, 3), jnp.int32)
    >>> params = module.init(jax.random.key(0), ids, ids)["params"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     models.save_pretrained(folder, module, params)
    ...     encoder, _ = models.load_pretrained(folder)
    ...     fresh, _ = models.load_pretrained(folder, num_classes=5)
    >>> encoder == module, fresh.num_classes
    (True, 5)
    """
    path = find_pretrained(path_or_id).folder
    settings = _read_config(path)
    is_vit = settings.get("model_type") == "vit"
    config = (ViTConfig if is_vit else EncoderConfig).from_json(settings)
    tensors = _read_tensors(path, ARCHITECTURES[config.model_type].prefix)
    stored = _stored_head(settings, tensors)
    if isinstance(config, ViTConfig) and head not in (None, "linear"):
        raise ValueError(f"head={head!r}: a ViT has only 'linear'")
    kind = head or stored or DEFAULT_HEAD.get(config.model_type, "linear")
    if num_classes is None and stored == kind:
        num_classes = _stored_classes(settings, tensors, kind)
    if num_classes is None and head is not None:
        raise ValueError(f"{path}: has no {head!r} head; set num_classes for a new one")
    if stored != kind:  # the last layer of another kind of head was trained on other features
        tensors = {n: t for n, t in tensors.items() if not n.startswith("classifier.")}
    module: HubModule
    if isinstance(config, ViTConfig):
        module = (
            VisionEncoder(config, dtype, remat)
            if num_classes is None
            else ViT(config, num_classes, dtype, remat)
        )
    else:
        module = (
            Encoder(config, dtype, remat)
            if num_classes is None
            else TextClassifier(config, num_classes, kind, dtype, remat)
        )
    return module, _fill(module, tensors, path, seed)


def image_statistics(
    path_or_id: str | os.PathLike[str],
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return mean and standard deviation of each channel, for pixels in [0, 1].

    Args:
      path_or_id: Folder or id, as in `load_pretrained`.

    Returns:
      What `preprocessor_config.json` says, or `None` if there is no such file.

    >>> import tempfile
    >>> settings = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(pathlib.Path(folder, "preprocessor_config.json"), settings)
    ...     image_statistics(folder)
    ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    """
    file = find_pretrained(path_or_id).folder / "preprocessor_config.json"
    if not file.is_file():
        return None
    settings = _read_json(file)
    if not settings.get("do_normalize", True):
        return (0.0,), (1.0,)
    if "image_mean" not in settings or "image_std" not in settings:
        raise ValueError(f"{file}: expected image_mean and image_std")
    if not np.isclose(settings.get("rescale_factor", 1 / 255), 1 / 255):
        raise ValueError(f"{file}: rescale_factor={settings['rescale_factor']}: expected 1/255")
    return tuple(settings["image_mean"]), tuple(settings["image_std"])


def save_pretrained(
    path: str | os.PathLike[str],
    module: object,
    params: Params,
    *,
    label_names: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> None:
    """Write a folder that `load_pretrained` and PyTorch `transformers` load.

    In PyTorch a text's linear head is token classification, whose first token has our logits, and a
    bare encoder loads without warnings with
    `AutoModel.from_pretrained(path, add_pooling_layer=False)`.

    Args:
      path: Folder for `config.json` and `model.safetensors`.
      module: `Encoder`, `VisionEncoder`, `ViT`, or `TextClassifier` with a head that PyTorch has for
        its architecture.
      params: Parameters of the module.
      label_names: Names of the classes.
      mean: Mean of each image channel, for `preprocessor_config.json`.
      std: Standard deviation of each image channel.

    >>> import tempfile
    >>> from calib_jax import models
    >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    >>> module = models.create("vit", 3, image_size=8, patch_size=4, num_hidden_layers=1, **sizes)
    >>> params = module.init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)))["params"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     models.save_pretrained(folder, module, params, label_names=("cat", "dog", "owl"))
    ...     sorted(path.name for path in pathlib.Path(folder).iterdir())
    ['config.json', 'model.safetensors']
    """
    if not isinstance(module, HubModule):
        raise ValueError(
            f"module is {type(module).__name__}: expected Encoder, TextClassifier, VisionEncoder or ViT"
        )
    architecture = ARCHITECTURES[module.config.model_type]
    flat = traverse_util.flatten_dict(params, sep="/")
    shapes = _shapes(module)
    if flat.keys() != shapes.keys():
        different = ", ".join(sorted(flat.keys() ^ shapes.keys()))
        raise ValueError(f"params and module differ in {different}")
    names = TorchNames(module)
    tensors = {}
    for key, value in flat.items():
        for name, tensor in names.to_torch(key, np.asarray(value, np.float32)):
            tensors[name] = np.ascontiguousarray(tensor)
    settings = module.config.to_json()
    task = "Model"
    if isinstance(module, TextClassifier | ViT):
        task = _task(module)
        outside = ("classifier.", "pre_classifier.", "sequence_summary.")
        tensors = {
            n if n.startswith(outside) else f"{architecture.prefix}.{n}": t
            for n, t in tensors.items()
        }
        labels = label_names or [f"LABEL_{i}" for i in range(module.num_classes)]
        settings["id2label"] = {str(i): label for i, label in enumerate(labels)}
        settings["label2id"] = {label: i for i, label in enumerate(labels)}
    settings["architectures"] = [architecture.class_name + task]
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    if mean is not None and std is not None and isinstance(module, ViT | VisionEncoder):
        write_json(path / "preprocessor_config.json", _preprocessor(module.config, mean, std))
    write_json(path / "config.json", settings)
    write_atomic(path / "model.safetensors", save(tensors, metadata={"format": "pt"}))


def _task(module: TextClassifier | ViT) -> str:
    """Return the suffix of the PyTorch class that computes the module's logits."""
    if isinstance(module, ViT):
        return "ForImageClassification"
    model_type, kind = module.config.model_type, module.head_kind
    default = DEFAULT_HEAD[model_type]
    if kind not in ("linear", "multiple_choice", default):
        raise ValueError(
            f"head={kind!r}: PyTorch's {model_type} has linear, multiple_choice and {default}"
        )
    return _TASK[kind]


def _preprocessor(config: ViTConfig, mean: Sequence[float], std: Sequence[float]) -> Json:
    """Return the content of `preprocessor_config.json`."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": config.image_size, "width": config.image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(mean),
        "image_std": list(std),
    }


def _read_config(path: pathlib.Path) -> Json:
    file = path / "config.json"
    if not file.is_file():
        raise ValueError(
            f"{path}: no config.json there; expected a folder in the Hugging Face layout"
        )
    return _read_json(file)


def _read_json(file: pathlib.Path) -> Json:
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not valid JSON ({error})") from None


def _read_tensors(path: pathlib.Path, prefix: str) -> Tensors:
    """Read the folder's tensors as float32, under their names without a prefix such as `bert.`."""
    tensors = {}
    for file in _tensor_files(path):
        try:
            # The jax framework reads bfloat16, which numpy does not support.
            with safe_open(file, framework="flax") as archive:
                for stored in archive.keys():  # noqa: SIM118
                    name = stored.removeprefix(f"{prefix}.")
                    # Names of the first BERT releases.
                    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
                    name = name.replace("LayerNorm.beta", "LayerNorm.bias")
                    if not name.startswith(_IGNORED):
                        tensors[name] = np.asarray(archive.get_tensor(stored), np.float32)
        except SafetensorError as error:
            raise ValueError(f"{file}: not a safetensors file ({error})") from None
    return tensors


def _tensor_files(path: pathlib.Path) -> list[pathlib.Path]:
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        files = [path / name for name in sorted(set(_read_json(index)["weight_map"].values()))]
        missing = [f.name for f in files if not f.is_file()]
        if missing:
            raise ValueError(f"{index}: names shards that are not there: {', '.join(missing)}")
        return files
    if (path / "pytorch_model.bin").is_file():
        raise ValueError(
            f"{path}: pytorch_model.bin is a pickle, which is never loaded; convert it where you trust "
            "it: AutoModel.from_pretrained(path).save_pretrained(path, safe_serialization=True)"
        )
    raise ValueError(f"{path}: neither model.safetensors nor model.safetensors.index.json there")


def _stored_head(settings: Json, tensors: Tensors) -> str | None:
    """Return the kind of head in the folder, or `None`."""
    if not any(name.startswith("classifier.") for name in tensors):
        return None
    architecture = (settings.get("architectures") or [""])[0]
    for kind in ("linear", "multiple_choice"):
        if architecture.endswith(_TASK[kind]):
            return kind
    return DEFAULT_HEAD.get(settings["model_type"], "linear")


def _stored_classes(settings: Json, tensors: Tensors, kind: str) -> int:
    if kind == "multiple_choice":  # one logit in the tensors for any number of choices
        return len(settings.get("id2label", (0, 1)))
    for name in ("classifier.weight", "classifier.out_proj.weight"):
        if name in tensors:
            return tensors[name].shape[0]
    raise ValueError("the folder's classifier has no output layer that could be read")


def _shapes(module: HubModule) -> Shapes:
    """Return paths and shapes of the module's parameters."""

    def init(key: jax.Array) -> Params:
        if isinstance(module, VisionEncoder | ViT):
            c = module.config
            image = jnp.zeros((1, c.image_size, c.image_size, c.num_channels))
            return module.init(key, image)["params"]
        choice = isinstance(module, TextClassifier) and module.head_kind == "multiple_choice"
        ids = jnp.zeros((1, 2, 2) if choice else (1, 2), jnp.int32)
        return module.init(key, ids, jnp.ones_like(ids))["params"]

    return traverse_util.flatten_dict(jax.eval_shape(init, jax.random.key(0)), sep="/")


def _fill(module: HubModule, tensors: Tensors, path: pathlib.Path, seed: int) -> Params:
    """Return the module's parameters: the folder's tensors, and random ones for a head that it lacks."""
    shapes = _shapes(module)
    names = TorchNames(module)
    in_folder = {name.rpartition(".")[0] for name in tensors}
    wrong: list[str] = []
    used: set[str] = set()
    loaded, fresh = {}, {}
    for key, shape in shapes.items():
        wanted = names.to_torch(key, np.broadcast_to(np.float32(0), shape.shape))
        used |= {name for name, _ in wanted}
        if key.startswith(("pool/", "classifier/")):
            ((name, want),) = wanted
            absent = name.rpartition(".")[0] not in in_folder
            classes = tensors.get(name, want).shape[:1]
            if absent or (key.startswith("classifier/") and classes != want.shape[:1]):
                fresh[key] = shape
                continue
        for name, want in wanted:
            if name not in tensors:
                wrong.append(f"missing {name} {want.shape}")
            elif tensors[name].shape != want.shape:
                wrong.append(f"{name} has shape {tensors[name].shape}, expected {want.shape}")
        if not wrong:
            loaded[key] = names.from_torch(key, [tensors[name] for name, _ in wanted], shape.shape)
    # A pooler or a head that this module does not have is ignored; anything else is an error.
    spare = {n for n in tensors if n.startswith(("classifier.", *POOLERS))}
    wrong += [f"unexpected {name}" for name in sorted(tensors.keys() - used - spare)]
    if wrong:
        raise ValueError(f"{path}: does not fit {module.config.model_type}: " + "; ".join(wrong))
    heads = _fresh(fresh, module.config, seed)
    return traverse_util.unflatten_dict(loaded | heads, sep="/")


def _fresh(shapes: Shapes, config: TransformerConfig, seed: int) -> dict[str, jax.Array]:
    """Initialize head parameters: small random kernels, zero biases."""
    result = {}
    for i, (key, shape) in enumerate(sorted(shapes.items())):
        random = jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape.shape)
        kernel = key.endswith("/kernel")
        result[key] = config.initializer_range * random if kernel else jnp.zeros(shape.shape)
    return result
