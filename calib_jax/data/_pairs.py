"""Pairs of sentences: inference (SNLI, MNLI) and paraphrase (QQP, TwitterPPDB, MSRP).

Each set is read from the publisher's files or, if they are missing, from the Hugging Face edition or from
the archive `calibration_data/` of Desai and Durrett (2020, arXiv:2003.07892), if they contain the set.
"""

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from calib_jax.data._counts import ROWS, TWITTER_PPDB_PAIRS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import find, split_positions
from calib_jax.data._records import parquet_patterns
from calib_jax.data._rows import Row, Source, Table, finish, json_fields, locate, unquote, with_ids

_INFERENCE = {"entailment": 0, "contradiction": 1, "neutral": 2}
# Of the Hugging Face editions: numbers of the labels, -1 for none, and names of the splits.
_HUB_INFERENCE = {0: "entailment", 1: "neutral", 2: "contradiction", -1: "-"}
_HUB_SPLITS = {
    "train": "train",
    "dev": "validation",
    "dev_matched": "validation_matched",
    "test": "test",
}
_PARAPHRASE = {"0": 0, "1": 1}
_PARAPHRASE_NAMES = ("different", "paraphrase")
_VOTES = re.compile(r"\((\d), ?\d\)")  # "(4, 6)": four of six say that it is a paraphrase


class _Columns(NamedTuple):
    """Columns of a tab-separated file; `number` is 0 if it differs between splits."""

    first: int
    second: int
    label: int
    number: int = 0


