"""Inputs of a trained network as users have them: lists of texts, arrays, columns, data sets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calib_jax.data import Dataset

# A list of texts, of (text, pair) tuples or of (text, choices) tuples; an array of images or features;
# columns by name, such as `{"text": …, "pair": …}`; or a data set.
Inputs = Sequence[Any] | np.ndarray | Mapping[str, Any] | Dataset
Columns = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]  # of one example of each column

_FORMS = {
    ("text",): "texts",
    ("text", "pair"): "(text, pair) tuples of two texts",
    ("text", "choices"): "(text, choices) tuples of a text and a list of texts",
}


def as_columns(inputs: Inputs, shapes: Shapes) -> Columns:
    """Return inputs as columns with one row per example.

    Args:
      inputs: Inputs in any of their forms.
      shapes: Names of the columns that are expected, and the shape of an example of each.

    Raises:
      ValueError: With one line that says what was expected.
    """
    if isinstance(inputs, Dataset):
        inputs = inputs.inputs
    if isinstance(inputs, Mapping):
        columns = _columns_by_name(inputs, shapes)
    elif "text" in shapes:
        columns = _columns_of_texts(inputs, shapes)
    else:
        columns = {next(iter(shapes)): np.asarray(inputs)}
    for name, rows in columns.items():
        check = _check_texts if name in ("text", "pair", "choices") else _check_numbers
        check(name, rows, shapes[name])
    if len({len(rows) for rows in columns.values()}) > 1:
        sizes = ", ".join(f"{len(rows)} of {name}" for name, rows in columns.items())
        raise ValueError(f"inputs: expected as many rows of each column, got {sizes}")
    return columns


def _columns_by_name(inputs: Mapping[str, Any], shapes: Shapes) -> Columns:
    for name in shapes:
        if name not in inputs:
            raise ValueError(
                f"inputs: expected {', '.join(shapes)}, got {', '.join(inputs) or 'nothing'}"
            )
    return {
        name: _objects(inputs[name]) if name in ("text", "pair") else np.asarray(inputs[name])
        for name in shapes
    }


def _columns_of_texts(inputs: Any, shapes: Shapes) -> Columns:
    form = _FORMS[tuple(shapes)]
    if isinstance(inputs, str | bytes) or not hasattr(inputs, "__len__"):
        raise ValueError(f"inputs: expected a list of {form}, got {_short(inputs)}")
    if tuple(shapes) == ("text",):
        return {"text": _objects(inputs)}
    for i, row in enumerate(inputs):
        if isinstance(row, str) or not hasattr(row, "__len__") or len(row) != 2:
            raise ValueError(f"inputs: expected a list of {form}, row {i} is {_short(row)}")
    text, second = _objects(row[0] for row in inputs), [row[1] for row in inputs]
    if "pair" in shapes:
        return {"text": text, "pair": _objects(second)}
    (number,) = shapes["choices"]
    for i, choices in enumerate(second):
        if isinstance(choices, str) or not hasattr(choices, "__len__") or len(choices) != number:
            raise ValueError(f"choices: expected {number} texts, row {i} has {_short(choices)}")
    return {"text": text, "choices": np.array(second, object).reshape(-1, number)}


def _objects(values: Iterable[Any]) -> np.ndarray:
    """Return a column of Python objects, whatever they are."""
    values = list(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _check_texts(name: str, rows: np.ndarray, shape: tuple[int, ...]) -> None:
    if rows.shape[1:] != shape:
        raise ValueError(f"{name}: expected shape {('n', *shape)}, got {rows.shape}")
    for i, text in enumerate(rows.ravel()):
        if not isinstance(text, str):
            row = i // max(int(np.prod(shape)), 1)
            raise ValueError(f"{name}: expected texts, row {row} has {_short(text)}")


def _check_numbers(name: str, rows: np.ndarray, shape: tuple[int, ...]) -> None:
    expected = f"{name}: expected {'uint8' if name == 'image' else 'numbers'} [n, {_join(shape)}]"
    if rows.dtype.kind not in "fiu" or rows.shape[1:] != shape:
        hint = "; one example is x[None]" if rows.shape == shape else ""
        raise ValueError(f"{expected}, got {rows.dtype} [{_join(rows.shape)}]{hint}")
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        row = int(np.argmin(np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)))
        raise ValueError(f"{expected}, row {row} has NaN or infinity")
    if name == "image" and rows.dtype != np.uint8 and rows.size:
        low, high = rows.min(), rows.max()
        if rows.dtype.kind != "f" or low < 0 or high > 1:
            raise ValueError(
                f"{expected} of 0 to 255, or floats of 0 to 1; got {rows.dtype} of {low:g} to {high:g}"
            )


def _join(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _short(value: Any) -> str:
    """Return a value as it is shown in a message."""
    text = repr(value)
    text = text if len(text) <= 40 else text[:37] + "…"
    return f"{text} ({type(value).__name__})"
