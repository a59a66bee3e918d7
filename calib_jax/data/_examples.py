"""From the examples of your own files to a `Dataset`: class names, seeded splits, overlap, notes."""

import dataclasses
import functools
import hashlib
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calib_jax.data import _images
from calib_jax.data._dataset import Dataset, update_hash
from calib_jax.data._files import Malformed
from calib_jax.data._rows import Row, stratified
from calib_jax.data._sources import SPLITS

Label = str | int | float
Value = str | list[str] | _images.Source

# ImageNet's, for color images; others are brought from [0, 1] to about unit variance.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SHOWN = 12  # classes listed in a note
# Of reasonable length. What has leading zeros is a code, to be kept as it is.
_NUMBER = re.compile(r"([+-]?(?:0|[1-9]\d{0,30}))(\.\d{0,30})?")
_MOST_CLASSES = 100  # more are accepted if there are two examples of each on average


class Examples(NamedTuple):
    """The usable examples of one split's files, or of all files.

    Attributes:
      rows: File, line and position of each example.
      inputs: Columns with one entry per example: `text`, `pair` (str), `choices` (lists of str), `image`
        (sources for `_images.decode`, or an array) or `features` (array).
      labels: Labels as stored.
      label_names: Class names, if the files have them; labels are then 0 to K - 1.
      notes: Sentences for the user.
    """

    rows: Sequence[Row]
    inputs: Mapping[str, Sequence[Value] | np.ndarray]
    labels: Sequence[Label]
    label_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Shares(NamedTuple):
    """How splits that have no files are drawn from the training files.

    Attributes:
      val: Fraction of the examples that become the validation split.
      test: Fraction of the examples that become the test split.
      seed: Seed of the draw.
    """

    val: float
    test: float
    seed: int


def build_dataset(
    name: str,
    split: str,
    given: Mapping[str, Examples],
    shares: Shares,
    *,
    size: int = 0,
    max_malformed: float = 0.01,
) -> Dataset:
    """Return one split of the examples of own files.

    Splits that have no files are drawn from the training files: stratified by class, with identical
    inputs in the same split, independent of the order of the rows.

    Args:
      name: Name of the set.
      split: `'train'`, `'val'` or `'test'`.
      given: Examples by split; `'train'` is always there.
      shares: Shares of the splits that are not given.
      size: Side of the images, see `_images.decode`.
      max_malformed: Largest fraction of images that cannot be decoded.
    """
    names, labels = _classes(name, given)
    digests = {key: _digests(examples) for key, examples in given.items()}
    drawn = _draw(name, labels["train"], digests["train"], given.keys(), shares)
    source = split if split in given else "train"
    examples = given[source]
    positions = drawn.get(split, np.arange(len(examples.rows)))
    notes = examples.notes if split == source else ()
    if split == "train":
        notes += (_label_note(names),)
    if split not in given:
        notes += (
            f"{len(positions)} of the {len(examples.rows)} examples in the training files, stratified "
            f"by class, seed {shares.seed}",
        )
    notes += _duplicate_notes(split, labels, digests)
    columns = {key: _array(column) for key, column in examples.inputs.items() if key != "image"}
    mean, std = None, None
    if "features" in columns:  # of the training split, whichever split is asked for
        features = np.asarray(given["train"].inputs["features"])
        mean, std = _moments(features[drawn.get("train", slice(None))])
    dataset = Dataset(
        name=name,
        split=split,
        inputs=columns,
        labels=labels[source],
        ids=np.array([row.position for row in examples.rows], np.int32),
        label_names=names,
        notes=notes,
        mean=mean,
        std=std,
    ).take(positions)
    if "image" not in examples.inputs:
        return dataset
    images = examples.inputs["image"]
    if isinstance(images, np.ndarray):
        mean, std = _normalization(images.shape[-1])
        return dataclasses.replace(dataset, inputs={"image": images[positions]}, mean=mean, std=std)
    mean, std = _normalization(3)
    return _images.add_images(
        dataclasses.replace(dataset, mean=mean, std=std),
        [images[i] for i in positions],
        [examples.rows[i] for i in positions],
        size,
        Malformed(name, max_malformed),
        fingerprint=hashlib.sha256(digests[source][positions].tobytes()).hexdigest(),
    )


