"""Load and save parameters as Hugging Face folders: `config.json` and safetensors, never a pickle."""

import json
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from calib_jax.models._encoder import Encoder, EncoderConfig
from calib_jax.models._text_classifier import DEFAULT_HEAD, TextClassifier

Params = dict[str, Any]

# Tensors of pre-training tasks and buffers, which a classifier does not use.
_IGNORED = (
    "cls.",
    "lm_head.",
    "discriminator_predictions.",
    "generator_predictions.",
    "generator_lm_head.",
    "embeddings.position_ids",
)

# Suffix of the PyTorch class that computes a head. Our logits are those of token classification for the
# first token.
_TASK = {
    "linear": "ForTokenClassification",
    "pooler": "ForSequenceClassification",
    "dense_tanh": "ForSequenceClassification",
    "dense_gelu": "ForSequenceClassification",
    "multiple_choice": "ForMultipleChoice",
}
_CLASS_NAME = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}


def load_pretrained(
    path: str | pathlib.Path,
    num_classes: int | None = None,
    *,
    head: str | None = None,
    dtype: Any = jnp.float32,
    remat: bool = False,
    seed: int = 0,
) -> tuple[nn.Module, Params]:
    """Load an encoder, or a classifier on top of one, from a folder in the Hugging Face layout.

    Args:
      path: Folder with `config.json` and `model.safetensors` (or shards with their index).
      num_classes: Number of classes of a `TextClassifier`. A head of the same kind in the folder is
        used, its last layer only if the number of classes agrees; other layers are initialized at
        random. `None`: a classifier if the folder contains one, otherwise the bare `Encoder`.
      head: Name of the head, one of `HEADS`; `None` means the folder's, or else the architecture's
        default.
      dtype: Type of the activations.
      remat: Whether to recompute activations, as in `Encoder`.
      seed: Seed of layers that are not in the folder.

    Returns:
      The module and its float32 parameters, for `module.apply({"params": params}, …)`.
    """
    path = pathlib.Path(path)
    settings = _read_config(path)
    config = EncoderConfig.from_json(settings)
    tensors = _read_tensors(path, config.model_type)
    stored = _stored_head(settings, tensors)
    kind = head or stored or DEFAULT_HEAD[config.model_type]
    if num_classes is None and stored == kind:
        num_classes = _stored_classes(settings, tensors, kind)
    if num_classes is None and head is not None:
        raise ValueError(f"{path}: has no {head!r} head; set num_classes for a new one")
    if stored != kind:  # the last layer of another kind of head was trained on other features
        tensors = {n: t for n, t in tensors.items() if not n.startswith("classifier.")}
    module: Encoder | TextClassifier = (
        Encoder(config, dtype, remat)
        if num_classes is None
        else TextClassifier(config, num_classes, kind, dtype, remat)
    )
    return module, _fill(module, tensors, path, seed)


