"""Networks by name."""

import dataclasses
from collections.abc import Callable
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
from calib_jax.models._wide_resnet import WideResNet

_RESNET_110 = (3, 4, 26, 3)  # bottleneck blocks: the AdaFocal paper's network of that name
_TINY: dict[str, Any] = {"pool": 2, "kernel_init": HE_FAN_OUT}


def _basic(stages: int, widths: tuple[int, ...], **kwargs: Any) -> Callable[..., nn.Module]:
    """Return a builder of a ResNet with two-convolution blocks and a stem of 16 channels."""
    return partial(
        ResNet, stages=(stages,) * 3, widths=widths, bottleneck=False, stem_width=16, **kwargs
    )


_IMAGE: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "resnet20": _basic(3, (16, 32, 64)),
    "resnet50": ResNet,
    "resnet110": partial(ResNet, stages=_RESNET_110),
    "resnet50_tiny": partial(ResNet, **_TINY),
    "resnet110_tiny": partial(ResNet, stages=_RESNET_110, **_TINY),
    "resnet50_imagenet": partial(ResNet, stem="imagenet"),
    "resnet110_imagenet": partial(ResNet, stages=_RESNET_110, stem="imagenet"),
    "wide_resnet_26_10": _basic(4, (160, 320, 640), kernel_init=HE_FAN_OUT),
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
_TEXT = {
    "bert": _BASE,
    "roberta": dataclasses.replace(
        _BASE,
        model_type="roberta",
        vocab_size=50265,
        max_position_embeddings=514,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
    ),
    "electra": dataclasses.replace(_BASE, model_type="electra"),
}

NAMES = (*_TEXT, *_IMAGE, "text_cnn")


def create(name: str, num_classes: int, **options: Any) -> nn.Module:
    """Create a network by name, without parameters (`load_pretrained` loads some).

    Args:
      name: Name of the network, one of `NAMES`.
      num_classes: Number of logits.
      **options: Attributes of the module (`dtype`, …); for an encoder also the fields of its
        `EncoderConfig` (defaults are those of the base size), `head` (see `HEADS`) and `remat`.

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
    sizes = _field_names(EncoderConfig) & options.keys()
    if "hidden_size" in sizes:
        options.setdefault("embedding_size", options["hidden_size"])
        sizes.add("embedding_size")
    config = dataclasses.replace(_TEXT[name], **{k: options.pop(k) for k in sizes})
    head = options.pop("head", DEFAULT_HEAD[name])
    return TextClassifier(config, num_classes, head, **options)


def _check_options(name: str, options: dict[str, Any]) -> None:
    builder: Any = _IMAGE.get(name, TextCNN if name == "text_cnn" else TextClassifier)
    known = _field_names(getattr(builder, "func", builder))
    known -= {"parent", "name", "num_classes", "config"}
    if name in _TEXT:
        known = known - {"head_kind"} | {"head"} | _field_names(EncoderConfig)
    for option in options:
        if option not in known:
            raise ValueError(
                f"model {name}: option {option!r}: {expected_one_of(option, sorted(known))}"
            )


def _field_names(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}