def _classes(
    name: str, given: Mapping[str, Examples]
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Return the class names, and the labels of each split, int32 `[n]`."""
    names = given["train"].label_names
    for key, examples in given.items():
        if examples.label_names != names:
            raise ValueError(
                f"{name}: the {key} files name the classes {_shown(examples.label_names) or '(none)'}, "
                f"the training files {_shown(names) or '(none)'}"
            )
    classes: dict[Label, int] = {class_name: c for c, class_name in enumerate(names)}
    if names:
        classes |= {c: c for c in range(len(names))}
        _check_known(name, given, classes)
    else:
        names, classes = _sorted_classes(name, given)
    total = sum(len(examples.labels) for examples in given.values())
    if len(names) < 2:
        raise ValueError(f"{name}: all labels are {names[0]!r}: expected at least two classes")
    if len(names) > max(_MOST_CLASSES, total / 2):
        raise ValueError(
            f"{name}: {len(names)} different labels in {total} examples ({_shown(names)}): "
            "expected classes, is it another column?"
        )
    labels = {
        key: np.array([classes[label] for label in examples.labels], np.int32)
        for key, examples in given.items()
    }
    return names, labels


def _sorted_classes(
    name: str, given: Mapping[str, Examples]
) -> tuple[tuple[str, ...], dict[Label, int]]:
    """Number the labels in sorted order: as numbers if all are numbers, else as texts.

    Returns:
      The class names, and the class of each label.
    """
    labels = {label for examples in given.values() for label in examples.labels}
    keys: dict[Label, str | float] = {}
    for label in labels:
        number = to_number(label)
        if number is not None:
            keys[label] = number
    if len(keys) < len(labels):
        keys = {label: str(label) for label in labels}
    elif fractions := [key for key in keys.values() if not isinstance(key, int)]:
        raise ValueError(
            f"{name}: label {fractions[0]}: expected names or whole numbers as classes"
        )
    ordered = sorted(set(keys.values()))  # all texts or all numbers
    classes = {key: c for c, key in enumerate(ordered)}
    return tuple(map(str, ordered)), {label: classes[key] for label, key in keys.items()}


def _check_known(name: str, given: Mapping[str, Examples], classes: Mapping[Label, int]) -> None:
    """Raise if a label is neither the name nor the number of a class that the file names."""
    for examples in given.values():
        for row, label in zip(examples.rows, examples.labels, strict=True):
            if label not in classes:
                number = len(examples.label_names)
                raise ValueError(
                    f"{name}: {row.path}:{row.line}: label {str(label)[:20]!r}: expected 0 to "
                    f"{number - 1}, as the file names {number} classes"
                )


def to_number(label: Label) -> float | None:
    """Return the number that a label is, an `int` if it is whole; `None` for a name, as `'007'` is."""
    if isinstance(label, int):
        return int(label)  # not a bool
    if isinstance(label, float):
        return int(label) if label.is_integer() else label
    match = _NUMBER.fullmatch(label)
    if not match:
        return None
    whole_number, fraction = match.groups("")
    return float(label) if fraction.strip(".0") else int(whole_number)


def _draw(
    name: str,
    labels: np.ndarray,
    digests: np.ndarray,
    given: Collection[str],
    shares: Shares,
) -> dict[str, np.ndarray]:
    """Return sorted positions of the splits that the training files are divided into."""
    sizes = {
        key: share
        for key, share in (("test", shares.test), ("val", shares.val))
        if key not in given
    }
    if not sizes:
        return {}
    for key, share in sizes.items():
        if not 0 < share < 1 or sum(sizes.values()) >= 1:
            raise ValueError(
                f"{name}: {key}_share={share:g}: expected a fraction of the examples, as there are no "
                f"{key} files; all shares together less than 1"
            )
    # Sorted by content: the order of the rows does not matter.
    unique, first, group = np.unique(digests, return_index=True, return_inverse=True)
    counts = tuple(round(share * len(unique)) for share in sizes.values())
    if min(counts) == 0 or sum(counts) >= len(unique):
        raise ValueError(
            f"{name}: {len(unique)} different examples are too few for "
            + " and ".join(f"{key}_share={share:g}" for key, share in sizes.items())
        )
    drawn = stratified(labels[first], counts, shares.seed)
    return {
        key: np.flatnonzero(np.isin(group, groups))
        for key, groups in zip((*sizes, "train"), drawn, strict=True)
    }


def _duplicate_notes(
    split: str, labels: Mapping[str, np.ndarray], digests: Mapping[str, np.ndarray]
) -> tuple[str, ...]:
    """Return notes on identical inputs: between given files, and in the training files."""
    notes: tuple[str, ...] = ()
    if split == "train":
        unique, group = np.unique(digests["train"], return_inverse=True)
        if repeated := len(group) - len(unique):
            notes += (f"{repeated} of {len(group)} examples repeat the input of another",)
        pairs = np.unique(np.stack([group, labels["train"]]), axis=1)
        if several := int(np.sum(np.bincount(pairs[0]) > 1)):
            notes += (f"warning: {several} inputs occur with several labels",)
    elif split in digests:
        for other in SPLITS[: SPLITS.index(split)]:
            shared = int(np.sum(np.isin(digests[split], digests.get(other, []))))
            if shared:
                count = f"{shared} of {len(digests[split])}"
                notes += (f"warning: the inputs of {count} examples are also in the {other} files",)
    return notes


def _digests(examples: Examples) -> np.ndarray:
    """Return a hash of each example's inputs, `[n]`; identical inputs have the same."""
    columns = [(key, examples.inputs[key]) for key in sorted(examples.inputs)]
    hashes = []
    for i in range(len(examples.rows)):
        digest = hashlib.sha256()
        for key, column in columns:
            digest.update(f"{key} ".encode())
            _update(digest, column[i])
        hashes.append(digest.hexdigest())
    return np.array(hashes, "S64")


def _update(digest: "hashlib._Hash", value: object) -> None:
    if isinstance(value, pathlib.Path):
        status = value.stat()
        digest.update(_file_hash(value, status.st_size, status.st_mtime_ns))
    elif isinstance(value, bytes):
        digest.update(hashlib.sha256(value).digest())
    elif isinstance(value, np.ndarray):
        update_hash(digest, value)
    else:
        update_hash(digest, np.array(value, object))


@functools.lru_cache(maxsize=2**20)
def _file_hash(path: pathlib.Path, size: int, modified: int) -> bytes:
    """Return the hash of a file; kept, as the three splits of a set are read one after the other."""
    return hashlib.sha256(path.read_bytes()).digest()


def _array(column: Sequence[Value] | np.ndarray) -> np.ndarray:
    return column if isinstance(column, np.ndarray) else np.array(column, object)


def _moments(rows: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each column; 1 for a column that is constant."""
    std = rows.std(axis=0, dtype=np.float64)
    mean = rows.mean(axis=0, dtype=np.float64)
    return tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist())


def _normalization(channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (_MEAN, _STD) if channels == 3 else ((0.5,) * channels, (0.25,) * channels)


def _label_note(names: Sequence[str]) -> str:
    shown = [f"{name!r} → {number}" for number, name in enumerate(names)]
    return f"{len(names)} classes: {_shown(shown)}"


def _shown(names: Sequence[str]) -> str:
    """Return the names as a list, shortened if there are many."""
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return ", ".join([*names[: _SHOWN - 1], "…", names[-1]])
