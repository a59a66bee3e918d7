"""From rows of a table to examples: the columns of texts, images and labels, and malformed rows."""

import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from calib_jax._hints import expected_one_of
from calib_jax.data._examples import Examples, Label, Value, to_number
from calib_jax.data._files import Malformed
from calib_jax.data._images import Source, encoded
from calib_jax.data._records import Record, Records
from calib_jax.data._rows import Row

# Names that say what a column is. A pair of texts comes before a single one.
_LABEL = ("label", "labels", "target", "class", "category", "gold_label", "y")
_TEXT = ("text", "sentence", "review", "content", "comment", "question", "title")
_PAIRS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"))
_IMAGE = ("image", "img")


class Columns(NamedTuple):
    """Names of columns; `''` for none, or, as an option, for the obvious one.

    Attributes:
      text: Text, or the first of two.
      pair: Second text.
      choices: Endings of a multiple choice: one column of lists, or several, separated by commas.
      image: Paths of images, relative to the file, or encoded images.
      label: Classes; of a multiple choice, the number of the correct one.
    """

    text: str = ""
    pair: str = ""
    choices: str = ""
    image: str = ""
    label: str = ""

    def used(self) -> tuple[str, ...]:
        """Return the names of all columns that are read."""
        return tuple(name for name in (*self[:2], *self.choices.split(","), *self[3:]) if name)

    def note(self) -> str:
        """Return which column is what, for the user."""
        return (
            f"columns: {', '.join(f'{k} = {name!r}' for k, name in self._asdict().items() if name)}"
        )


def choose_columns(
    name: str,
    path: pathlib.Path,
    columns: Sequence[str],
    given: Columns,
    *,
    has_label: bool = True,
) -> Columns:
    """Return the columns to read: those given, the rest by name if it is unambiguous.

    Args:
      name: Name of the set.
      path: File, for messages.
      columns: Columns of the file.
      given: Columns that the user named.
      has_label: Whether one of the columns is the label.
    """
    _check_given(name, path, columns, given)
    free = [column for column in columns if column not in given.used()]
    label = given.label
    if has_label and not label:
        label = _only(name, "label", path, columns, free, _LABEL)
    chosen = given._replace(label=label)
    if given.text or given.image:
        return chosen
    rest = [column for column in free if column != label]
    if not given.pair:
        for first, second in _PAIRS:
            if first in rest and second in rest:
                return chosen._replace(text=first, pair=second)
        if images := [column for column in rest if column.lower() in _IMAGE]:
            return chosen._replace(image=images[0])
    return chosen._replace(text=_only(name, "text", path, columns, rest, _TEXT))


def _check_given(name: str, path: pathlib.Path, columns: Sequence[str], given: Columns) -> None:
    """Raise if the file has no column of a name that the user gave."""
    for key, names in given._asdict().items():
        for column in names.split(",") if key == "choices" else [names]:
            if column and column not in columns:
                hint = expected_one_of(column, columns)
                raise ValueError(f"{name}: {key}={column!r}: {path} has no such column; {hint}")


def choose_input_columns(
    path: pathlib.Path, columns: Sequence[str], given: Columns, wanted: Sequence[str]
) -> Columns:
    """Return the columns of the inputs of a file without labels, or whose labels are not read.

    Args:
      path: File, for messages.
      columns: Columns of the file.
      given: Columns that were named for the training.
      wanted: Inputs to find: some of `text`, `pair`, `choices` and `image`.
    """
    named = {key: getattr(given, key) or key for key in wanted}
    if set(Columns(**named).used()) <= set(columns):
        return Columns(**named)
    rest = [c for c in columns if c != given.label and c.lower() not in _LABEL]
    try:
        chosen = choose_columns("inputs", path, rest, Columns(), has_label=False)
    except ValueError:
        chosen = Columns()
    if {key for key, column in chosen._asdict().items() if column} == set(wanted):
        return chosen
    expected = ", ".join(Columns(**named).used())
    raise ValueError(f"{path}: expected the columns {expected}; it has {', '.join(columns)}")


def _only(
    name: str,
    key: str,
    path: pathlib.Path,
    columns: Sequence[str],
    rest: Sequence[str],
    known: Sequence[str],
) -> str:
    """Return the one column with a known name or, for texts, the only one there is."""
    matches = [column for column in rest if column.lower() in known]
    if key == "text" and not matches:
        matches = list(rest)
    if len(matches) == 1:
        return matches[0]
    raise ValueError(
        f"{name}: which column is the {key}? Set {key} (config.data.options.{key}) to one of "
        f"{', '.join(matches or rest or columns) or '(none)'}, the columns of {path}"
    )


