import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from calib_jax import data
from calib_jax.data import _text

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A tokenizer of four letters in the layout of BERT's."""
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    path = tmp_path / "tokenizer"
    path.mkdir()
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 64,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def _texts(*texts: str, pairs: tuple[str, ...] = ()) -> data.Dataset:
    columns = {"text": texts} | ({"pair": pairs} if pairs else {})
    n = len(texts)
    return data.Dataset(
        name="letters",
        split="train",
        inputs={key: np.array(column, object) for key, column in columns.items()},
        labels=np.arange(n, dtype=np.int32) % 2,
        ids=np.arange(n, dtype=np.int32),
        label_names=("x", "y"),
        notes=("before",),
    )


def test_ids_masks_and_length(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dataset = _texts("a b", "c d a b c d a b c", "d")
    result = data.tokenize(dataset, folder, max_length=32, cache_dir=tmp_path / "cache")
    ids, mask = result.inputs["input_ids"], result.inputs["mask"]
    assert ids.shape == mask.shape == (3, 16)  # 11 tokens, rounded up to a multiple of 8
    assert ids.dtype == mask.dtype == np.int32
    np.testing.assert_array_equal(ids[0], [2, 4, 5, 3] + [0] * 12)
    np.testing.assert_array_equal(mask.sum(axis=1), [4, 11, 3])
    np.testing.assert_array_equal(mask[2], [1] * 3 + [0] * 13)
    np.testing.assert_array_equal(result.labels, dataset.labels)
    assert result.notes == ("before",)


def test_pairs_have_token_types(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dataset = _texts("a b", "c", pairs=("d", "a a"))
    result = data.tokenize(dataset, folder, max_length=12, cache_dir=tmp_path)
    np.testing.assert_array_equal(
        result.inputs["input_ids"], [[2, 4, 5, 3, 7, 3, 0, 0], [2, 6, 3, 4, 4, 3, 0, 0]]
    )
    np.testing.assert_array_equal(
        result.inputs["token_type_ids"], [[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0, 0]]
    )


def _choices(texts: list[str], choices: list[list[str]]) -> data.Dataset:
    inputs = {"text": np.array(texts, object), "choices": np.array(choices, object)}
    return dataclasses.replace(_texts(*texts), inputs=inputs)


def test_every_choice_makes_a_pair_with_its_text(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    dataset = _choices(["a b", "c"], [["d", "a a", "b"], ["c d", "d", "a b c d a b"]])
    result = data.tokenize(dataset, folder, max_length=12, cache_dir=tmp_path)
    assert {key: rows.shape for key, rows in result.inputs.items()} == dict.fromkeys(
        ("input_ids", "mask", "token_type_ids"), (2, 3, 12)
    )
    assert all(rows.dtype == np.int32 for rows in result.inputs.values())
    np.testing.assert_array_equal(result.inputs["input_ids"][0, 1, :8], [2, 4, 5, 3, 4, 4, 3, 0])
    np.testing.assert_array_equal(
        result.inputs["token_type_ids"][0, 1, :8], [0, 0, 0, 0, 1, 1, 1, 0]
    )
    np.testing.assert_array_equal(result.inputs["mask"].sum(axis=2), [[6, 7, 6], [6, 5, 10]])
    # Choice by choice it is what pairs give.
    for choice in range(3):
        column = tuple(dataset.inputs["choices"][:, choice])
        pairs = data.tokenize(
            _texts("a b", "c", pairs=column), folder, max_length=12, cache_dir=tmp_path
        )
        for key, rows in pairs.inputs.items():
            length = rows.shape[1]
            np.testing.assert_array_equal(result.inputs[key][:, choice, :length], rows)
            assert not result.inputs[key][:, choice, length:].any()  # padding is 0 here
    np.testing.assert_array_equal(result.labels, dataset.labels)
    part = result.take([1])
    np.testing.assert_array_equal(part.inputs["mask"].sum(axis=2), [[6, 5, 10]])


def test_long_choices_are_cut_and_counted(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dataset = _choices(["a b", "c"], [["d", "a b c d"], ["c", "d"]])
    result = data.tokenize(dataset, folder, max_length=6, cache_dir=tmp_path)
    assert result.inputs["input_ids"].shape == (2, 2, 6)
    assert result.notes == ("before", "1 of 4 texts are longer than 6 tokens: cut")
    again = data.tokenize(dataset, folder, max_length=6, cache_dir=tmp_path)
    np.testing.assert_array_equal(again.inputs["input_ids"], result.inputs["input_ids"])
    assert len(list(tmp_path.glob("tokens_*.npz"))) == 1


def test_no_texts_are_no_tokens(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    nothing = np.zeros(0, int)
    for dataset, shape in ((_texts("a"), (0, 8)), (_choices(["a"], [["b", "c"]]), (0, 2, 8))):
        none = data.tokenize(dataset.take(nothing), folder, max_length=16, cache_dir=tmp_path)
        assert none.inputs["input_ids"].shape == shape


def test_long_texts_are_cut_and_counted(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dataset = _texts("a b c d a b", "a", "a b c d")
    result = data.tokenize(dataset, folder, max_length=6, cache_dir=tmp_path)
    np.testing.assert_array_equal(
        result.inputs["input_ids"], [[2, 4, 5, 6, 7, 3], [2, 4, 3, 0, 0, 0], [2, 4, 5, 6, 7, 3]]
    )
    expected = ("before", "1 of 3 texts are longer than 6 tokens: cut")
    assert result.notes == expected
    again = data.tokenize(dataset, folder, max_length=6, cache_dir=tmp_path)
    assert again.notes == expected  # the cache remembers


def test_chunks_do_not_show(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = _texts(*["a b c", "d", "c c c c c c c"] * 5)
    whole = data.tokenize(dataset, folder, max_length=8, cache_dir=tmp_path / "1")
    monkeypatch.setattr(_text, "_CHUNK", 4)
    parts = data.tokenize(dataset, folder, max_length=8, cache_dir=tmp_path / "2")
    for key, rows in whole.inputs.items():
        np.testing.assert_array_equal(parts.inputs[key], rows)
    assert whole.notes == parts.notes
    assert "5 of 15 texts" in whole.notes[1]


def test_the_second_run_reads_the_cache(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    dataset = _texts("a b", "c")
    first = data.tokenize(dataset, folder, max_length=8, cache_dir=cache)
    assert [path.suffix for path in cache.iterdir()] == [".npz"]

    def no_encoding(*_: object) -> None:
        raise AssertionError("tokenized again")

    monkeypatch.setattr(_text.Tokenizer, "encode", no_encoding)
    second = data.tokenize(dataset, folder, max_length=8, cache_dir=cache)
    for key, rows in first.inputs.items():
        np.testing.assert_array_equal(second.inputs[key], rows)
    # Labels, ids and notes are not in the cache: they are the set's own.
    other = dataclasses.replace(dataset, notes=("other",), ids=dataset.ids + 5)
    assert data.tokenize(other, folder, max_length=8, cache_dir=cache).notes == ("other",)

    for changed in (
        _texts("a b", "d"),
        _texts("a", "b c"),  # the same letters, cut elsewhere
        _texts("a b", "c", pairs=("a", "b")),
    ):
        with pytest.raises(AssertionError, match="tokenized again"):
            data.tokenize(changed, folder, max_length=8, cache_dir=cache)
    with pytest.raises(AssertionError, match="tokenized again"):
        data.tokenize(dataset, folder, max_length=7, cache_dir=cache)
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text() + " ")
    with pytest.raises(AssertionError, match="tokenized again"):
        data.tokenize(dataset, folder, max_length=8, cache_dir=cache)


def test_a_failed_write_leaves_nothing(
    folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        data.tokenize(_texts("a"), folder, max_length=8, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_cache_is_named(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    data.tokenize(_texts("a"), folder, max_length=8, cache_dir=cache)
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=rf"{path}: damaged .*delete it"):
        data.tokenize(_texts("a"), folder, max_length=8, cache_dir=cache)


@pytest.mark.parametrize("max_length", [0, 65])
def test_lengths_the_model_cannot_read(
    folder: pathlib.Path, tmp_path: pathlib.Path, max_length: int
) -> None:
    with pytest.raises(ValueError, match=f"max_length={max_length}: expected 1 to 64"):
        data.tokenize(_texts("a"), folder, max_length=max_length, cache_dir=tmp_path)


def test_a_vocabulary_that_knows_nothing_is_refused(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ValueError, match="knows fewer than half of the words"):
        data.tokenize(_texts("x y z v w"), folder, max_length=16, cache_dir=tmp_path)


def test_folders_that_are_no_tokenizer(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"expected tokenizer.json or vocabulary files"):
        data.tokenize(_texts("a"), tmp_path, max_length=8, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"digits has no text to tokenize, only \['image'\]"):
        data.tokenize(data.load("digits", "val"), folder, max_length=8, cache_dir=tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="names no padding token"):
        data.tokenize(_texts("a"), folder, max_length=8, cache_dir=tmp_path)


def test_nothing_is_said_about_pytorch(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # In a process of its own, where torch cannot be found and transformers is not yet imported.
    code = f"""
import sys, importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "torch" else find(name, *a)
import numpy as np
from calib_jax import data
dataset = data.Dataset("x", "train", {{"text": np.array(["a b"], object)}},
                       np.zeros(1, np.int32), np.zeros(1, np.int32), ("a", "b"))
data.tokenize(dataset, {str(folder)!r}, max_length=8, cache_dir={str(tmp_path)!r})
import transformers
assert not transformers.is_torch_available()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
