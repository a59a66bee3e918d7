"""Networks by name."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import flax.linen as nn

from calib_jax._hints import expected_one_of
from calib_jax.models._densenet import DenseNet
from calib_jax.models._encoder import EncoderConfig
from calib_jax.models._mlp import MLP
from calib_jax.models._resnet import HE_FAN_OUT, ResNet
from calib_jax.models._text_classifier import DEFAULT_HEAD, TextClassifier
from calib_jax.models._text_cnn import TextCNN
from calib_jax.models._vit import ViT, ViTConfig
from calib_jax.models._wide_resnet import WideResNet

_RESNET_110 = (3, 4, 26, 3)  # bottleneck blocks: the AdaFocal paper's network of that name
_basic = partial(ResNet, bottleneck=False, stem_width=16)  # blocks of two convolutions
_tiny = partial(ResNet, pool=2, kernel_init=HE_FAN_OUT)

_IMAGE: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "resnet20": partial(_basic, stages=(3, 3, 3), widths=(16, 32, 64)),
    "resnet50": ResNet,
    "resnet110": partial(ResNet, stages=_RESNET_110),
    "resnet50_tiny": _tiny,
    "resnet110_tiny": partial(_tiny, stages=_RESNET_110),
    "resnet50_imagenet": partial(ResNet, stem="imagenet"),
    "resnet110_imagenet": partial(ResNet, stages=_RESNET_110, stem="imagenet"),
    "wide_resnet_26_10": partial(
        _basic, stages=(4, 4, 4), widths=(160, 320, 640), kernel_init=HE_FAN_OUT
    ),
    "wide_resnet_28_10": WideResNet,
    "densenet121": DenseNet,
    "densenet121_imagenet": partial(DenseNet, stem="imagenet"),
}

_BASE = EncoderConfig(
    model_type="bert",
    vocab_size=30522,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
    max_position_embeddings=512,
    type_vocab_size=2,
    pad_token_id=0,
    embedding_size=768,
)
_ROBERTA = dataclasses.replace(
    _BASE,
    model_type="roberta",
    vocab_size=50265,
    max_position_embeddings=514,
    type_vocab_size=1,
    pad_token_id=1,
    layer_norm_eps=1e-5,
)
# By Hugging Face model type.
_TRANSFORMERS: dict[str, EncoderConfig | ViTConfig] = {
    "bert": _BASE,
    "roberta": _ROBERTA,
    "xlm-roberta": dataclasses.replace(_ROBERTA, model_type="xlm-roberta", vocab_size=250002),
    "electra": dataclasses.replace(_BASE, model_type="electra"),
    "distilbert": dataclasses.replace(
        _BASE,
        model_type="distilbert",
        num_hidden_layers=6,
        type_vocab_size=0,
        classifier_dropout=0.2,
    ),
    "vit": ViTConfig(
        model_type="vit",
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        image_size=224,
        patch_size=16,
    ),
}

NAMES = (*DEFAULT_HEAD, *_IMAGE, "vit", "text_cnn")


def create(name: str, num_classes: int, **options: Any) -> nn.Module:
    """Create a network by name, without parameters (`load_pretrained` loads some).

    Args:
      name: Name of the network, one of `NAMES`.
      num_classes: Number of logits.
      **options: Attributes of the module (`dtype`, …); for a transformer also the fields of its
        `EncoderConfig` or `ViTConfig` (defaults are those of the base size) and `remat`, for one on
        texts `head` (see `HEADS`).

    Returns:
      A Flax module with the methods `embed`, `features` and `head`.

    >>> create("mlp", num_classes=10, widths=(32,)).widths
    (32,)
    """
    if name not in NAMES:
        raise ValueError(f"model={name!r}: {expected_one_of(name, NAMES)}")
    _check_options(name, options)
    if name in _IMAGE:
        return _IMAGE[name](num_classes=num_classes, **options)
    if name == "text_cnn":
        return TextCNN(num_classes, **options)
    base = _TRANSFORMERS[name]
    sizes = {key: options.pop(key) for key in _field_names(type(base)) & options.keys()}
    if isinstance(base, ViTConfig):
        return ViT(dataclasses.replace(base, **sizes), num_classes, **options)
    if "hidden_size" in sizes:
        sizes.setdefault("embedding_size", sizes["hidden_size"])
    head = options.pop("head", DEFAULT_HEAD[name])
    return TextClassifier(dataclasses.replace(base, **sizes), num_classes, head, **options)


def _check_options(name: str, options: Iterable[str]) -> None:
    if name in _TRANSFORMERS:
        base = _TRANSFORMERS[name]
        known = _field_names(type(base)) | _field_names(ViT)
        if isinstance(base, EncoderConfig):
            known |= {"head"}
    else:
        builder = _IMAGE.get(name, TextCNN)
        known = _field_names(getattr(builder, "func", builder))
    known -= {"parent", "name", "num_classes", "config"}
    for option in options:
        if option not in known:
            raise ValueError(
                f"model {name}: option {option!r}: {expected_one_of(option, sorted(known))}"
            )


def _field_names(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}
