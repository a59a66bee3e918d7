"""Predictions in files: npz archives, pairs of npy files, and tables (csv, jsonl, parquet)."""

import pathlib
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from calib_jax.evaluation._columns import GROUPS, LABELS
from calib_jax.evaluation._labels import are_independent, check_label_predictions
from calib_jax.evaluation._predictions import (
    LOGITS,
    PROBS,
    Predictions,
    check_agreement,
    check_predictions,
)
from calib_jax.evaluation._tables import read_csv, read_jsonl, read_parquet

_EITHER = ("predictions", "scores", "outputs")
_NAMES = ("label_names", "class_names", "classes")
_SILENT = ("ids", "id", "index")  # arrays that are of no use here, and common
_SUFFIXES = ".npz, .csv, .tsv, .jsonl, .parquet or a pair logits.npy,labels.npy"
# What reading a damaged archive or array raises, besides ValueError.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, MemoryError),
    *(KeyError, TypeError, SyntaxError, RuntimeError, OverflowError),
)
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".joblib", ".ckpt")


def load_predictions(
    path: str | pathlib.Path, *, labeled: bool = True, independent: bool = False
) -> Predictions:
    """Read `logits` or `probs` with `labels` from a file; `docs/evaluate.md` has the rules.

    Nothing is ever unpickled.

    Args:
      path: An npz, csv, tsv, jsonl or parquet file, or two npy files `logits.npy,labels.npy`.
      labeled: Whether there must be labels; without, those that are missing are 0.
      independent: Whether scores without labels are those of independent labels; if there are labels,
        these show it.

    Raises:
      ValueError: With one line that says what cannot be right.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
    ...     _ = file.write(b"label,logit_0,logit_1\\n1,0.5,2\\n")
    ...     file.flush()
    ...     load_predictions(file.name).notes
    ("1 predictions over 2 classes: logits (from 'logits')",)
    """
    try:
        arrays, notes = _read(str(path), labeled)
        return _assemble(arrays, notes, labeled, independent)
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected text in UTF-8") from None
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or "not enough memory"
        raise ValueError(f"{path}: cannot be read ({reason})") from None


def _read(name: str, labeled: bool) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the arrays of a file by their names, and remarks."""
    files = name.split(",")
    path = pathlib.Path(name)
    if len(files) == 2 and all(file.endswith(".npy") for file in files):
        return _read_npy(*map(pathlib.Path, files)), []
    if path.suffix.lower() in _PICKLES:
        raise ValueError(
            'a pickle, which is never loaded; convert it: python -c "import numpy, torch; '
            f"d = torch.load('{path.name}', weights_only=True); numpy.savez('{path.stem}.npz', "
            "logits=d['logits'].float().cpu().numpy(), labels=d['labels'].cpu().numpy())\""
        )
    if not path.is_file():
        raise ValueError("no such file")
    suffix = path.suffix.lower()
    if suffix == ".npy" and not labeled:
        return _read_npy(path), []
    if suffix == ".npy":
        raise ValueError("scores without labels; give both files: logits.npy,labels.npy")
    if suffix == ".npz":
        return _read_npz(path)
    readers = {".csv": read_csv, ".tsv": read_csv, ".jsonl": read_jsonl, ".parquet": read_parquet}
    if suffix not in readers:
        raise ValueError(f"expected a file of one of these kinds: {_SUFFIXES}")
    return readers[suffix](path, labeled)


def _read_npz(path: pathlib.Path) -> tuple[dict[str, np.ndarray], list[str]]:
    if not zipfile.is_zipfile(path):
        raise ValueError("not a readable npz archive")
    known = (*LOGITS, *PROBS, *_EITHER, *LABELS, *GROUPS, *_NAMES)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            arrays = {key: archive[key] for key in names if key in known}
    except _DAMAGE:
        raise ValueError("not a readable npz archive") from None
    except ValueError as error:
        if "allow_pickle" not in str(error) and "Object arrays" not in str(error):
            raise ValueError("not a readable npz archive") from None
        raise ValueError("holds Python objects, which are never loaded; save arrays") from None
    others = [key for key in names if key not in arrays and key not in _SILENT]
    _present((*LOGITS, *PROBS, *_EITHER), names, "'logits' or 'probs'")
    if not all(isinstance(a, np.ndarray) for a in arrays.values()):
        raise ValueError("not a readable npz archive")
    notes = [f"ignored: {', '.join(map(repr, others))}"] if others else []
    return arrays, notes


def _read_npy(*paths: pathlib.Path) -> dict[str, np.ndarray]:
    """Read scores and labels, or scores alone."""
    arrays = []
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path.name}: no such file")
        try:
            with path.open("rb") as file:
                arrays.append(np.lib.format.read_array(file, allow_pickle=False))
        except (*_DAMAGE, ValueError):
            raise ValueError(
                f"{path.name}: expected an npy file with an array of numbers (objects are never loaded)"
            ) from None
    if arrays[0].ndim == 1 and arrays[-1].ndim == 2:
        raise ValueError("the first file has labels, the second scores; give logits.npy,labels.npy")
    stem = paths[0].stem.lower()
    name = next((n for n in (*LOGITS, *PROBS) if n in stem), "predictions")
    return dict(zip((name, "labels"), arrays, strict=False))


def _assemble(
    arrays: Mapping[str, np.ndarray], notes: Sequence[str], labeled: bool, independent: bool
) -> Predictions:
    """Choose the scores, and check all arrays together."""
    name, *others = _present((*LOGITS, *PROBS, *_EITHER), arrays, "'logits' or 'probs'")
    notes = list(notes)
    if labeled or any(key in arrays for key in LABELS):
        label, *other_labels = _present(LABELS, arrays, "'labels'")
        labels = arrays[label]
        for other in other_labels:
            if not np.array_equal(labels, arrays[other]):
                raise ValueError(f"labels: {label!r} and {other!r} differ; keep one of them")
        independent = are_independent(arrays[name], labels)
    else:
        shape = arrays[name].shape
        labels = np.zeros(shape if independent else shape[:1], np.int32)
    names = next((arrays[key] for key in _NAMES if key in arrays), None)
    label_names = () if names is None else [str(x) for x in np.ravel(names)]
    groups = next((arrays[key] for key in GROUPS if key in arrays), None)
    if independent:
        if groups is not None:
            notes.append("groups are ignored: there is no table by group of independent labels")
        if others:
            raise ValueError(f"{name!r} and {others[0]!r} of independent labels: give one of them")
        return check_label_predictions(
            name, arrays[name], labels, label_names=label_names, notes=notes
        )
    for other in others:
        if name in LOGITS and other in PROBS:
            check_agreement(arrays[name], arrays[other])
            notes.append("probabilities agree with the softmax of the logits, which are used")
        else:
            notes.append(f"ignored: {other!r} beside {name!r}")
    return check_predictions(
        name,
        arrays[name],
        labels,
        label_names=label_names,
        groups=groups,
        notes=notes,
    )


def _present(names: Sequence[str], arrays: Iterable[str], expected: str) -> list[str]:
    """Return those of the names that are there, in their order; at least one."""
    found = list(arrays)
    present = [name for name in names if name in found]
    if not present:
        raise ValueError(f"expected {expected}, found {', '.join(map(repr, found)) or 'nothing'}")
    return present
