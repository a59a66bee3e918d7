import pathlib

import numpy as np
import pytest

from calib_jax import data

HEADER = "From: a@b\nSubject: re\n\n"


@pytest.fixture
def posts(tmp_path: pathlib.Path) -> pathlib.Path:
    """200 posts of two groups, 120 of them early; the text of a post is its place."""
    place = 0
    for part, count in (("train", 60), ("test", 40)):
        for group in ("alt.a", "sci.b"):
            folder = tmp_path / f"20news-bydate-{part}" / group
            folder.mkdir(parents=True)
            for i in range(count):
                (folder / f"{10_000 + i}").write_bytes(f"{HEADER}{place}\n\nend".encode())
                place += 1
    return tmp_path


def _places(dataset: data.Dataset) -> list[int]:
    return [int(text.split()[0]) for text in dataset.inputs["text"]]


def test_posts_are_split_at_random(posts: pathlib.Path) -> None:
    splits = {s: data.load("newsgroups", s, posts, num_val=30) for s in ("train", "val", "test")}
    assert [len(d) for d in splits.values()] == [130, 30, 40]
    order = np.random.default_rng(0).permutation(200)
    np.testing.assert_array_equal(splits["test"].ids, order[160:])
    np.testing.assert_array_equal(splits["val"].ids, order[130:160])
    np.testing.assert_array_equal(splits["train"].ids, order[:130])
    for dataset in splits.values():
        assert _places(dataset) == list(dataset.ids)
        late, second = dataset.ids >= 120, (dataset.ids >= 60) & (dataset.ids < 120)
        np.testing.assert_array_equal(dataset.labels, second | (late & (dataset.ids >= 160)))
        assert dataset.label_names == ("alt.a", "sci.b")
    assert splits["test"].notes == (
        "not the complete set: 120 of 11314 train posts",
        "not the complete set: 80 of 7532 test posts",
    )


def test_posts_are_split_by_date(posts: pathlib.Path) -> None:
    splits = {
        s: data.load("newsgroups", s, posts, by_date=True, num_val=30)
        for s in ("train", "val", "test")
    }
    np.testing.assert_array_equal(splits["test"].ids, np.arange(120, 200))
    np.testing.assert_array_equal(splits["val"].ids, np.random.default_rng(0).permutation(120)[:30])
    assert sorted([*splits["train"].ids, *splits["val"].ids]) == list(range(120))
    for dataset in splits.values():
        assert _places(dataset) == list(dataset.ids)
    with pytest.raises(ValueError, match="newsgroups: num_val=900: expected 1 to 119"):
        data.load("newsgroups", "val", posts, by_date=True)


def test_headers_go_and_latin_letters_stay(posts: pathlib.Path) -> None:
    path = posts / "20news-bydate-test/alt.a/10000"
    path.write_bytes(b"From: a\r\nX: y\r\n\r\ncaf\xe9\r\n\r\nmore")
    test = data.load("newsgroups", "test", posts, by_date=True)
    assert test.inputs["text"][0] == "café\n\nmore"


def test_malformed_and_empty_posts(posts: pathlib.Path) -> None:
    (posts / "20news-bydate-test/alt.a/10003").write_text("no header at all\n")
    (posts / "20news-bydate-test/alt.a/10004").write_text(HEADER + " \n")
    test = data.load("newsgroups", "test", posts, by_date=True)
    assert 123 not in test.ids
    assert 124 in test.ids
    assert test.notes[:2] == (
        "1 of 200 rows are malformed: alt.a/10003:1 (no blank line after the header); left out",
        "1 of 79 posts are empty without their header; kept",
    )
    with pytest.raises(ValueError, match="1 of 200 rows are malformed"):
        data.load("newsgroups", "test", posts, max_malformed=0)


def test_half_a_set_is_refused(posts: pathlib.Path) -> None:
    (posts / "20news-bydate-test").rename(posts / "elsewhere")
    with pytest.raises(ValueError, match=r"no posts in .*20news-bydate-test. Get 20news-bydate"):
        data.load("newsgroups", "train", posts)


@pytest.mark.parametrize("folder", ["", "scikit_learn_data"])
def test_scikit_learns_pickle_is_never_opened(tmp_path: pathlib.Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "20news-bydate_py3.pkz").write_bytes(b"anything")
    with pytest.raises(ValueError, match=r"20news-bydate_py3.pkz is a pickle.*qwone.com"):
        data.load("newsgroups", "train", tmp_path)