def read_examples(
    name: str, files: Sequence[Records], given: Columns, max_malformed: float
) -> Examples:
    """Read the examples of the files of one split.

    Args:
      name: Name of the set.
      files: Files with the same columns.
      given: Columns that the user named.
      max_malformed: Largest fraction of malformed rows.
    """
    columns = choose_columns(name, files[0].path, files[0].columns, given)
    label_names = files[0].label_names.get(columns.label, ())
    malformed = Malformed(name, max_malformed)
    rows: list[Row] = []
    labels: list[Label] = []
    inputs: dict[str, list[Value]] = {}
    num_rows = num_choices = unlabeled = 0
    for num_rows, (file, record) in enumerate(_records(name, files, columns), 1):
        try:
            example, label = _example(record, columns, file.path.parent, num_choices)
        except ValueError as error:
            malformed.add(file.path, record.line, str(error))
            continue
        if isinstance(choices := example.get("choices"), list):
            num_choices = len(choices)
        if label == -1 and label_names:  # Hugging Face's mark of an example without a label
            unlabeled += 1
            continue
        rows.append(Row(file.path, record.line, num_rows - 1, ""))
        labels.append(label)
        for key, value in example.items():
            inputs.setdefault(key, []).append(value)
    notes = malformed.notes(num_rows)
    if unlabeled:
        notes += (f"{unlabeled} of {num_rows} rows have no label; left out",)
    if not rows:
        why = "; ".join(notes) or "there is none"
        raise ValueError(
            f"{name}: none of the {num_rows} rows of {files[0].path} can be used: {why}"
        )
    notes += (columns.note(),)
    if num_choices:
        label_names = tuple(f"choice {i}" for i in range(num_choices))
        labels = _choice_numbers(name, rows, labels, num_choices)
    return Examples(rows, inputs, labels, label_names, notes)


def _records(
    name: str, files: Sequence[Records], columns: Columns
) -> Iterator[tuple[Records, Record]]:
    """Yield all rows of all files, which must have the same columns and class names."""
    for file in files:
        missing = [column for column in columns.used() if column not in file.columns]
        if missing:
            raise ValueError(
                f"{name}: {file.path} has no column {missing[0]!r}, {files[0].path} has"
            )
        if file.label_names.get(columns.label) != files[0].label_names.get(columns.label):
            raise ValueError(f"{name}: {file.path} and {files[0].path} name different classes")
        for record in file.rows(columns.used()):
            yield file, record


def _example(
    record: Record, columns: Columns, folder: pathlib.Path, num_choices: int
) -> tuple[dict[str, Value], Label]:
    """Return inputs and label of a row; raise a `ValueError` that says why it is malformed."""
    example = read_inputs(record, columns, folder, num_choices)
    return example, _label(record.cells[columns.label])


def read_inputs(
    record: Record, columns: Columns, folder: pathlib.Path, num_choices: int
) -> dict[str, Value]:
    """Return the inputs of a row; raise a `ValueError` that says why it is malformed."""
    if record.problem:
        raise ValueError(record.problem)
    missing = [column for column in columns.used() if column not in record.cells]
    if missing:
        raise ValueError(f"no {missing[0]}")
    cells, example = record.cells, dict[str, Value]()
    for key, column in (("text", columns.text), ("pair", columns.pair)):
        if column:
            example[key] = _text(cells[column], column)
    if columns.choices:
        names = columns.choices.split(",")
        endings = cells[names[0]] if len(names) == 1 else [cells[name] for name in names]
        if not isinstance(endings, list) or len(endings) < 2:
            raise ValueError(f"{columns.choices}: no list of choices")
        if num_choices and len(endings) != num_choices:
            raise ValueError(f"{len(endings)} choices, others have {num_choices}")
        example["choices"] = [_text(ending, columns.choices) for ending in endings]
    if columns.image:
        example["image"] = _image(cells[columns.image], columns.image, folder)
    return example


def _text(value: object, column: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"no {column}" if value is None else f"{column}: empty or not a text")
    return value.strip()


def _image(value: object, column: str, folder: pathlib.Path) -> Source:
    """Return an encoded image, or the path of one."""
    value = encoded(value)
    if isinstance(value, bytes | np.ndarray):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"no {column}")
    path = folder / value.strip()
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):  # a name that no file can have
        pass
    raise ValueError(f"there is no file {str(path)[-60:]}")


def _label(value: object) -> Label:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    nothing = value is None or value == "" or isinstance(value, str | float)
    raise ValueError("no label" if nothing else f"label {str(value)[:20]!r}")


def _choice_numbers(
    name: str, rows: Sequence[Row], labels: Sequence[Label], num_choices: int
) -> list[Label]:
    """Return the positions of the correct choices, from 0, of labels from 0 or, if so counted, from 1."""
    numbers = [to_number(label) for label in labels]
    first = int(num_choices in numbers)
    for row, label, number in zip(rows, labels, numbers, strict=True):
        if number not in range(first, first + num_choices):
            raise ValueError(
                f"{name}: {row.path}:{row.line}: label {str(label)[:20]!r}: expected the number of a "
                f"choice, {first} to {first + num_choices - 1}"
            )
    return [int(number) - first for number in numbers if number is not None]
