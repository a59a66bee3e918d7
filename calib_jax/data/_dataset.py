"""The return value of every reader: arrays, labels, stable ids, and notes for the user."""

import dataclasses
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
        `[n, choices, length]`. Empty for a streamed set.
      labels: Classes, int32 `[n]`.
      ids: Positions in the set's official files, int32 `[n]`. Two splits of the same files share no id.
      label_names: Name of each class.
      notes: Sentences on what was left out, truncated or unofficial.
      mean: Mean of each channel, for pixels in [0, 1].
      std: Standard deviation of each channel, likewise.
      read: For a streamed set, a function `read(position, rng)` that returns the inputs of one example:
        with a generator as in training (random crop), with `None` as in evaluation.
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

    def __post_init__(self) -> None:
        lengths = {"labels": len(self.labels), "ids": len(self.ids)}
        lengths |= {key: len(rows) for key, rows in self.inputs.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{self.name}: rows that do not belong together: {lengths}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return len(self.label_names)

    def take(self, positions: Sequence[int] | np.ndarray) -> "Dataset":
        """Return the examples at `positions`, in that order."""
        positions = np.asarray(positions, np.int64)
        return dataclasses.replace(
            self,
            inputs={key: rows[positions] for key, rows in self.inputs.items()},
            labels=self.labels[positions],
            ids=self.ids[positions],
            read=self.read and partial(_read_at, self.read, positions),
        )


def _read_at(
    read: Read, positions: np.ndarray, position: int, rng: np.random.Generator | None
) -> dict[str, np.ndarray]:
    # A module-level function, not a lambda: it is pickled for worker processes.
    return read(int(positions[position]), rng)