def snli(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    official_test: bool = False,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read SNLI: 569,033 labeled pairs of sentences.

    The second sentence follows from the first, contradicts it, or neither.
    As in the papers, validation and test are random halves of the dev file. Pairs without a majority
    label (`-`) are left out.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      official_test: Whether validation and test are the dev and the test file.
      max_malformed: Largest fraction of malformed rows.

    References:
      Bowman et al., 2015, arXiv:1508.05326.
    """
    file_split = _file_split(split, official_test)
    source = locate(
        "snli",
        split,
        data_dir,
        (
            f"snli_1.0/snli_1.0_{file_split}.jsonl",
            f"SNLI/{file_split}.tsv",
            *parquet_patterns("stanfordnlp/snli", "plain_text", _HUB_SPLITS[file_split]),
        ),
        "SNLI",
        "Get snli_1.0.zip from nlp.stanford.edu/projects/snli and unzip it to <data folder>/snli_1.0/.",
        official_test=official_test,
    )
    expected = ROWS["snli"][file_split]
    return _inference("snli", split, source, _Columns(7, 8, -1), expected, max_malformed)


def mnli(split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01) -> Dataset:
    """Read MNLI: 402,517 pairs with SNLI's labels, of ten genres; the shifted set of `snli`.

    The official test set has no labels: as in the papers, validation and test are random halves of the
    matched dev file.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Williams, Nangia and Bowman, 2018, arXiv:1704.05426.
    """
    file_split = "train" if split == "train" else "dev_matched"
    source = locate(
        "mnli",
        split,
        data_dir,
        (
            f"multinli_1.0/multinli_1.0_{file_split}.jsonl",
            f"MNLI/{file_split}.tsv",
            *parquet_patterns("nyu-mll/glue", "mnli", _HUB_SPLITS[file_split]),
        ),
        "MNLI",
        "Get multinli_1.0.zip from cims.nyu.edu/~sbowman/multinli and unzip it "
        "to <data folder>/multinli_1.0/.",
    )
    expected = ROWS["mnli"][file_split]
    return _inference("mnli", split, source, _Columns(8, 9, -1), expected, max_malformed)


def qqp(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    official_test: bool = False,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read QQP: 404,276 pairs of questions with the same or different meanings.

    GLUE's test file has no labels: as in the papers, validation and test are random halves of its dev
    file.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      official_test: Whether validation and test are the dev and the test file, for copies whose test
        file has labels.
      max_malformed: Largest fraction of malformed rows.

    References:
      Wang et al., 2018 (GLUE), arXiv:1804.07461.
    """
    file_split = _file_split(split, official_test)
    source = locate(
        "qqp",
        split,
        data_dir,
        (
            f"QQP/{file_split}.tsv",
            *parquet_patterns("nyu-mll/glue", "qqp", _HUB_SPLITS[file_split]),
        ),
        "QQP",
        "Get QQP-clean.zip of gluebenchmark.com/tasks and unzip it to <data folder>/QQP/.",
        official_test=official_test,
    )
    table = Table("qqp", max_malformed)
    for row, first, second, label in _questions(table, source.path):
        if file_split == "test" and label in ("", "-1"):
            raise ValueError(f"{source.path} has no labels: load qqp without official_test")
        # Written as csv by Quora and again by those who split it, so text may be quoted twice.
        _add(table, row, unquote(unquote(first)), unquote(unquote(second)), label, _PARAPHRASE)
    return finish(table, split, source, _PARAPHRASE_NAMES, ROWS["qqp"][file_split])


def _questions(table: Table, path: pathlib.Path) -> Iterator[tuple[Row, str, str, str]]:
    """Yield rows, questions and labels as texts; the test file of GLUE has no labels."""
    if path.suffix == ".parquet":
        for row, values in table.read_parquet(path, ("question1", "question2", "label")):
            first, second, label = map(str, values)
            yield row, first, second, label
        return
    for row in table.read(path, header="question1\t"):
        cells = row.text.split("\t")
        if len(cells) == 3 and path.stem == "test":
            yield row, cells[1], cells[2], ""
        elif len(cells) != 6:
            table.malformed(row, f"{len(cells)} of 6 columns")
        else:
            yield row, cells[3], cells[4], cells[5]


def twitter_ppdb(
    split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.2
) -> Dataset:
    """Read TwitterPPDB: 51,524 pairs of tweets with the same link, labeled by six people.

    The shifted set of `qqp`. A pair is a paraphrase with four or more votes and not one with two or
    fewer; pairs with three votes are left out and not among the 51,524. There is no dev file:
    validation and test are random halves of the test file, 10,370 lines. The default of `max_malformed`
    is larger than elsewhere, because many lines of Desai and Durrett's file contain no pair. The files
    are not available to the tests.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Lan et al., 2017, arXiv:1708.00391.
    """
    file_split = "train" if split == "train" else "test"
    file = f"Twitter_URL_Corpus_{file_split}.txt"
    source = locate(
        "twitter_ppdb",
        split,
        data_dir,
        (f"TwitterPPDB/{file}", f"paraphrase_dataset_emnlp2017/{file}"),
        "TwitterPPDB",
        f"Get {file} from languagenet.github.io and put it in <data folder>/TwitterPPDB/.",
    )
    table = Table("twitter_ppdb", max_malformed)
    for row in table.read(source.path):
        cells = row.text.split("\t")
        votes = _VOTES.fullmatch(cells[2].strip()) if len(cells) > 2 else None
        if not row.text.strip():
            table.malformed(row, "blank")
        elif len(cells) < 3:
            table.malformed(row, f"{len(cells)} of 3 columns")
        elif not votes:
            table.malformed(row, f"votes {cells[2][:20]!r}")
        elif votes[1] == "3":
            table.leave_out(row, "have three votes of six")
        else:
            _add(table, row, cells[0], cells[1], "01"[votes[1] > "3"], _PARAPHRASE)
    if split == "train":
        return table.dataset(split, _PARAPHRASE_NAMES, kept=TWITTER_PPDB_PAIRS["train"])
    return finish(table, split, source, _PARAPHRASE_NAMES, ROWS["twitter_ppdb"]["test"])


def msrp(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    num_val: int = 408,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read MSRP: 4,076 + 1,725 pairs of sentences from the news.

    Microsoft's paraphrase corpus; the papers do not use it. Validation is the first `num_val` training
    pairs in the order of numpy's `default_rng(0).permutation`.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      num_val: Number of validation pairs; the default is that of GLUE.
      max_malformed: Largest fraction of malformed rows.

    References:
      Dolan and Brockett, 2005, Third International Workshop on Paraphrasing.
    """
    file_split = "test" if split == "test" else "train"
    file = f"msr_paraphrase_{file_split}.txt"
    path = find(
        "msrp",
        data_dir,
        (f"MSRParaphraseCorpus/{file}", f"MRPC/{file}"),
        f"Get {file} of Microsoft's Research Paraphrase Corpus (microsoft.com/download, id 52398) "
        "and put it in <data folder>/MSRParaphraseCorpus/.",
    )
    table = Table("msrp", max_malformed)
    _read_tsv(table, path, _Columns(3, 4, 0, 5), "Quality\t", _PARAPHRASE)
    dataset = table.dataset(split, _PARAPHRASE_NAMES, ROWS["msrp"][file_split])
    return with_ids(dataset, split_positions("msrp", split, table.num_rows, num_val))


def _file_split(split: str, official_test: bool) -> str:
    """Return the name of the published file that contains a split."""
    if split == "test" and official_test:
        return "test"
    return "train" if split == "train" else "dev"


def _inference(
    name: str,
    split: str,
    source: Source,
    columns: _Columns,
    expected: int,
    max_malformed: float,
) -> Dataset:
    table = Table(name, max_malformed)
    if source.path.suffix == ".parquet":
        for row, cells in table.read_parquet(source.path, ("premise", "hypothesis", "label")):
            first, second, number = cells
            label = _HUB_INFERENCE.get(number, number) if isinstance(number, int) else number
            _add(table, row, first, second, label, _INFERENCE)
    elif source.path.suffix == ".jsonl":
        for row in table.read(source.path):
            fields = json_fields(table, row, ("sentence1", "sentence2", "gold_label"))
            if fields:
                first, second, label = fields
                _add(table, row, first, second, label, _INFERENCE)
    else:
        _read_tsv(table, source.path, columns, "gold_label", _INFERENCE)
    return finish(table, split, source, tuple(_INFERENCE), expected)


def _read_tsv(
    table: Table, path: pathlib.Path, columns: _Columns, header: str, labels: Mapping[str, int]
) -> None:
    """Read tab-separated sentences, in which quotes are part of the text."""
    least = columns.number or columns.second + 2
    for row in table.read(path, header=header):
        cells = row.text.split("\t")
        if len(cells) < least or (columns.number and len(cells) > least):
            table.malformed(row, f"{len(cells)} of {least} columns")
            continue
        first, second, label = (cells[i] for i in (columns.first, columns.second, columns.label))
        _add(table, row, first, second, label, labels)


def _add(
    table: Table, row: Row, first: object, second: object, label: object, labels: Mapping[str, int]
) -> None:
    """Add a pair to the table, or count it as malformed with the reason."""
    if label == "-":
        table.leave_out(row, "have no majority label")
    elif not isinstance(label, str) or label not in labels:
        table.malformed(row, f"label {str(label)[:20]!r}")
    elif not isinstance(first, str) or not isinstance(second, str):
        table.malformed(row, "no sentence")
    elif not first.strip() or not second.strip():
        table.malformed(row, "empty sentence")
    else:
        table.add(row, labels[label], text=first.strip(), pair=second.strip())
