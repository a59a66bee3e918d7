"""Multiple choice with four endings: SWAG and HellaSWAG.

Each set is read from the publisher's files or, if they are missing, from the archive
`calibration_data/` of Desai and Durrett (2020, arXiv:2003.07892). Inputs are `text`, the context,
objects `[n]`, and `choices`, the start of the ending joined with each of the four endings, objects
`[n, 4]`.
"""

import csv
import pathlib
from typing import Any

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._rows import Row, Table, finish, json_fields, locate

_NAMES = ("ending0", "ending1", "ending2", "ending3")
# HellaSWAG's topics of WikiHow; all others are activities of ActivityNet.
_WIKIHOW = frozenset((
    "Cars & Other Vehicles", "Computers and Electronics", "Education and Communications",
    "Family Life", "Finance and Business", "Food and Entertaining", "Health",
    "Holidays and Traditions", "Home and Garden", "Home,Categories", "Personal Care and Style",
    "Pets and Animals", "Philosophy and Religion", "Relationships", "Sports and Fitness", "Travel",
    "Uncategorized", "Work World", "Youth",
))  # fmt: skip


def swag(split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01) -> Dataset:
    """Read SWAG: 73,546 + 20,006 situations from films and videos; the label is the correct ending.

    The official test set has no labels: as in the papers, validation and test are random halves of the
    validation file.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Zellers et al., 2018, arXiv:1808.05326.
    """
    file_split = "train" if split == "train" else "val"
    source = locate(
        "swag",
        split,
        data_dir,
        (f"swag/{file_split}.csv", f"SWAG/{file_split}.csv", f"swagaf/data/{file_split}.csv"),
        "SWAG",
        f"Get data/{file_split}.csv from github.com/rowanz/swagaf and put it in <data folder>/swag/.",
    )
    table = Table("swag", max_malformed)
    for row in table.read(source.path, header="gold-source"):
        # Parsed line by line and strictly: an unbalanced quote affects only its own row.
        try:
            cells = next(csv.reader([row.text], strict=True))
        except csv.Error:
            table.malformed(row, "not a row of csv")
            continue
        if len(cells) != 12:
            table.malformed(row, f"{len(cells)} of 12 columns")
            continue
        label = int(cells[11]) if cells[11] in ("0", "1", "2", "3") else cells[11]
        _add(table, row, cells[4], cells[5], cells[7:11], label)
    return finish(table, split, source, _NAMES, ROWS["swag"][file_split])


def hellaswag(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    source: str | None = None,
    whole_context: bool = False,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read HellaSWAG: 39,905 + 10,042 situations with adversarial endings; the shifted set of `swag`.

    The official test set has no labels: as in the papers, validation and test are random halves of the
    validation file.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      source: `'activitynet'` (captions of videos, as in SWAG), `'wikihow'` (how-to articles), or `None`
        for both; it does not change the split of an example.
      whole_context: Whether the start of the ending is part of the context, in `text`; for copies whose
        training rows do not separate the two.
      max_malformed: Largest fraction of malformed rows.

    References:
      Zellers et al., 2019, arXiv:1905.07830.
    """
    if source not in (None, "activitynet", "wikihow"):
        raise ValueError(f"hellaswag: source={source!r}: expected activitynet, wikihow or None")
    file_split = "train" if split == "train" else "val"
    file = f"hellaswag_{file_split}.jsonl"
    located = locate(
        "hellaswag",
        split,
        data_dir,
        (f"hellaswag/{file}", f"HellaSWAG/{file}", f"hellaswag/data/{file}"),
        "HellaSWAG",
        f"Get data/{file} from github.com/rowanz/hellaswag and put it in <data folder>/hellaswag/.",
    )
    table = Table("hellaswag", max_malformed)
    keys = ("ctx_a", "ctx_b", "endings", "label", "activity_label")
    for row in table.read(located.path):
        fields = json_fields(table, row, keys)
        if not fields:
            continue
        context, start, endings, label, topic = fields
        if source and source != ("wikihow" if str(topic) in _WIKIHOW else "activitynet"):
            table.leave_out(row, f"are not of {source}")
            continue
        _add(table, row, context, start, endings, label, whole_context=whole_context)
    return finish(table, split, located, _NAMES, ROWS["hellaswag"][file_split])


def _add(
    table: Table,
    row: Row,
    context: Any,
    start: Any,
    endings: Any,
    label: Any,
    *,
    whole_context: bool = False,
) -> None:
    """Add a row to the table, or count it as malformed with the reason."""
    if label not in range(4):
        table.malformed(row, f"label {str(label)[:20]!r}")
    elif not isinstance(endings, list) or len(endings) != 4:
        table.malformed(row, "not four endings")
    elif not all(isinstance(t, str) for t in (context, start, *endings)) or not context.strip():
        table.malformed(row, "no context or ending")
    else:
        if whole_context:
            context, start = f"{context.strip()} {start.strip()}", ""
        choices = [f"{start.strip()} {ending.strip()}".strip() for ending in endings]
        table.add(row, label, text=context.strip(), choices=choices)
