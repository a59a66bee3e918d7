import json
import pathlib
from typing import Any

import numpy as np
import pytest

from calib_jax import data

NLI = ("entailment", "contradiction", "neutral")


def _write(path: pathlib.Path, lines: list[str], end: str = "\n") -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def _jsonl(path: pathlib.Path, records: list[dict[str, Any]]) -> pathlib.Path:
    return _write(path, [json.dumps(record) for record in records])


def _nli(n: int, first: int = 0) -> list[dict[str, Any]]:
    """Pairs "first i", "second i" with labels in turn."""
    return [
        {
            "gold_label": NLI[i % 3],
            "sentence1": f"first {i}",
            "sentence2": f"second {i}",
            "genre": "x",
        }
        for i in range(first, first + n)
    ]


def _glue(records: list[dict[str, Any]], before: int) -> list[str]:
    """GLUE's columns: `before` of no interest, the sentences, an annotator's label, the label."""
    header = [*(f"c{i}" for i in range(before)), "sentence1", "sentence2", "label1", "gold_label"]
    rows = [
        [*("-" * before), r["sentence1"], r["sentence2"], "neutral", r["gold_label"]]
        for r in records
    ]
    return ["\t".join(row) for row in [header, *rows]]


def _numbers(dataset: data.Dataset) -> list[int]:
    return [int(text.split()[-1]) for text in dataset.inputs["text"]]


# ---- inference


def test_snli_is_read_as_published(tmp_path: pathlib.Path) -> None:
    dev = _nli(12)
    dev[7]["gold_label"] = "-"
    _jsonl(tmp_path / "snli_1.0/snli_1.0_train.jsonl", _nli(5, first=100))
    _jsonl(tmp_path / "snli_1.0/snli_1.0_dev.jsonl", dev)
    _jsonl(tmp_path / "snli_1.0/snli_1.0_test.jsonl", _nli(4, first=200))
    train, val, test = (data.load("snli", s, tmp_path) for s in ("train", "val", "test"))
    assert train.label_names == NLI
    assert list(train.labels) == [1, 2, 0, 1, 2]
    assert list(train.inputs["pair"]) == [f"second {i}" for i in range(100, 105)]
    assert train.notes == ("not the complete set: 5 of 549367 rows",)
    assert (train.labels.dtype, train.ids.dtype) == (np.int32, np.int32)
    # Halves of the dev file: each row in one, but for that without a label.
    order = np.random.default_rng(0).permutation(12)
    assert list(val.ids) == sorted(set(order[:6]) - {7})
    assert list(test.ids) == sorted(set(order[6:]) - {7})
    for half in (val, test):
        assert _numbers(half) == list(half.ids)
        np.testing.assert_array_equal(half.labels, half.ids % 3)
        assert half.notes[0] == (
            "1 of 12 rows have no majority label: snli_1.0/snli_1.0_dev.jsonl:8; left out"
        )
    # Or the files as they are.
    val, test = (data.load("snli", s, tmp_path, official_test=True) for s in ("val", "test"))
    assert (len(val), _numbers(test)) == (11, [200, 201, 202, 203])


@pytest.mark.parametrize(("name", "before"), [("snli", 7), ("mnli", 8)])
def test_glue_and_desai_durrett_have_the_same_pairs(
    name: str, before: int, tmp_path: pathlib.Path
) -> None:
    train, dev, test = _nli(6), _nli(4, first=50), _nli(3, first=90)
    train[2]["sentence1"] = '"an open quote 2'  # spoils nothing: quotes are text here
    train[3]["sentence2"] = "another line\u2028ends \x0c here"
    folder = tmp_path / "a/calibration_data" / name.upper()
    for file, records in (("train", train), ("dev", dev), ("test", test)):
        _write(folder / f"{file}.txt", _glue(records, before))
    splits = {s: data.load(name, s, tmp_path / "a") for s in ("train", "val", "test")}
    assert list(splits["train"].inputs["text"]) == [r["sentence1"] for r in train]
    assert list(splits["train"].inputs["pair"]) == [r["sentence2"] for r in train]
    assert list(splits["train"].labels) == [0, 1, 2, 0, 1, 2]
    # Its dev and test files are halves already.
    assert _numbers(splits["val"]) == [50, 51, 52, 53]
    assert _numbers(splits["test"]) == [90, 91, 92]
    assert splits["val"].notes == (
        f"not the complete set: 4 of {4921 if name == 'snli' else 4907} rows",
    )
    # GLUE's dev file is not, and the publisher's files go before the archive's.
    dev_file = "dev" if name == "snli" else "dev_matched"
    _write(tmp_path / f"a/{name.upper()}/{dev_file}.tsv", _glue(dev, before))
    halves = [data.load(name, s, tmp_path / "a") for s in ("val", "test")]
    assert sorted(_numbers(halves[0]) + _numbers(halves[1])) == [50, 51, 52, 53]
    assert [len(half) for half in halves] == [2, 2]


