"""Your own arrays: images or feature vectors in an .npz file."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from calib_jax.data._examples import Examples
from calib_jax.data._files import Malformed, read_npz
from calib_jax.data._rows import Row
from calib_jax.data._sources import given_files


def read_arrays(
    data_dir: pathlib.Path | None, path: str, named: Mapping[str, str], max_malformed: float
) -> dict[str, Examples]:
    """Read arrays `image` or `features`, with `labels` and perhaps `label_names`.

    Images are uint8 `[n, h, w, c]` or `[n, h, w]`, or floats in [0, 1]. Features are numbers `[n, dim]`.
    Labels are names or whole numbers `[n]`; with `label_names` they are 0 to K - 1. Examples with NaN or
    infinity are malformed.

    Args:
      data_dir: Data folder.
      path: File, or folder with `train`, `val` and `test` files.
      named: Files of the splits instead.
      max_malformed: Largest fraction of malformed examples.

    Returns:
      The examples of each split that has a file.
    """
    files = given_files("npz", (".npz",), data_dir, path, named)
    given = {key: _read_npz(paths, max_malformed) for key, paths in files.items()}
    kinds = {key: _kind(examples) for key, examples in given.items()}
    for key, kind in kinds.items():
        if kind != kinds["train"]:
            raise ValueError(
                f"npz: {key} has {kind}, train has {kinds['train']}: expected the same"
            )
    return given


def _read_npz(paths: Sequence[pathlib.Path], max_malformed: float) -> Examples:
    """Read and check the arrays of one file."""
    if len(paths) > 1:
        raise ValueError(f"npz: expected one file, got {', '.join(map(str, paths))}")
    (path,) = paths
    try:
        arrays = read_npz(path)
        names = [name for name in ("image", "features") if name in arrays]
        if len(names) != 1 or "labels" not in arrays:
            raise ValueError(
                f"expected image or features, and labels; it has {', '.join(arrays) or 'nothing'}"
            )
        inputs, labels = arrays[names[0]], arrays["labels"]
        if labels.shape != inputs.shape[:1] or not len(labels):
            raise ValueError(f"{names[0]} {inputs.shape} does not fit labels {labels.shape}")
        inputs = _check_images(inputs) if names[0] == "image" else _check_features(inputs)
        if labels.dtype.kind not in "biufUS":
            raise ValueError(f"labels of type {labels.dtype}: expected names or whole numbers")
        label_names = tuple(map(str, np.atleast_1d(arrays.get("label_names", ())).tolist()))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    malformed = Malformed("npz", max_malformed)
    finite = np.isfinite(inputs.reshape(len(inputs), -1)).all(axis=1)
    for i in np.flatnonzero(~finite):
        malformed.add(path, int(i) + 1, "NaN or infinity")
    notes = malformed.notes(len(labels))
    good = np.flatnonzero(finite)
    rows = [Row(path, i + 1, i, "") for i in good.tolist()]
    values = [v.decode() if isinstance(v, bytes) else v for v in labels[good].tolist()]
    return Examples(rows, {names[0]: inputs[good]}, values, label_names, notes)


def _check_images(images: np.ndarray) -> np.ndarray:
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.dtype.kind not in "uf" or not images.size:
        raise ValueError(
            f"image {images.dtype} {images.shape}: expected uint8 or floats in [0, 1], [n, h, w, c]"
        )
    if images.dtype == np.uint8:
        return images
    if np.nanmin(images) < 0 or np.nanmax(images) > 1:
        raise ValueError(
            f"image {images.dtype} from {np.nanmin(images):g} to {np.nanmax(images):g}: expected floats "
            "in [0, 1], or 0 to 255 as uint8"
        )
    return images.astype(np.float32)


def _check_features(features: np.ndarray) -> np.ndarray:
    if features.ndim != 2 or features.dtype.kind not in "biuf" or not features.size:
        raise ValueError(f"features {features.dtype} {features.shape}: expected numbers [n, dim]")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is malformed
        return features.astype(np.float32)


def _kind(examples: Examples) -> str:
    return ", ".join(f"{k} {np.asarray(v).shape[1:]}" for k, v in examples.inputs.items())
