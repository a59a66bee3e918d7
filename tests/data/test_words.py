import dataclasses
import pathlib

import numpy as np
import pytest

from calib_jax import data
from calib_jax.data._words import split_words


def _texts(*texts: str) -> data.Dataset:
    n = len(texts)
    return data.Dataset(
        name="posts",
        split="train",
        inputs={"text": np.array(texts, object)},
        labels=np.zeros(n, np.int32),
        ids=np.arange(n, dtype=np.int32),
        label_names=("a", "b"),
        notes=("before",),
    )


@pytest.fixture
def glove(tmp_path: pathlib.Path) -> pathlib.Path:
    words = np.array([b"the", b"cat", b"caf\xc3\xa9", b"sat"])
    path = tmp_path / "glove.npz"
    np.savez(path, words=words, vectors=np.arange(8, dtype=np.float16).reshape(4, 2) + 1)
    return path


def test_words_are_lower_case_and_without_punctuation() -> None:
    assert split_words('The CAT\'s "mat", e-mail_x:\n\tCafé!') == [
        "the", "cat's", "mat", "e", "mail", "x", "café",
    ]  # fmt: skip


def test_glove_from_npz_and_from_text_agree(glove: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = tmp_path / "glove.6B.2d.txt"
    text.write_text("the 1 2\ncat 3.0 4\ncafé 5 6\nsat 7 8\n", encoding="utf-8")
    for path in (glove, text):
        vocabulary = data.read_glove(path)
        assert vocabulary.rows == {"the": 1, "cat": 2, "café": 3, "sat": 4}
        np.testing.assert_array_equal(
            vocabulary.vectors, np.vstack([[0, 0], np.arange(8).reshape(4, 2) + 1])
        )
        assert vocabulary.vectors.dtype == np.float32
        assert vocabulary.notes == ()


def test_glove_lines_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "glove.txt"
    good = [f"w{i} {i} 1" for i in range(200)]
    good[3], good[150] = "w3 1 x", "w150 1 2 3"
    path.write_text("\n".join(good))
    vocabulary = data.read_glove(path)
    assert len(vocabulary.rows) == 198
    assert vocabulary.rows["w4"] == 4  # 3 is gone, and no hole is left
    np.testing.assert_array_equal(vocabulary.vectors[4], [4, 1])
    assert "2 of 200 rows are malformed" in vocabulary.notes[0]
    assert "glove.txt:4 (not a number)" in vocabulary.notes[0]
    assert "glove.txt:151 (expected 2 numbers)" in vocabulary.notes[0]
    with pytest.raises(ValueError, match=r"glove: 2 of 200 rows .*max_malformed=0.001"):
        data.read_glove(path, max_malformed=0.001)


def test_glove_files_that_are_not(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"no file .*nothing.txt. Get glove.6B.zip"):
        data.read_glove(tmp_path / "nothing.txt")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match="no line holds a word"):
        data.read_glove(tmp_path / "empty.txt")
    np.savez(tmp_path / "a.npz", words=np.array([b"a"]), vectors=np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"1 words do not fit vectors \(2, 3\)"):
        data.read_glove(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", words=np.array(["a"], object), vectors=np.ones((1, 3)))
    with pytest.raises(ValueError, match="without pickled objects"):
        data.read_glove(tmp_path / "b.npz")


def test_ids_are_padded_and_cut_on_the_left(glove: pathlib.Path) -> None:
    dataset = _texts("The cat sat.", "dog", "the the sat CAT café")
    result, vectors = data.word_ids(dataset, glove, max_length=4)
    np.testing.assert_array_equal(
        result.inputs["input_ids"], [[0, 1, 2, 4], [0, 0, 0, 0], [1, 4, 2, 3]]
    )
    assert result.inputs["input_ids"].dtype == np.int32
    assert vectors.shape == (5, 2)
    assert result.notes == (
        "before",
        "11.1% of the words are outside the vocabulary: left out",
        "1 of 3 texts are longer than 4 words: cut",
    )


def test_the_most_frequent_words(glove: pathlib.Path) -> None:
    train = _texts("dog dog dog cat", "the the zebra apple the", "cat zebra")
    vocabulary = data.read_glove(glove).most_frequent(train, 4)
    assert vocabulary.rows == {"dog": 1, "the": 2, "cat": 3, "zebra": 4}
    np.testing.assert_array_equal(vocabulary.vectors, [[0, 0], [0, 0], [1, 2], [3, 4], [0, 0]])
    test = dataclasses.replace(_texts("sat the dog"), split="test")
    test, vectors = data.word_ids(test, vocabulary, max_length=3)
    np.testing.assert_array_equal(test.inputs["input_ids"], [[0, 2, 1]])
    assert vectors is vocabulary.vectors
    note = "2 of the 4 words of the vocabulary have a vector"
    assert note not in test.notes
    assert note in data.word_ids(train, vocabulary, max_length=3)[0].notes


def test_images_have_no_words(glove: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"digits has no text, only \['image'\]"):
        data.word_ids(data.load("digits", "val"), glove, max_length=4)


def test_words_without_vectors() -> None:
    vocabulary = data.Vocabulary().most_frequent(_texts("the cat", "the dog"), 2)
    assert vocabulary.rows == {"the": 1, "cat": 2}
    assert vocabulary.vectors.shape == (3, 0)
    assert vocabulary.notes == ("a vector is learned for each of the 2 words of the vocabulary",)
    ids, _ = data.word_ids(_texts("the dog the cat"), vocabulary, max_length=3)
    np.testing.assert_array_equal(ids.inputs["input_ids"], [[1, 1, 2]])


def test_pairs_have_no_separator() -> None:
    dataset = _texts("a", "b")
    pairs = dataclasses.replace(dataset, inputs=dataset.inputs | {"pair": dataset.inputs["text"]})
    with pytest.raises(ValueError, match="has text and pair: expected single texts"):
        data.word_ids(pairs, data.Vocabulary(), max_length=3)
