"""Calibrated predictions for texts against PyTorch `transformers` with dynamic padding."""

import functools
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks._harness import Call, Case, Contestant
from calib_jax import data, experiment, models, posthoc, train
from calib_jax.experiment import Preprocessing

SECONDS = 45
_CLASSES, _BATCH, _MAX_LENGTH, _TEMPERATURE = 7, 32, 128, 1.7


def cases(quick: bool) -> Iterator[Case]:
    """The shared RoBERTa on texts of ISEAR, from text to probability; needs CALIB_JAX_DATA."""
    n = 64 if quick else 256
    setting = _Setting(n)
    yield Case(
        f"{n} texts of 4 to 128 tokens, RoBERTa of 30M, B={_BATCH}",
        Contestant("calib_jax", setting.ours),
        [
            Contestant("transformers, torch", setting.torch, torch=True, at_least=1.0),
            Contestant(
                "the same, sorted by length",
                functools.partial(setting.torch, by_length=True),
                torch=True,
            ),
        ],
        tolerance=1e-5,
    )


class _Setting:
    """A classifier with a head that is not trained, and texts."""

    def __init__(self, n: int) -> None:
        self.n = n

    @functools.cached_property
    def folder(self) -> pathlib.Path:
        path = pathlib.Path(os.environ.get("CALIB_JAX_DATA", ""), "models", "roberta-30m")
        if not path.is_dir():
            raise ModuleNotFoundError(f"{path}: set CALIB_JAX_DATA to the folder with the models")
        return path

    @functools.cached_property
    def network(self) -> tuple[Any, Any]:
        return models.load_pretrained(self.folder, _CLASSES)

    @functools.cached_property
    def texts(self) -> list[str]:
        return data.load("isear", "train").inputs["text"][: self.n].tolist()

    def ours(self) -> Call:
        """Classify as `calib_jax.predict` does."""
        module, params = self.network
        preprocessing = Preprocessing(
            label_names=tuple(map(str, range(_CLASSES))),
            inputs={"text": ()},
            arrays={"input_ids": (_MAX_LENGTH,), "mask": (_MAX_LENGTH,)},
            dtypes={"input_ids": "int32", "mask": "int32"},
            max_length=_MAX_LENGTH,
            tokenizer=self.folder,
        )
        temperature = posthoc.Temperature(jnp.float32(_TEMPERATURE))
        settings = {"train": {"batch_size": _BATCH, "eval_batch_size": 0}}
        classifier = experiment.Classifier(
            train.Network(module), params, preprocessing, {"temperature": temperature}, settings
        )
        return lambda: classifier.predict_proba(self.texts)

    def torch(self, by_length: bool = False) -> Call:
        """Tokenize a batch, pad it to its longest text, classify it."""
        import torch
        import transformers

        with tempfile.TemporaryDirectory() as folder:
            models.save_pretrained(folder, *self.network)
            network = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        options = {"padding": True, "truncation": True, "max_length": _MAX_LENGTH}

        def call() -> np.ndarray:
            texts = self.texts
            order = np.arange(len(texts))
            if by_length:
                order = np.argsort([len(text) for text in texts], kind="stable")
            probs = np.zeros((len(texts), _CLASSES), np.float32)
            with torch.inference_mode():
                for start in range(0, len(texts), _BATCH):
                    rows = order[start : start + _BATCH]
                    tokens = tokenizer([texts[i] for i in rows], return_tensors="pt", **options)
                    logits = network(**tokens).logits
                    probs[rows] = torch.softmax(logits / _TEMPERATURE, dim=-1).numpy()
            return probs

        return call
