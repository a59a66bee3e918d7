"""GoEmotions: comments on Reddit, from the publisher's tsv files or the Hugging Face edition."""

import pathlib
import re
import unicodedata
from collections.abc import Iterator, Sequence

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._emotion import EKMAN, class_of_emotion
from calib_jax.data._files import find, lines
from calib_jax.data._records import parquet_patterns, read_shards
from calib_jax.data._rows import Row, Table, unquote

# The paper's table 5.
_GOEMOTIONS = {
    "anger": "anger annoyance disapproval",
    "disgust": "disgust",
    "fear": "fear nervousness",
    "joy": "joy relief gratitude approval admiration pride love desire caring optimism amusement "
    "excitement",
    "sadness": "sadness disappointment embarrassment grief remorse",
    "surprise": "surprise realization confusion curiosity",
}
# Joiner, variation selectors and skin tones, which modify the emoji before them.
_EMOJI_PARTS = frozenset("\u200d\ufe0e\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
_SPACE_BEFORE_MARK = re.compile(r" (?=[!?.,])")


def goemotions(
    split: str, data_dir: pathlib.Path | None, *, max_malformed: float = 0.01
) -> Dataset:
    """Read GoEmotions: 54,263 comments on Reddit with some of 27 emotions, grouped into Ekman's six.

    The label neutral is ignored; comments without another label, and those with emotions of several
    groups, are left out. Two comments are duplicates if they differ only in emojis, the amount of white
    space, or a space before a punctuation mark: the paper does not state its rule, and this one gives
    every number of its table 13, 27,963 / 3,524 / 3,533 comments in total. All comments that consist of
    emojis are therefore duplicates. The text of a comment is not changed.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      max_malformed: Largest fraction of malformed rows.

    References:
      Demszky et al., 2020, arXiv:2005.00547.
    """
    file_split = {"val": "dev"}.get(split, split)
    path = find(
        "goemotions",
        data_dir,
        (
            f"goemotions/{file_split}.tsv",
            f"goemotions/data/{file_split}.tsv",
            *parquet_patterns(
                "google-research-datasets/go_emotions",
                "simplified",
                {"val": "validation"}.get(split, split),
            ),
        ),
        f"Get {file_split}.tsv and emotions.txt from goemotions/data of github.com/google-research/"
        "google-research and put them in <data folder>/goemotions/.",
    )
    classes = class_of_emotion(_GOEMOTIONS, EKMAN)
    numbers = {str(i): classes.get(emotion) for i, emotion in enumerate(_emotions(path))}
    table = Table("goemotions", max_malformed)
    for row, text, labels in _comments(table, path):
        if not text or any(label not in numbers for label in labels):
            shown = ",".join(labels)[:20]
            table.malformed(row, f"label {shown!r}" if text else "empty text")
            continue
        classes_found = {c for label in labels if (c := numbers[label]) is not None}
        if len(classes_found) == 1:
            table.add_once(row, classes_found.pop(), text, _without_emojis(text))
        else:
            table.leave_out(row, "have several classes" if classes_found else "are neutral")
    return table.dataset(split, EKMAN, ROWS["goemotions"][split])


def _emotions(path: pathlib.Path) -> Sequence[str]:
    """Return the names of the labels."""
    if path.suffix == ".parquet":
        return read_shards(path, ("text", "labels"))[0].label_names.get("labels", ())
    return lines(path.with_name("emotions.txt"), "it names the labels")


def _comments(table: Table, path: pathlib.Path) -> Iterator[tuple[Row, str, list[str]]]:
    """Yield rows, texts and numbers of the labels."""
    if path.suffix == ".parquet":
        for row, (text, labels) in table.read_parquet(path, ("text", "labels")):
            numbers = [str(label) for label in labels] if isinstance(labels, list) else []
            yield row, str(text or "").strip(), numbers or [""]
        return
    for row in table.read(path):
        cells = row.text.split("\t")
        if len(cells) == 3:
            yield row, unquote(cells[0]).strip(), cells[1].split(",")
        else:
            table.malformed(row, f"{len(cells)} of 3 columns")


def _without_emojis(text: str) -> str:
    """Return the words and punctuation of a text, with no space before a punctuation mark."""
    kept = "".join(c for c in text if unicodedata.category(c) != "So" and c not in _EMOJI_PARTS)
    return _SPACE_BEFORE_MARK.sub("", " ".join(kept.split()))