def test_malformed_pairs_are_counted(tmp_path: pathlib.Path) -> None:
    rows = [json.dumps(record) for record in _nli(500)]
    rows[10] = rows[10][:-5]
    rows[20] = json.dumps({"gold_label": "neutral", "sentence1": "a"})
    rows[30] = json.dumps({"gold_label": "perhaps", "sentence1": "a", "sentence2": "b"})
    rows[40] = json.dumps({"gold_label": "neutral", "sentence1": "a", "sentence2": " "})
    path = _write(tmp_path / "multinli_1.0/multinli_1.0_train.jsonl", rows)
    path.write_bytes(path.read_bytes() + b'{"gold_label": "neutral", "sentence1": "\xff"}\n\n')
    train = data.load("mnli", "train", tmp_path, max_malformed=0.02)
    assert set(range(500)) - set(train.ids) == {10, 20, 30, 40}
    where = "multinli_1.0/multinli_1.0_train.jsonl"
    assert train.notes[0] == (
        f"6 of 502 rows are malformed: {where}:11 (not JSON), {where}:21 (no sentence2), "
        f"{where}:31 (label 'perhaps'), {where}:41 (empty sentence), {where}:501 (not UTF-8), …; "
        "left out"
    )
    with pytest.raises(ValueError, match=r"6 of 502 rows are malformed.*max_malformed=0.01"):
        data.load("mnli", "train", tmp_path)


def test_a_file_without_an_example_is_refused(tmp_path: pathlib.Path) -> None:
    path = _write(tmp_path / "snli_1.0/snli_1.0_train.jsonl", [])
    with pytest.raises(ValueError, match=r"none of the 0 rows can be used; .*0 of 549367"):
        data.load("snli", "train", tmp_path)
    _jsonl(path, [{"gold_label": "-", "sentence1": "a", "sentence2": "b"}])
    with pytest.raises(ValueError, match=r"none of the 1 rows.*no majority label"):
        data.load("snli", "train", tmp_path)


# ---- paraphrase

QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"


def test_quotes_never_merge_questions(tmp_path: pathlib.Path) -> None:
    rows = [
        QQP_HEADER,
        "0\t0\t1\tPlain?\tAlso plain?\t0",
        '1\t2\t3\t"Open quote?\tWhat?\t1',
        '2\t4\t5\t"He said ""no"". Why?"\tWhat?\t1',
        '3\t6\t7\t"""He said """"no"""". Why?"""\t"""Quoted"" at its start?"\t1',
        '4\t8\t9\t"A line',
        'that breaks"\tWhat?\t1',
        "5\t10\t11\tLast?\t\t0",
        "6\t12\t13\tLast?\tYes?\t2",
    ]
    _write(tmp_path / "QQP/train.tsv", rows, end="\r\n")
    train = data.load("qqp", "train", tmp_path, max_malformed=0.5)
    assert list(train.inputs["text"]) == [
        "Plain?",
        '"Open quote?',
        'He said "no". Why?',
        'He said "no". Why?',
    ]
    assert list(train.inputs["pair"]) == ["Also plain?", "What?", "What?", '"Quoted" at its start?']
    assert (list(train.labels), list(train.ids)) == ([0, 1, 1, 1], [0, 1, 2, 3])
    assert train.label_names == ("different", "paraphrase")
    assert train.notes[0] == (
        "4 of 8 rows are malformed: QQP/train.tsv:6 (4 of 6 columns), QQP/train.tsv:7 (3 of 6 "
        "columns), QQP/train.tsv:8 (empty sentence), QQP/train.tsv:9 (label '2'); left out"
    )


