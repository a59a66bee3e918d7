"""Small runs of every kind of network, to be used after training."""

import csv
import json
import pathlib
from typing import Any

import numpy as np
import pytest
import tokenizers
from experiment.conftest import NoFigure
from tokenizers import models, pre_tokenizers, processors

from calib_jax import experiment, report
from calib_jax.experiment import _evaluate

LETTERS = "abcd"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS]


def write_tokenizer(folder: pathlib.Path) -> pathlib.Path:
    """A tokenizer of four letters in the layout of BERT's."""
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 64,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_texts(path: pathlib.Path, n: int = 120) -> list[str]:
    """A csv of texts in which `a` or `d` is frequent; returns the texts."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    texts = [
        " ".join(
            rng.choice(list(LETTERS), rng.integers(2, 20), p=[0.5, 0.2, 0.2, 0.1][:: 1 - 2 * y])
        )
        for y in labels
    ]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "review", "label"])
        rows.writerows(
            [i, text, ("bad", "good")[y]]
            for i, (text, y) in enumerate(zip(texts, labels, strict=True))
        )
    return texts


def config(**changes: Any) -> Any:
    """A perceptron on sixty digits for two epochs; `train__epochs=3` changes a value."""
    made = experiment.default_config()
    made.train.batch_size, made.train.epochs = 16, 2
    made.calibrate, made.num_bootstrap = ("temperature", "spline"), 2
    for key, value in changes.items():
        *sections, last = key.split("__")
        section = made
        for name in sections:
            section = section[name]
        section[last] = value
    return made


def images(**changes: Any) -> Any:
    """The config of a perceptron on digits."""
    options = {"data__options__num_train": 60, "model__options__widths": (8,)}
    return config(**options | changes)


def texts(folder: pathlib.Path, **changes: Any) -> Any:
    """The config of a text CNN on a csv."""
    write_texts(folder / "reviews.csv")
    words = np.array([letter.encode() for letter in LETTERS])
    np.savez(folder / "glove.npz", words=words, vectors=np.eye(4, dtype=np.float32))
    options = {
        "data__name": "csv",
        "data__options__path": str(folder / "reviews.csv"),
        "data__options__text": "review",
        "data__max_length": 24,
        "data__word_vectors": str(folder / "glove.npz"),
        "model__name": "text_cnn",
        "model__options__width": 8,
        "optimizer__name": "adam",
        "optimizer__learning_rate": 0.01,
        "train__epochs": 4,
    }
    return config(**options | changes)


def tokens(folder: pathlib.Path, **changes: Any) -> Any:
    """The config of a one-layer encoder on a csv."""
    options = {
        "data__tokenizer": str(write_tokenizer(folder / "tokenizer")),
        "model__name": "bert",
        "model__options": {
            **{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2},
            **{
                "intermediate_size": 8,
                "vocab_size": 8,
                "max_position_embeddings": 64,
                "initializer_range": 0.5,
            },
        },
    }
    return texts(folder, **options | changes)


def run(made: Any, workdir: pathlib.Path) -> pathlib.Path:
    """Train without metrics and report; returns the folder of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_evaluate, "evaluate", lambda *_, **__: [])
        for plot in ("plot_reliability", "plot_risk_coverage"):
            patch.setattr(report, plot, lambda *_, **__: NoFigure())
        patch.setattr(report, "write_report", lambda *_, **__: "report")
        experiment.run(made, workdir, log=lambda _: None)
    return workdir / made.method.name / "seed_0"


def arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """What is in an npz."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
