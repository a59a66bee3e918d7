"""Calibrators in files: npz archives of arrays and a header, nothing that is executed."""

import dataclasses
import json
import pathlib
import zipfile
import zlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax._hints import expected_one_of
from calib_jax._io import write_npz
from calib_jax.posthoc._auto import Auto
from calib_jax.posthoc._binary import Beta, Platt
from calib_jax.posthoc._binned import HistogramBinning
from calib_jax.posthoc._common import Calibrator
from calib_jax.posthoc._ensemble import EnsembleTemperature
from calib_jax.posthoc._isotonic import Isotonic
from calib_jax.posthoc._scaling import Dirichlet, FocalTemperature, VectorScaling
from calib_jax.posthoc._spline import Spline
from calib_jax.posthoc._structured import StructuredMatrixScaling, StructuredVectorScaling
from calib_jax.posthoc._temperature import Temperature

_FORMAT = "calib_jax calibrator"
_VERSION = 1  # of the file; one more whenever a class changes what its parameters mean
_CLASSES: dict[str, type[Calibrator]] = {
    cls.__name__: cls
    for cls in (
        *(Temperature, EnsembleTemperature, Spline, VectorScaling, Dirichlet, Isotonic),
        *(HistogramBinning, FocalTemperature, StructuredVectorScaling, StructuredMatrixScaling),
        *(Platt, Beta, Auto),
    )
}

# The header of a file: format, version, class and the values of its fields that are no arrays.
Header = dict[str, object]


def save(path: str | pathlib.Path, calibrator: Calibrator) -> None:
    """Write a calibrator to an npz file, atomically; create its folder if needed.

    The file holds the name of the class, a version, the number of classes and the parameters.

    Args:
      path: File to write, which must end in `.npz`.
      calibrator: Fitted calibrator of any class of this package.

    >>> import tempfile
    >>> calibrator = posthoc.Temperature.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posthoc.save(f"{folder}/temperature.npz", calibrator)
    ...     again = posthoc.load(f"{folder}/temperature.npz")
    >>> type(again).__name__, again.num_classes, round(float(again.temperature), 2)
    ('Temperature', 2, 1.82)
    """
    path = pathlib.Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: expected a file name that ends in .npz")
    header, arrays = _pack(calibrator)
    header |= {"format": _FORMAT, "version": _VERSION}
    write_npz(path, header=np.asarray(json.dumps(header)), **arrays)


def _pack(calibrator: Calibrator) -> tuple[Header, dict[str, np.ndarray]]:
    """Return the class and the values of the fields: those that are no arrays, and those that are.

    A calibrator inside another one has a header in the header; its arrays are `field.array`.
    """
    name = type(calibrator).__name__
    if _CLASSES.get(name) is not type(calibrator):
        raise ValueError(f"calibrator: a {name} cannot be saved; {expected_one_of(name, _CLASSES)}")
    header: Header = {"class": name}
    arrays: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(calibrator):
        value = getattr(calibrator, field.name)
        if isinstance(value, Calibrator):
            header[field.name], inner = _pack(value)
            arrays |= {f"{field.name}.{key}": array for key, array in inner.items()}
        elif _is_static(field):
            header[field.name] = value
        else:
            arrays[field.name] = np.asarray(value)
            if np.isnan(arrays[field.name]).any():
                raise ValueError(
                    f"calibrator: its fit failed, the {field.name} of this {name} is NaN"
                )
    return header, arrays


def load(path: str | pathlib.Path) -> Calibrator:
    """Read a calibrator that `save` wrote. Nothing is ever unpickled.

    The calibrator takes logits of as many classes as it was fitted to, and no others.

    Args:
      path: File to read.

    Raises:
      ValueError: With one line, for a file that is missing, damaged, of another kind or of a later
        version.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posthoc.save(f"{folder}/t.npz", posthoc.Temperature.fit([[2.0, 0.0]] * 4, [0, 0, 0, 1]))
    ...     posthoc.load(f"{folder}/t.npz").num_classes
    2
    """
    path = pathlib.Path(path)
    try:
        return _unpack(*_read(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read(path: pathlib.Path) -> tuple[Header, dict[str, np.ndarray]]:
    """Read the header and the arrays of a file, and check that it is one of ours."""
    if not path.is_file():
        raise ValueError("no such file")
    foreign = "not a calibrator that posthoc.save wrote"
    if not zipfile.is_zipfile(path):
        raise ValueError(foreign)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError):
        raise ValueError("damaged: the archive cannot be read") from None
    except ValueError:
        raise ValueError("holds Python objects, which are never loaded") from None
    try:
        header = json.loads(str(arrays.pop("header")))
    except (KeyError, ValueError):
        raise ValueError(foreign) from None
    if not isinstance(header, dict) or header.pop("format", None) != _FORMAT:
        raise ValueError(foreign)
    if (version := header.pop("version", None)) != _VERSION:
        raise ValueError(f"version {version!r} of the file format, expected {_VERSION}")
    return header, arrays


def _unpack(header: Header, arrays: dict[str, np.ndarray]) -> Calibrator:
    """Build the calibrator, if its fields are those of its class and fit each other."""
    name = str(header.pop("class", None))
    if name not in _CLASSES:
        raise ValueError(f"class {name!r}: {expected_one_of(name, _CLASSES)}")
    fields = dataclasses.fields(_CLASSES[name])
    values: dict[str, object] = {key: _static(value) for key, value in header.items()}
    for key, array in arrays.items():
        if array.dtype.kind != "f" or np.isnan(array).any():
            raise ValueError(f"damaged: the {key} of its {name} is not a number")
        if "." not in key:
            values[key] = jnp.asarray(array)
    for key, value in header.items():
        if isinstance(value, dict):
            inner = {k.removeprefix(f"{key}."): a for k, a in arrays.items() if "." in k}
            values[key] = _unpack(value, inner)
    if values.keys() != {field.name for field in fields}:
        parameters = ", ".join(field.name for field in fields if not _is_static(field))
        raise ValueError(f"damaged: expected the {parameters} of a {name}")
    build: Callable[..., Calibrator] = _CLASSES[name]
    return _check_shapes(build(**values))


def _static(value: object) -> object:
    """Return a value from JSON as it was: sequences are tuples."""
    return tuple(value) if isinstance(value, list) else value


def _check_shapes(calibrator: Calibrator) -> Calibrator:
    """Return the calibrator, if logits of the shape that it was fitted to give such probabilities."""
    name, num_classes = type(calibrator).__name__, calibrator.num_classes
    if num_classes is None:
        return calibrator
    if not isinstance(num_classes, int) or num_classes < 1:
        raise ValueError(f"damaged: num_classes={num_classes!r}")
    shape = calibrator.input_shape(3)
    try:
        result = jax.eval_shape(calibrator, jax.ShapeDtypeStruct(shape, jnp.float32)).shape
    except (TypeError, ValueError, IndexError):
        result = None
    if result != shape:
        raise ValueError(
            f"damaged: the parameters are not those of a {name} of {num_classes} classes"
        )
    return calibrator


def _is_static(field: dataclasses.Field) -> bool:
    """Return whether a field is part of the class's structure, not a parameter."""
    return bool(field.metadata.get("static"))
