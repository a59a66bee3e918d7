"""Multiple choice with four endings: SWAG and HellaSWAG.

Each set is read from the publisher's files or, if they are missing, from the Hugging Face edition (SWAG)
or the archive `calibration_data/` of Desai and Durrett (2020, arXiv:2003.07892). Inputs are `text`, the
context, objects `[n]`, and `choices`, the start of the ending joined with each of the four endings,
objects `[n, 4]`.
"""

import csv
import pathlib

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._records import parquet_patterns
from calib_jax.data._rows import Row, Table, finish, json_fields, locate

_NAMES = ("ending0", "ending1", "ending2", "ending3")
_HUB_COLUMNS = ("sent1", "sent2", *_NAMES, "label")
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
        (
            *(f"{folder}/{file_split}.csv" for folder in ("swag", "SWAG", "swagaf/data")),
            *parquet_patterns(
                "allenai/swag", "regular", {"val": "validation"}.get(file_split, "train")
            ),
        ),
        "SWAG",
        f"Get data/{file_split}.csv from github.com/rowanz/swagaf and put it in <data folder>/swag/.",
    )
    table = Table("swag", max_malformed)
    if source.path.suffix == ".parquet":
        for row, (context, start, *endings, label) in table.read_parquet(source.path, _HUB_COLUMNS):
            _add(table, row, context, start, endings, label)
        return finish(table, split, source, _NAMES, ROWS["swag"][file_split])
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
        number = int(cells[11]) if cells[11] in ("0", "1", "2", "3") else cells[11]
        _add(table, row, cells[4], cells[5], cells[7:11], number)
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
    context: object,
    start: object,
    endings: object,
    label: object,
    *,
    whole_context: bool = False,
) -> None:
    """Add a row to the table, or count it as malformed with the reason."""
    if not isinstance(label, int) or label not in range(4):
        table.malformed(row, f"label {str(label)[:20]!r}")
        return
    if not isinstance(endings, list) or len(endings) != 4:
        table.malformed(row, "not four endings")
        return
    texts = [text.strip() for text in (context, start, *endings) if isinstance(text, str)]
    if len(texts) != 6 or not texts[0]:
        table.malformed(row, "no context or ending")
        return
    text, begin, *ends = texts
    if whole_context:
        text, begin = f"{text} {begin}", ""
    table.add(row, label, text=text.strip(), choices=[f"{begin} {end}".strip() for end in ends])