def test_a_test_file_without_labels_is_named(tmp_path: pathlib.Path) -> None:
    dev = [QQP_HEADER, *(f"{i}\t0\t0\tfirst {i}\tb\t{i % 2}" for i in range(9))]
    _write(tmp_path / "QQP/dev.tsv", dev)
    _write(tmp_path / "QQP/test.tsv", ["id\tquestion1\tquestion2", "0\ta?\tb?"])
    with pytest.raises(ValueError, match=r"QQP/test.tsv has no labels: load qqp without official_"):
        data.load("qqp", "test", tmp_path, official_test=True)
    assert len(data.load("qqp", "val", tmp_path, official_test=True)) == 9
    val, test = (data.load("qqp", s, tmp_path) for s in ("val", "test"))
    assert (len(val), len(test)) == (4, 5)
    assert sorted(_numbers(val) + _numbers(test)) == list(range(9))
    _write(tmp_path / "QQP/test.tsv", dev[:4])  # a copy with labels
    assert _numbers(data.load("qqp", "test", tmp_path, official_test=True)) == [0, 1, 2]


TWEETS = [
    *(f"first {i}\tb\t({i}, 6)\thttp://x" for i in range(7)),
    "",
    "one column",
    "first 9\tb\t4 of 6\thttp://x",
]


def test_votes_become_labels(tmp_path: pathlib.Path) -> None:
    rows = ["\ufeff" + TWEETS[0], *TWEETS[1:]]  # a byte order mark is no text
    _write(tmp_path / "TwitterPPDB/Twitter_URL_Corpus_train.txt", rows)
    train = data.load("twitter_ppdb", "train", tmp_path, max_malformed=0.3)
    assert _numbers(train) == [0, 1, 2, 4, 5, 6]
    assert train.inputs["text"][0] == "first 0"
    assert list(train.labels) == [0, 0, 0, 1, 1, 1]
    where = "TwitterPPDB/Twitter_URL_Corpus_train.txt"
    assert train.notes == (
        f"3 of 10 rows are malformed: {where}:8 (blank), {where}:9 (1 of 3 columns), "
        f"{where}:10 (votes '4 of 6'); left out",
        f"1 of 10 rows have three votes of six: {where}:4; left out",
        "not the complete set: 6 of 42200 examples",
    )


def test_tweets_are_complete_by_their_lines(tmp_path: pathlib.Path) -> None:
    # 10,370 lines of which a tenth have three votes: complete, although fewer pairs are left.
    path = tmp_path / "TwitterPPDB/Twitter_URL_Corpus_test.txt"
    lines = [f"first {i}\tb\t({3 if i % 10 == 0 else 5}, 6)\thttp://x" for i in range(10_370)]
    _write(path, lines)
    halves = [data.load("twitter_ppdb", s, tmp_path) for s in ("val", "test")]
    assert sum(len(half) for half in halves) == 9_333
    assert not any("complete" in note for half in halves for note in half.notes)
    # As many lines as pairs are left of the whole file: a sample of it.
    _write(path, lines[:9_324])
    note = "not the complete set: 9324 of 10370 rows"
    assert data.load("twitter_ppdb", "test", tmp_path).notes[-1] == note


def test_tweets_are_halved_unless_they_are(tmp_path: pathlib.Path) -> None:
    _write(tmp_path / "a/TwitterPPDB/Twitter_URL_Corpus_test.txt", TWEETS[:9])
    halves = [
        data.load("twitter_ppdb", s, tmp_path / "a", max_malformed=0.3) for s in ("val", "test")
    ]
    assert sorted(_numbers(halves[0]) + _numbers(halves[1])) == [0, 1, 2, 4, 5, 6]
    assert min(len(half) for half in halves) > 0
    _write(
        tmp_path / "b/calibration_data/TwitterPPDB/dev.txt",
        [t[: -len("\thttp://x")] for t in TWEETS[:7]],
    )
    assert _numbers(data.load("twitter_ppdb", "val", tmp_path / "b")) == [0, 1, 2, 4, 5, 6]


