"""Text to word ids and pretrained word vectors, for the text CNN."""

import collections
import dataclasses
import os
import pathlib

import numpy as np

from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, read_npz

SEPARATORS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'  # of words, beside spaces
_TO_SPACES = str.maketrans(dict.fromkeys(SEPARATORS, " "))


@dataclasses.dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words and their vectors.

    Attributes:
      rows: Row of each word in `vectors`, from 1.
      vectors: Word vectors, float32 `[len(rows) + 1, dim]`; row 0, for padding, is zero. `dim` is 0 if
        there are none, and the network learns them.
      notes: Sentences on malformed lines.
    """

    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    vectors: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((1, 0), np.float32))
    notes: tuple[str, ...] = ()

    def most_frequent(self, dataset: Dataset, size: int) -> "Vocabulary":
        """Return the `size` most frequent words in the texts of `dataset`.

        As in the papers' code, a frequent word without a vector gets the zero vector.
        """
        counts = collections.Counter[str]()
        for text in dataset.inputs["text"]:
            counts.update(split_words(text))
        # Ties in alphabetical order: the vocabulary does not depend on the order of the texts.
        ranked = sorted(counts, key=lambda word: (-counts[word], word))[:size]
        vectors = np.zeros((len(ranked) + 1, self.vectors.shape[1]), np.float32)
        known = [(row, self.rows[w]) for row, w in enumerate(ranked, 1) if w in self.rows]
        if known:
            rows, source_rows = np.array(known).T
            vectors[rows] = self.vectors[source_rows]
        note = f"{len(known)} of the {len(ranked)} words of the vocabulary have a vector"
        if not vectors.shape[1]:
            note = f"a vector is learned for each of the {len(ranked)} words of the vocabulary"
        rows = {word: row for row, word in enumerate(ranked, 1)}
        return Vocabulary(rows, vectors, (*self.notes, note))


def split_words(text: str) -> list[str]:
    """Return the words in lower case; punctuation except the apostrophe separates words."""
    return text.lower().translate(_TO_SPACES).split()


def read_glove(path: str | os.PathLike[str], *, max_malformed: float = 0.01) -> Vocabulary:
    """Read GloVe vectors from the publisher's text file or from an .npz.

    Args:
      path: Text file such as `glove.6B.100d.txt` (a word and its numbers on each line), or an .npz with
        `words` (bytes) and `vectors` `[n, dim]`.
      max_malformed: Largest fraction of malformed lines.

    References:
      Pennington, Socher and Manning, 2014, EMNLP.
    """
    path = pathlib.Path(path).expanduser()
    if not path.is_file():
        raise ValueError(
            f"glove: there is no file {path}. "
            "Get glove.6B.zip from nlp.stanford.edu/projects/glove and unzip it"
        )
    if path.suffix != ".npz":
        return _read_glove_text(path, Malformed("glove", max_malformed))
    try:
        content = read_npz(path)
        words, vectors = content["words"], content["vectors"].astype(np.float32)
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path}: expected an .npz with words and vectors, without pickled objects ({error})"
        ) from error
    if vectors.ndim != 2 or len(words) != len(vectors):
        raise ValueError(f"{path}: {len(words)} words do not fit vectors {vectors.shape}")
    texts = [word.decode() if isinstance(word, bytes) else str(word) for word in words.tolist()]
    return _vocabulary(texts, vectors)


def _read_glove_text(path: pathlib.Path, malformed: Malformed) -> Vocabulary:
    words: list[str] = []
    vectors: list[np.ndarray] = []
    dim = total = 0
    with path.open(encoding="utf-8", newline="\n") as file:
        for total, line in enumerate(file, 1):
            word, _, numbers = line.rstrip("\n").partition(" ")
            try:
                vector = np.array(numbers.split(" "), np.float32)
            except ValueError:
                malformed.add(path, total, "not a number")
                continue
            dim = dim or len(vector)
            if len(vector) != dim or not np.all(np.isfinite(vector)):
                malformed.add(path, total, f"expected {dim} numbers")
                continue
            words.append(word)
            vectors.append(vector)
    if not words:
        raise ValueError(f"{path}: no line holds a word and its numbers")
    return _vocabulary(words, np.stack(vectors), malformed.notes(total))


def _vocabulary(words: list[str], vectors: np.ndarray, notes: tuple[str, ...] = ()) -> Vocabulary:
    padded = np.concatenate([np.zeros((1, vectors.shape[1]), np.float32), vectors])
    # In reverse: for duplicates the first row, the more frequent word, is kept.
    rows = {word: row for row, word in zip(range(len(words), 0, -1), reversed(words), strict=True)}
    return Vocabulary(rows, padded, notes)


def word_ids(
    dataset: Dataset, vocabulary: Vocabulary | str | os.PathLike[str], *, max_length: int
) -> tuple[Dataset, np.ndarray]:
    """Convert texts to rows of a table of word vectors.

    As in the papers' code, texts are padded and truncated on the left, and words outside the vocabulary
    are left out.

    Args:
      dataset: Set with input `text`, objects `[n]`.
      vocabulary: Result of `read_glove` or of its `most_frequent`, or the path of the file that
        `read_glove` reads; the same for all splits.
      max_length: Number of words kept of each text.

    Returns:
      The set with input `input_ids`, int32 `[n, max_length]`, and the vectors, float32
      `[words + 1, dim]`.
    """
    if "text" not in dataset.inputs:
        raise ValueError(f"{dataset.name} has no text, only {list(dataset.inputs)}")
    if len(dataset.inputs) > 1:
        raise ValueError(
            f"{dataset.name} has {' and '.join(dataset.inputs)}: expected single texts, as there is no "
            "word vector of a separator"
        )
    if not isinstance(vocabulary, Vocabulary):
        vocabulary = read_glove(vocabulary)
    ids = np.zeros((len(dataset), max_length), np.int32)
    num_words = num_known = num_truncated = 0
    for i, text in enumerate(dataset.inputs["text"]):
        words = split_words(text)
        known = [vocabulary.rows[word] for word in words if word in vocabulary.rows]
        num_words, num_known = num_words + len(words), num_known + len(known)
        num_truncated += len(known) > max_length
        if known := known[-max_length:]:
            ids[i, -len(known) :] = known
    notes = [*dataset.notes]
    if dataset.split == "train":
        notes += vocabulary.notes
    if num_known < num_words:
        share = 1 - num_known / num_words
        notes.append(f"{share:.1%} of the words are outside the vocabulary: left out")
    if num_truncated:
        notes.append(
            f"{num_truncated} of {len(dataset)} texts are longer than {max_length} words: cut"
        )
    result = dataclasses.replace(dataset, inputs={"input_ids": ids}, notes=tuple(notes))
    return result, vocabulary.vectors