def save_pretrained(path: str | pathlib.Path, module: nn.Module, params: Params) -> None:
    """Write a folder that `load_pretrained` and PyTorch `transformers` load.

    In PyTorch a linear head is token classification, whose first token has our logits, and a bare
    encoder loads without warnings with `AutoModel.from_pretrained(path, add_pooling_layer=False)`.

    Args:
      path: Folder for `config.json` and `model.safetensors`.
      module: `Encoder`, or `TextClassifier` with a head that PyTorch has for its architecture.
      params: Parameters of the module.
    """
    if not isinstance(module, Encoder | TextClassifier):
        raise ValueError(f"module is {type(module).__name__}: expected Encoder or TextClassifier")
    config = module.config
    flat = traverse_util.flatten_dict(params, sep="/")
    shapes = _shapes(module)
    if flat.keys() != shapes.keys():
        different = ", ".join(sorted(flat.keys() ^ shapes.keys()))
        raise ValueError(f"params and module differ in {different}")
    names = _names(module)
    tensors = {}
    for key, value in flat.items():
        for name, tensor in _to_torch(key, np.asarray(value, np.float32), names):
            tensors[name] = np.ascontiguousarray(tensor)
    settings = config.to_json()
    task = "Model"
    if isinstance(module, TextClassifier):
        kind, default = module.head_kind, DEFAULT_HEAD[config.model_type]
        if kind not in ("linear", "multiple_choice", default):
            raise ValueError(
                f"head={kind!r}: PyTorch's {config.model_type} has linear, multiple_choice and {default}"
            )
        task = _TASK[kind]
        outside = ("classifier.", "sequence_summary.")
        tensors = {
            n if n.startswith(outside) else f"{config.model_type}.{n}": t
            for n, t in tensors.items()
        }
        labels = [f"LABEL_{i}" for i in range(module.num_classes)]
        settings["id2label"] = {str(i): label for i, label in enumerate(labels)}
        settings["label2id"] = {label: i for i, label in enumerate(labels)}
    settings["architectures"] = [_CLASS_NAME[config.model_type] + task]
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def _read_config(path: pathlib.Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        raise ValueError(
            f"{path}: no config.json there; expected a folder in the Hugging Face layout"
        )
    return _read_json(file)


def _read_json(file: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not valid JSON ({error})") from None


def _read_tensors(path: pathlib.Path, model_type: str) -> dict[str, np.ndarray]:
    """Read the folder's tensors as float32, under their names without a prefix such as `bert.`."""
    tensors = {}
    for file in _tensor_files(path):
        try:
            # The jax framework reads bfloat16, which numpy does not support.
            with safe_open(file, framework="flax") as archive:
                for stored in archive.keys():  # noqa: SIM118
                    name = stored.removeprefix(f"{model_type}.")
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


def _stored_head(settings: dict[str, Any], tensors: dict[str, np.ndarray]) -> str | None:
    """Return the kind of head in the folder, or `None`."""
    if not any(name.startswith("classifier.") for name in tensors):
        return None
    architecture = (settings.get("architectures") or [""])[0]
    for kind in ("linear", "multiple_choice"):
        if architecture.endswith(_TASK[kind]):
            return kind
    return DEFAULT_HEAD[settings["model_type"]]


def _stored_classes(settings: dict[str, Any], tensors: dict[str, np.ndarray], kind: str) -> int:
    if kind == "multiple_choice":  # one logit in the tensors for any number of choices
        return len(settings.get("id2label", (0, 1)))
    for name in ("classifier.weight", "classifier.out_proj.weight"):
        if name in tensors:
            return tensors[name].shape[0]
    raise ValueError("the folder's classifier has no output layer that could be read")


def _names(module: Encoder | TextClassifier) -> dict[str, str]:
    """Return a map from our module paths to PyTorch's; `{}` is the number of the layer."""
    inside = "encoder/" if isinstance(module, TextClassifier) else ""
    layer = "encoder.layer.{}."
    names = {
        "embeddings/word": "embeddings.word_embeddings",
        "embeddings/position": "embeddings.position_embeddings",
        "embeddings/token_type": "embeddings.token_type_embeddings",
        "embeddings/norm": "embeddings.LayerNorm",
        "embeddings/project": "embeddings_project",
        "layers_{}/qkv": layer + "attention.self",
        "layers_{}/out": layer + "attention.output.dense",
        "layers_{}/attention_norm": layer + "attention.output.LayerNorm",
        "layers_{}/up": layer + "intermediate.dense",
        "layers_{}/down": layer + "output.dense",
        "layers_{}/norm": layer + "output.LayerNorm",
    }
    names = {inside + ours: theirs for ours, theirs in names.items()}
    if isinstance(module, Encoder):
        return names
    if module.head_kind in ("dense_tanh", "dense_gelu"):
        return names | {"pool": "classifier.dense", "classifier": "classifier.out_proj"}
    choice_of_electra = module.head_kind == "multiple_choice" and (
        module.config.model_type == "electra"
    )
    pool = "sequence_summary.summary" if choice_of_electra else "pooler.dense"
    return names | {"pool": pool, "classifier": "classifier"}


def _translate(key: str, names: dict[str, str]) -> tuple[str, str]:
    """Return PyTorch's module name and our leaf name of a parameter's path."""
    owner, leaf = key.rsplit("/", 1)
    parts = owner.split("/")
    number = next((p.removeprefix("layers_") for p in parts if p.startswith("layers_")), "")
    pattern = owner.replace(f"layers_{number}", "layers_{}") if number else owner
    return names[pattern].format(number), leaf


def _to_torch(key: str, value: np.ndarray, names: dict[str, str]) -> list[tuple[str, np.ndarray]]:
    """Return PyTorch's tensors of one parameter with their names."""
    theirs, leaf = _translate(key, names)
    suffix = "bias" if leaf == "bias" else "weight"
    if theirs.endswith("attention.self"):  # [hidden, 3, heads, width] or [3, heads, width]
        parts = np.split(value, 3, axis=-3)
        flat = [p.reshape(*p.shape[:-3], -1) for p in parts]
        return [
            (f"{theirs}.{n}.{suffix}", p.T)
            for n, p in zip(("query", "key", "value"), flat, strict=True)
        ]
    if theirs.endswith("attention.output.dense") and leaf == "kernel":  # [heads, width, hidden]
        value = value.reshape(-1, value.shape[-1])
    return [(f"{theirs}.{suffix}", value.T if leaf == "kernel" else value)]


def _shapes(module: Encoder | TextClassifier) -> dict[str, Any]:
    """Return paths and shapes of the module's parameters."""
    choice = isinstance(module, TextClassifier) and module.head_kind == "multiple_choice"
    ids = jnp.zeros((1, 2, 2) if choice else (1, 2), jnp.int32)

    def init(key: jax.Array) -> Params:
        return module.init(key, ids, jnp.ones_like(ids))["params"]

    return traverse_util.flatten_dict(jax.eval_shape(init, jax.random.key(0)), sep="/")


def _fill(
    module: Encoder | TextClassifier,
    tensors: dict[str, np.ndarray],
    path: pathlib.Path,
    seed: int,
) -> Params:
    """Return the module's parameters: the folder's tensors, and random ones for a head that it lacks."""
    names = _names(module)
    in_folder = {name.rpartition(".")[0] for name in tensors}
    wrong, used, loaded, fresh = [], set(), {}, {}
    for key, shape in _shapes(module).items():
        parts = _to_torch(key, np.broadcast_to(np.float32(0), shape.shape), names)
        used |= {name for name, _ in parts}
        if key.startswith(("pool/", "classifier/")):
            ((name, want),) = parts
            absent = name.rpartition(".")[0] not in in_folder
            classes = tensors.get(name, want).shape[:1]
            if absent or (key.startswith("classifier/") and classes != want.shape[:1]):
                fresh[key] = shape
                continue
        for name, want in parts:
            if name not in tensors:
                wrong.append(f"missing {name} {want.shape}")
            elif tensors[name].shape != want.shape:
                wrong.append(f"{name} has shape {tensors[name].shape}, expected {want.shape}")
        if not wrong:
            loaded[key] = _from_torch(key, [tensors[name] for name, _ in parts], shape.shape)
    # A pooler or a head that this module does not have is ignored; anything else is an error.
    spare = {n for n in tensors if n.startswith(("pooler.", "classifier.", "sequence_summary."))}
    wrong += [f"unexpected {name}" for name in sorted(tensors.keys() - used - spare)]
    if wrong:
        raise ValueError(f"{path}: does not fit {module.config.model_type}: " + "; ".join(wrong))
    heads = _fresh(fresh, module.config, seed)
    return traverse_util.unflatten_dict(loaded | heads, sep="/")


def _from_torch(key: str, tensors: list[Any], shape: tuple[int, ...]) -> jax.Array:
    """Invert `_to_torch`."""
    if len(tensors) == 3:
        value = np.stack([t.T for t in tensors], axis=-2)  # [hidden, 3, hidden] or [3, hidden]
    else:
        value = tensors[0].T if key.endswith("/kernel") else tensors[0]
    return jnp.asarray(value.reshape(shape))


def _fresh(shapes: dict[str, Any], config: EncoderConfig, seed: int) -> dict[str, jax.Array]:
    """Initialize head parameters: small random kernels, zero biases."""
    result = {}
    for i, (key, shape) in enumerate(sorted(shapes.items())):
        random = jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape.shape)
        kernel = key.endswith("/kernel")
        result[key] = config.initializer_range * random if kernel else jnp.zeros(shape.shape)
    return result