def test_msrp_keeps_its_quotes(tmp_path: pathlib.Path) -> None:
    rows = ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    rows += [f'{i % 2}\t7\t8\t"Said" {i}\t"All of it."' for i in range(20)]
    _write(tmp_path / "MSRParaphraseCorpus/msr_paraphrase_train.txt", rows, end="\r\n")
    _write(tmp_path / "MSRParaphraseCorpus/msr_paraphrase_test.txt", rows[:5], end="\r\n")
    train, val = (data.load("msrp", s, tmp_path, num_val=6) for s in ("train", "val"))
    assert set(val.ids) == set(np.random.default_rng(0).permutation(20)[:6])
    assert sorted([*train.ids, *val.ids]) == list(range(20))
    assert _numbers(train) == list(train.ids)
    np.testing.assert_array_equal(train.labels, train.ids % 2)
    assert set(train.inputs["pair"]) == {'"All of it."'}
    assert len(data.load("msrp", "test", tmp_path)) == 4
    with pytest.raises(ValueError, match="msrp: num_val=408: expected 1 to 19"):
        data.load("msrp", "val", tmp_path)


# ---- multiple choice

SWAG_HEADER = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)


def _swag(i: int) -> str:
    return f'{i},v,{i},"s, t","A man, {i}",He,gold,"runs, fast",sits,"says ""no""",d,{i % 4}'


@pytest.mark.parametrize("file", ["swag/{}.csv", "calibration_data/SWAG/{}.txt"])
def test_swag_makes_four_endings(file: str, tmp_path: pathlib.Path) -> None:
    rows = [SWAG_HEADER, *(_swag(i) for i in range(8))]
    rows[3] = '2,v,2,s,"A man, 2,He,gold,a,b,c,d,0'
    rows[6] = "5,v,5,s,A man 5,He,gold,a,b,c,d,4"
    _write(tmp_path / file.format("train"), rows)
    train = data.load("swag", "train", tmp_path, max_malformed=0.5)
    assert list(train.ids) == [0, 1, 3, 4, 6, 7]  # an open quote spoils one row only
    assert train.inputs["text"].shape == (6,)
    assert train.inputs["choices"].shape == (6, 4)
    assert train.inputs["choices"].dtype == object
    assert train.inputs["text"][1] == "A man, 1"
    assert list(train.inputs["choices"][0]) == ["He runs, fast", "He sits", 'He says "no"', "He d"]
    np.testing.assert_array_equal(train.labels, train.ids % 4)
    where = file.format("train").removeprefix("calibration_data/")
    assert train.notes[0] == (
        f"2 of 8 rows are malformed: {where}:4 (not a row of csv), {where}:7 (label '4'); left out"
    )
    if file.startswith("swag"):
        _write(tmp_path / "swag/val.csv", [SWAG_HEADER, *(_swag(i) for i in range(7))])
        val, test = (data.load("swag", s, tmp_path) for s in ("val", "test"))
        assert sorted([*val.ids, *test.ids]) == list(range(7))
        assert train.take([0, 2]).inputs["choices"].shape == (2, 4)


def _hellaswag(n: int) -> list[dict[str, Any]]:
    return [
        {
            "activity_label": "Health" if i % 3 == 0 else "Canoeing",
            "ctx_a": f"A context {i}",
            "ctx_b": "" if i % 3 == 0 else "he",
            "endings": ["runs", "sits", "says", "stops"],
            "label": i % 4,
        }
        for i in range(n)
    ]


def test_hellaswag_in_two_parts(tmp_path: pathlib.Path) -> None:
    _jsonl(tmp_path / "hellaswag/hellaswag_train.jsonl", _hellaswag(12))
    _jsonl(tmp_path / "hellaswag/hellaswag_val.jsonl", _hellaswag(31))
    train = data.load("hellaswag", "train", tmp_path)
    assert list(train.inputs["choices"][1]) == ["he runs", "he sits", "he says", "he stops"]
    assert list(train.inputs["choices"][0]) == ["runs", "sits", "says", "stops"]
    assert train.inputs["text"][1] == "A context 1"
    np.testing.assert_array_equal(train.labels, train.ids % 4)
    whole = data.load("hellaswag", "train", tmp_path, whole_context=True)
    assert whole.inputs["text"][1] == "A context 1 he"
    assert list(whole.inputs["choices"][1]) == ["runs", "sits", "says", "stops"]
    for split in ("train", "val", "test"):
        both = data.load("hellaswag", split, tmp_path)
        wikihow, activitynet = (
            data.load("hellaswag", split, tmp_path, source=s) for s in ("wikihow", "activitynet")
        )
        assert list(wikihow.ids) == [i for i in both.ids if i % 3 == 0]
        assert list(activitynet.ids) == [i for i in both.ids if i % 3]
        assert "rows are not of wikihow: hellaswag/hellaswag_" in wikihow.notes[0]
    with pytest.raises(ValueError, match="source='youtube': expected activitynet, wikihow or None"):
        data.load("hellaswag", "val", tmp_path, source="youtube")


