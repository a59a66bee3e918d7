"""What turns inputs into a network's arrays, saved with a run so that it can be used without its data."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from calib_jax import _io, data, train
from calib_jax.data import Dataset
from calib_jax.experiment._build import Data
from calib_jax.experiment._inputs import Columns, Shapes

_FILE, _WORDS, _TOKENIZER = "preprocessing.json", "words.json", "tokenizer"


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How inputs become the arrays of a network.

    Attributes:
      label_names: Name of each class.
      inputs: Shape of an example of each input as users have it: `text`, `pair`, `choices`, `image` or
        `features`.
      arrays: Shape of an example of each array that the network takes.
      dtypes: Type of each of those arrays.
      mean: Mean of each image channel, for pixels in [0, 1], or of each feature.
      std: Standard deviation of each image channel or feature.
      max_length: Largest number of tokens or words.
      tokenizer: Folder of the tokenizer, if there is one.
      words: Words of the vocabulary, for a network on word vectors.
    """

    label_names: tuple[str, ...]
    inputs: Shapes
    arrays: Shapes
    dtypes: Mapping[str, str]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    max_length: int = 0
    tokenizer: pathlib.Path | None = None
    words: tuple[str, ...] = ()

    @classmethod
    def of_run(cls, sets: Data, max_length: int, trainer: train.Trainer) -> "Preprocessing":
        """Return the preprocessing of a run.

        Args:
          sets: Data of the run.
          max_length: Largest number of tokens or words, `config.data.max_length`.
          trainer: Trainer of the network.
        """
        example = trainer.train.example()
        arrays = {name: x.shape[1:] for name, x in example.items()}
        return cls(
            label_names=sets.train.label_names,
            inputs=sets.text_inputs or arrays,
            arrays=arrays,
            dtypes={name: str(x.dtype) for name, x in example.items()},
            mean=trainer.network.mean,
            std=trainer.network.std,
            max_length=max_length,
            tokenizer=pathlib.Path(sets.tokenizer) if sets.tokenizer else None,
            words=sets.words,
        )

    def save(self, folder: pathlib.Path) -> None:
        """Write everything to a folder; the tokenizer's files are copied."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.tokenizer:
            fields["tokenizer"] = _TOKENIZER
            data.copy_tokenizer(self.tokenizer, folder / _TOKENIZER)
        if words := fields.pop("words"):
            _io.write_atomic(folder / _WORDS, json.dumps(words))
        _io.write_json(folder / _FILE, fields)

    @classmethod
    def load(cls, folder: pathlib.Path) -> "Preprocessing":
        """Read what `save` wrote."""
        path, words = folder / _FILE, folder / _WORDS
        if not path.exists():
            raise ValueError(
                f"{folder} has no {_FILE}: an earlier version of calib_jax trained it, and did not "
                "save what using the network needs; train it again in another --workdir"
            )
        try:
            fields = as_tuples(json.loads(path.read_text()))
            if words.exists():
                fields["words"] = as_tuples(json.loads(words.read_text()))
            if fields["tokenizer"]:
                fields["tokenizer"] = folder / fields["tokenizer"]
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: damaged ({error})") from None

    def __call__(self, columns: Columns) -> Columns:
        """Return the network's arrays of columns that `as_columns` has checked."""
        if "text" not in columns:
            return columns
        if self.words:
            texts, rows = columns["text"], np.arange(len(columns["text"]), dtype=np.int32)
            dataset = Dataset("inputs", "test", {"text": texts}, rows, rows, self.label_names)
            return data.word_ids(dataset, self._vocabulary, max_length=self.max_length)[0].inputs
        return self._tokenizer(columns)

    @functools.cached_property
    def _tokenizer(self) -> data.Tokenizer:
        assert self.tokenizer is not None
        return data.Tokenizer(self.tokenizer, self.max_length)

    @functools.cached_property
    def _vocabulary(self) -> data.Vocabulary:
        return data.Vocabulary({word: i for i, word in enumerate(self.words, 1)}, np.empty(0))


def as_tuples(value: Any) -> Any:
    """Return JSON with tuples for its lists, which are what configs and shapes have."""
    if isinstance(value, dict):
        return {key: as_tuples(item) for key, item in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
