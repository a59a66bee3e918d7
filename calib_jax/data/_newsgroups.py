"""20 Newsgroups from the publisher's by-date folders."""

import os
import pathlib

import numpy as np

from calib_jax.data._counts import ROWS
from calib_jax.data._dataset import Dataset
from calib_jax.data._files import Malformed, find, official, split_positions

_PICKLE = "20news-bydate_py3.pkz"  # scikit-learn's cache
_HOW = (
    "Get 20news-bydate.tar.gz from qwone.com/~jason/20Newsgroups and unpack it, so that "
    "20news-bydate-train/ and 20news-bydate-test/ lie in the data folder."
)


def newsgroups(
    split: str,
    data_dir: pathlib.Path | None,
    *,
    by_date: bool = False,
    num_val: int = 900,
    max_malformed: float = 0.01,
) -> Dataset:
    """Read 20 Newsgroups: 18,846 posts to twenty newsgroups, without their headers.

    As in the papers, all posts are shuffled (numpy's `default_rng(0).permutation`): the last 20 % are
    the test split, the `num_val` before them validation, the rest training. With `by_date` the test
    split is the publisher's, of later posts, and validation the first `num_val` of its training posts
    in the order of `default_rng(0).permutation`: a shift in time that validation does not show. An id
    is a post's position among all posts, train folder first, whatever the split.

    Args:
      split: `'train'`, `'val'` or `'test'`.
      data_dir: Data folder.
      by_date: Whether the test split is the publisher's, by date.
      num_val: Number of validation posts.
      max_malformed: Largest fraction of malformed posts.

    References:
      Lang, 1995, ICML.
    """
    path = _find(data_dir)
    malformed = Malformed("newsgroups", max_malformed)
    texts: list[str | None] = []
    groups: list[str] = []
    count = {}
    for folder_split in ("train", "test"):
        folder = path.parent / f"20news-bydate-{folder_split}"
        posts = sorted(folder.glob("*/*"))
        if not posts:
            raise ValueError(f"newsgroups: there are no posts in {folder}. {_HOW}")
        texts += [_body(post, malformed) for post in posts]
        groups += [post.parent.name for post in posts]
        count[folder_split] = len(posts)

    n = len(texts)
    drawn = _by_date(split, count, num_val) if by_date else _at_random(split, n, num_val)
    positions = np.array([i for i in drawn if texts[i] is not None], np.int64)
    names = tuple(sorted(set(groups)))
    classes = {name: label for label, name in enumerate(names)}
    empty = sum(not str(texts[i]).strip() for i in positions)
    notes = malformed.notes(n)
    if empty:
        notes += (f"{empty} of {len(positions)} posts are empty without their header; kept",)
    for folder_split, expected in ROWS["newsgroups"].items():
        notes += official(f"{folder_split} posts", count[folder_split], expected)
    return Dataset(
        name="newsgroups",
        split=split,
        inputs={"text": np.array([texts[i] for i in positions], object)},
        labels=np.array([classes[groups[i]] for i in positions], np.int32),
        ids=positions.astype(np.int32),
        label_names=names,
        notes=notes,
    )


def _find(data_dir: pathlib.Path | None) -> pathlib.Path:
    """Return the folder with the publisher's training posts."""
    home = os.path.expanduser("~/scikit_learn_data")
    path = find(
        "newsgroups",
        data_dir,
        (
            "20news-bydate-train",
            "20news-bydate/20news-bydate-train",
            "20newsgroups/20news-bydate-train",
            "20news_home/20news-bydate-train",  # where scikit-learn unpacks
            _PICKLE,
            f"scikit_learn_data/{_PICKLE}",
            f"{home}/{_PICKLE}",
        ),
        _HOW,
    )
    if path.name == _PICKLE:
        raise ValueError(
            f"newsgroups: {path} is a pickle, which can run any program when it is opened, "
            f"so it is not. {_HOW}"
        )
    return path


def _by_date(split: str, count: dict[str, int], num_val: int) -> np.ndarray:
    """Return the positions of a split of the publisher's train and test posts."""
    if split == "test":
        return count["train"] + np.arange(count["test"])
    return split_positions("newsgroups", split, count["train"], num_val)


def _at_random(split: str, n: int, num_val: int) -> np.ndarray:
    """Return the positions of a split of all posts."""
    rest, test = np.split(np.random.default_rng(0).permutation(n), [n - n // 5])
    if split == "test":
        return test
    # Validation is the end of the rest; rotated to the front, where split_positions takes it.
    return split_positions("newsgroups", split, len(rest), num_val, np.roll(rest, num_val))


def _body(path: pathlib.Path, malformed: Malformed) -> str | None:
    """Return the text after the header, which ends at the first blank line."""
    _, blank, body = path.read_text(encoding="latin-1").partition("\n\n")
    if not blank:
        malformed.add(path, 1, "no blank line after the header")
        return None
    return body