def test_hellaswag_rows_that_are_not_right(tmp_path: pathlib.Path) -> None:
    records = _hellaswag(7)
    records[1]["label"] = ""  # as in the official test file
    records[2]["endings"] = ["a", "b", "c"]
    records[3]["ctx_a"] = None
    records[4]["endings"][2] = 7
    records[6]["label"] = 4
    _jsonl(tmp_path / "calibration_data/HellaSWAG/test.txt", records)
    test = data.load("hellaswag", "test", tmp_path, max_malformed=1)
    whole = data.load("hellaswag", "test", tmp_path, max_malformed=1, whole_context=True)
    assert list(test.ids) == list(whole.ids) == [0, 5]
    where = "HellaSWAG/test.txt"
    assert test.notes[0] == (
        f"5 of 7 rows are malformed: {where}:2 (label ''), {where}:3 (not four endings), "
        f"{where}:4 (no context or ending), {where}:5 (no context or ending), {where}:7 (label '4'); "
        "left out"
    )


# ---- the publishers' own files


def _load(data_dir: pathlib.Path, folder: str, name: str, **options: Any) -> list[data.Dataset]:
    if not (data_dir / folder).is_dir():
        pytest.skip(f"needs {folder} in CALIB_JAX_DATA")
    splits = [data.load(name, s, data_dir, **options) for s in ("train", "val", "test")]
    assert not any("malformed" in note for dataset in splits for note in dataset.notes)
    return splits


def test_real_snli(data_dir: pathlib.Path) -> None:
    _, val, test = _load(data_dir, "snli_1.0", "snli")
    assert len(val) + len(test) == 9_842
    assert len(np.intersect1d(val.ids, test.ids)) == 0
    assert abs(len(val) - 4_921) < 30
    train, val, test = _load(data_dir, "snli_1.0", "snli", official_test=True)
    assert (len(val), len(test)) == (9_842, 9_824)
    assert list(np.bincount(test.labels)) == [3_368, 3_237, 3_219]
    assert len(train) in (18_000, 549_367)


def test_real_mnli(data_dir: pathlib.Path) -> None:
    train, val, test = _load(data_dir, "multinli_1.0", "mnli")
    assert len(train) in (20_000, 392_702)
    assert len(val) + len(test) in (5_000, 9_815)
    assert np.bincount(train.labels).min() > 0.3 * len(train)


def test_real_qqp(data_dir: pathlib.Path) -> None:
    train, val, test = _load(data_dir, "QQP", "qqp")
    assert len(val) + len(test) in (2_100, 40_430)
    assert train.labels.mean() == pytest.approx(0.37, abs=0.01)
    # Quotes are those that people typed, who seldom type two.
    assert sum('""' in text for text in train.inputs["text"]) < 0.001 * len(train)
    assert sum('"' in text for text in train.inputs["text"]) > 0.01 * len(train)


def test_real_msrp(data_dir: pathlib.Path) -> None:
    splits = _load(data_dir, "MSRParaphraseCorpus", "msrp")
    assert [len(dataset) for dataset in splits] == [3_668, 408, 1_725]
    assert splits[2].labels.sum() == 1_147
    assert splits[2].notes == ()


def test_real_hellaswag(data_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    train, _, test = _load(data_dir, "hellaswag", "hellaswag", source="activitynet")
    assert len(train) == 14_740
    other = data.load("hellaswag", "test", data_dir, source="wikihow")
    assert len(test) + len(other) == 5_021
    assert all("[header]" in text for text in other.inputs["text"])
    assert not any("[header]" in text for text in test.inputs["text"])
    folder = data_dir / "models/roberta-30m"
    if not folder.is_dir():
        pytest.skip("needs models/roberta-30m in CALIB_JAX_DATA")
    few = data.tokenize(test.take(range(8)), folder, max_length=96, cache_dir=tmp_path)
    ids, mask = few.inputs["input_ids"], few.inputs["mask"]
    assert ids.shape == mask.shape == (8, 4, ids.shape[2])
    # The four share their context: all tokens up to the end of the first part are equal.
    context = int(np.argmax(ids[0, 0] == 2))
    assert (ids[0, :, : context + 2] == ids[0, 0, : context + 2]).all()
    assert len(np.unique(ids[0], axis=0)) == 4
