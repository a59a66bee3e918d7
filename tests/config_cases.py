"""Data and networks for configs that shall begin but not train: tiny sets, untrained networks."""

import pathlib
from typing import Any

import numpy as np
import pytest

from calib_jax import data
from calib_jax.experiment import _build

SHAPES = {
    "digits": ((8, 8, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "cifar100": ((32, 32, 3), 100),
    "svhn": ((32, 32, 3), 10),
    "tiny_imagenet": ((64, 64, 3), 200),
    "imagenet": ((224, 224, 3), 1000),
    "newsgroups": (None, 20),
    "snli": (None, 3),
    "mnli": (None, 3),
    "qqp": (None, 2),
    "twitter_ppdb": (None, 2),
    "msrp": (None, 2),
    "swag": (None, 4),
    "hellaswag": (None, 4),
    "goemotions": (None, 6),
    "dailydialog": (None, 6),
    "empathetic_dialogues": (None, 8),
    "ssec": (None, 8),
    "isear": (None, 6),
    "emotion_stimulus": (None, 6),
    "csv": (None, 2),
    "image_folder": ((32, 32, 3), 2),
    "npz": ((5,), 2),
    "gaussians": ((5,), 2),
    "texts": (None, 2),
}


def fake(name: str, split: str, data_dir=None, **options) -> data.Dataset:
    shape, classes = SHAPES[options.get("source", name) if name == "known_truth" else name]
    n = 4
    if shape is None:
        inputs = {"text": np.array(["some words of a post"] * n, object)}
        if name in ("swag", "hellaswag"):
            inputs["choices"] = np.array([["some words"] * 4] * n, object)
    elif len(shape) == 1:
        inputs = {"features": np.zeros((n, *shape), np.float32)}
    else:
        inputs = {"image": np.zeros((n, *shape), np.uint8)}
    labels, ids = np.zeros(n, np.int32), np.arange(n, dtype=np.int32)
    mean = None if shape is None else (0.5,) * shape[-1]
    return data.Dataset(
        name, split, inputs, labels, ids, tuple(map(str, range(classes))), (), mean, mean
    )


@pytest.fixture
def fake_data(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    words = np.array([b"some", b"words"])
    np.savez(tmp_path / "vectors.npz", words=words, vectors=np.ones((2, 100), np.float16))
    monkeypatch.setattr(data, "load", fake)
    monkeypatch.setattr(_build.data, "load", fake)


def make_tokenizer(folder: pathlib.Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "some", "words", "of", "a", "post"]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", model_max_length=512
    )
    fast.save_pretrained(folder)


def without_weights(config: Any, folder: pathlib.Path) -> Any:
    """Return the config for the fake sets: two layers of an encoder that need no weights, few words."""
    config.data.shift = tuple(s for s in config.data.shift if ":" not in s)
    config.data.num_train = 0  # there are but four
    if config.model.pretrained:
        # The weights are not here: the same network, untrained, on a tokenizer made of two words.
        tokenizer = folder / "tokenizer"
        make_tokenizer(tokenizer)
        config.data.tokenizer, config.model.pretrained = str(tokenizer), ""
        config.model.options.unlock()
        config.model.options.num_hidden_layers = 2
    if config.data.word_vectors:
        config.data.word_vectors = str(folder / "vectors.npz")
    return config
