"""The return value of every reader: arrays, labels, stable ids, and notes for the user."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

Read = Callable[[int, np.random.Generator | None], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """One split of a data set.

    Attributes:
      name: Name of the set.
      split: `'train'`, `'val'` or `'test'`.
      inputs: Arrays with one row per example. Images: `image`, uint8 `[n, h, w, c]`. Raw text: `text`,
        and `pair` for the second of two sentences, objects `[n]`, or `choices`, objects `[n, choices]`.
        Tokenized text: `input_ids`, `mask` and perhaps `token_type_ids`, int32 `[n, length]`, or
        `[n, choices, length]`. Feature vectors: `features`, float32 `[n, dim]`. Empty for a streamed
        set.
      labels: Classes, int32 `[n]`.
      ids: Positions in the set's official files, int32 `[n]`. Two splits of the same files share no id.
      label_names: Name of each class.
      notes: Sentences on what was left out, truncated or unofficial.
      mean: Mean of each channel, for pixels in [0, 1], or of each feature.
      std: Standard deviation of each channel or feature, likewise.
      read: For a streamed set, a function `read(position, rng)` that returns the inputs of one example:
        with a generator as in training (random crop), with `None` as in evaluation.
      fingerprint: Hash of the files of a streamed set, whose inputs are not in memory.
      revision: Commit of a set that is from the Hugging Face Hub.
      label_probs: True distribution p(y|x) of each label `[n, num_classes]`, where it is known.
    """

    name: str
    split: str
    inputs: dict[str, np.ndarray]
    labels: np.ndarray
    ids: np.ndarray
    label_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    read: Read | None = None
    fingerprint: str = ""
    revision: str = ""
    label_probs: np.ndarray | None = None

    def __post_init__(self) -> None:
        lengths = {"labels": len(self.labels), "ids": len(self.ids)}
        lengths |= {key: len(rows) for key, rows in self.inputs.items()}
        if self.label_probs is not None:
            lengths["label_probs"] = len(self.label_probs)
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.name}: rows that do not belong together: {lengths}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.label_names)

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 of inputs, labels and class names; the same in every process and on every platform.

        Of a streamed set, whose inputs are not in memory, of `fingerprint` and `ids` instead.
        """
        digest = hashlib.sha256(b"calib_jax 1")
        update_hash(digest, np.array([*self.label_names, self.fingerprint], object))
        inputs = dict(sorted(self.inputs.items())) or {"ids": self.ids}
        truth = {} if self.label_probs is None else {"label_probs": self.label_probs}
        for key, rows in (*inputs.items(), ("labels", self.labels), *truth.items()):
            digest.update(f"\n{key} ".encode())
            update_hash(digest, rows)
        return digest.hexdigest()

    def take(self, positions: Sequence[int] | np.ndarray) -> "Dataset":
        """Return the examples at `positions`, in that order."""
        positions = np.asarray(positions, np.int64)
        return dataclasses.replace(
            self,
            inputs={key: rows[positions] for key, rows in self.inputs.items()},
            labels=self.labels[positions],
            ids=self.ids[positions],
            label_probs=None if self.label_probs is None else self.label_probs[positions],
            read=self.read and partial(_read_at, self.read, positions),
        )


def _read_at(
    read: Read, positions: np.ndarray, position: int, rng: np.random.Generator | None
) -> dict[str, np.ndarray]:
    # A module-level function, not a lambda: it is pickled for worker processes.
    return read(int(positions[position]), rng)


def update_hash(digest: "hashlib._Hash", array: np.ndarray) -> None:
    """Add an array to a hash: dtype, shape and little-endian bytes; the UTF-8 of an array of texts."""
    if array.dtype != object:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return
    digest.update(f"text {array.shape}".encode())
    for text in array.ravel().tolist():
        content = text.encode("utf-8", "surrogatepass")
        digest.update(f"\n{len(content)} ".encode() + content)


def random_subset(n: int, number: int, seed: int | Sequence[int]) -> np.ndarray:
    """Return `number` of the positions 0 to `n` - 1, drawn at random without replacement, sorted.

    >>> random_subset(10, 3, seed=0)
    array([2, 4, 6])
    """
    return np.sort(np.random.default_rng(seed).permutation(n)[:number])
