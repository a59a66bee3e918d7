"""The readers on the publishers' own files (see the `data_dir` fixture)."""

import pathlib

import numpy as np
import pytest

from calib_jax import data


def _need(data_dir: pathlib.Path, path: str) -> pathlib.Path:
    if not (data_dir / path).exists():
        pytest.skip(f"needs {path} in CALIB_JAX_DATA")
    return data_dir


def test_cifar10(data_dir: pathlib.Path) -> None:
    _need(data_dir, "cifar-10-batches-bin/data_batch_1.bin")
    train, val, test = (data.load("cifar10", s, data_dir) for s in ("train", "val", "test"))
    assert len(np.union1d(train.ids, val.ids)) == len(train) + len(val)
    assert (len(train) + len(val)) % 10_000 == 0
    assert (len(val), len(test)) == (5_000, 10_000)
    assert test.label_names[:3] == ("airplane", "automobile", "bird")
    np.testing.assert_array_equal(np.bincount(test.labels), [1000] * 10)
    # Channels in their order: over the training images the means are the published ones.
    mean = train.inputs["image"].mean(axis=(0, 1, 2), dtype=np.float64) / 255
    np.testing.assert_allclose(mean, train.mean, atol=0.003)


def test_svhn(data_dir: pathlib.Path) -> None:
    _need(data_dir, "svhn/test_32x32.mat")
    test = data.load("svhn", "test", data_dir)
    assert test.inputs["image"].shape[1:] == (32, 32, 3)
    assert set(test.labels) == set(range(10))
    assert (
        np.argmax(np.bincount(test.labels)) == 1
    )  # house numbers begin with 1 more often than not
    # A digit is a shape, not noise: neighbouring pixels are alike.
    images = test.inputs["image"].astype(np.float32)
    assert np.abs(np.diff(images, axis=2)).mean() < 0.2 * images.std()


def test_newsgroups(data_dir: pathlib.Path) -> None:
    _need(data_dir, "20news-bydate-train")
    splits = [data.load("newsgroups", s, data_dir) for s in ("train", "val", "test")]
    assert [len(d) for d in splits] == [14_177, 900, 3_769]
    assert len(np.unique(np.concatenate([d.ids for d in splits]))) == 18_846
    assert splits[0].num_classes == 20
    assert not any("malformed" in note for d in splits for note in d.notes)
    late = data.load("newsgroups", "test", data_dir, by_date=True)
    assert (len(late), late.ids.min()) == (7_532, 11_314)
    # The same id is the same post, however they are split.
    both, here, there = np.intersect1d(splits[2].ids, late.ids, return_indices=True)
    assert len(both) > 1000
    np.testing.assert_array_equal(splits[2].inputs["text"][here], late.inputs["text"][there])
    np.testing.assert_array_equal(splits[2].labels[here], late.labels[there])


def test_glove(data_dir: pathlib.Path) -> None:
    _need(data_dir, "20news-bydate-train")
    path = _need(data_dir, "glove") / "glove/glove_6B_50d_top60k_fp16.npz"
    glove = data.read_glove(path)
    assert glove.vectors.shape == (60_001, 50)

    def similarity(a: str, b: str) -> float:
        x, y = glove.vectors[glove.rows[a]], glove.vectors[glove.rows[b]]
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    assert similarity("king", "queen") > 0.7 > 0.4 > similarity("king", "carburetor")
    val = data.load("newsgroups", "val", data_dir)
    small = glove.most_frequent(val, 5_000)
    result, vectors = data.word_ids(val, small, max_length=200)
    assert vectors.shape == (5_001, 50)
    ids = result.inputs["input_ids"]
    assert ids.max() <= 5_000
    # Padding is on the left: once a word has come, all that follow are words.
    assert np.all(np.diff((ids > 0).astype(int), axis=1) >= 0)


def test_tokenize(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder = _need(data_dir, "models/roberta-30m/tokenizer.json") / "models/roberta-30m"
    dataset = data.Dataset(
        name="pairs",
        split="test",
        inputs={
            "text": np.array(["Hello world", "An unbelievably long one " * 40], object),
            "pair": np.array(["Good morning", "Short"], object),
        },
        labels=np.zeros(2, np.int32),
        ids=np.arange(2, dtype=np.int32),
        label_names=("no", "yes"),
    )
    result = data.tokenize(dataset, folder, max_length=64, cache_dir=tmp_path)
    assert set(result.inputs) == {"input_ids", "mask"}  # RoBERTa has no token types
    first, second = result.inputs["input_ids"]
    assert list(first[:5]) == [0, 31414, 232, 2, 2]  # <s> Hello world </s> </s>
    assert list(result.inputs["mask"].sum(axis=1)) == [8, 64]
    assert (first[7], second[63]) == (2, 2)
    assert (first[8:] == 1).all()
    assert result.notes == ("1 of 2 texts are longer than 64 tokens: cut",)
