"""Predictions in files: npz archives, pairs of npy files, and tables (csv, jsonl, parquet)."""

import pathlib
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from calib_jax.evaluation._columns import LABELS
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
_GROUPS = ("groups", "group", "subgroups")
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
    known = (*LOGITS, *PROBS, *_EITHER, *LABELS, *_GROUPS, *_NAMES)
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
    if not arrays.keys() & {*LOGITS, *PROBS, *_EITHER}:
        _first((), names, "scores: expected 'logits' or 'probs'")
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
    kinds = [[key for key in kind if key in arrays] for kind in (LOGITS, PROBS, _EITHER)]
    both = sum(len(kind) > 0 for kind in kinds[:2]) == 2
    name = _first([*LOGITS, *PROBS, *_EITHER], arrays, "scores: expected 'logits' or 'probs'")
    names = [arrays[key] for key in _NAMES if key in arrays]
    label_names = [str(x) for x in np.ravel(names[0])] if names else ()
    if labeled or any(key in arrays for key in LABELS):
        labels = arrays[_first(LABELS, arrays, "labels: expected 'labels'")]
        independent = are_independent(arrays[name], labels)
    elif independent:
        labels = np.zeros(arrays[name].shape, np.int32)
    else:
        labels = np.zeros(len(arrays[name]) if arrays[name].ndim else 0, np.int32)
    if independent:
        if any(key in arrays for key in _GROUPS):
            notes = [*notes, "groups are ignored: there is no table by group of independent labels"]
        if both:
            raise ValueError("logits and probs of independent labels: give one of them")
        return check_label_predictions(
            name, arrays[name], labels, label_names=label_names, notes=notes
        )
    if both:
        logits, probs = arrays[kinds[0][0]], arrays[kinds[1][0]]
        if logits.dtype.kind in "fiu" and probs.dtype.kind in "fiu" and logits.ndim == 2:
            check_agreement(logits, probs)
        notes = [*notes, "probabilities agree with the softmax of the logits, which are used"]
    groups = [arrays[key] for key in _GROUPS if key in arrays]
    return check_predictions(
        name,
        arrays[name],
        labels,
        label_names=label_names,
        groups=groups[0] if groups else None,
        notes=notes,
    )


def _first(names: Sequence[str], present: Iterable[str], message: str) -> str:
    """Return the first of the names that is present."""
    keys = list(present)
    for name in names:
        if name in keys:
            return name
    raise ValueError(f"{message}, found {', '.join(map(repr, keys)) or 'nothing'}")
