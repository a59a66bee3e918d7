"""csv, jsonl and parquet files: columns, labels, malformed rows."""

import pathlib
import re
from typing import Any

import numpy as np
import pytest
from own_files import WRITERS, png, texts, write_csv, write_jsonl, write_parquet

from calib_jax import data

SPLITS = ("train", "val", "test")


def _load(name: str, split: str = "train", **options: Any) -> data.Dataset:
    return data.load(name, split, **options)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_has_the_same_examples(name: str, tmp_path: pathlib.Path) -> None:
    rows = [{"text": f'with, "quotes"\nand lines {i}', "label": "ab"[i % 2]} for i in range(40)]
    path = WRITERS[name](tmp_path / f"a.{name}", rows)
    sets = {split: _load(name, split, path=path) for split in SPLITS}
    assert {split: len(d) for split, d in sets.items()} == {"train": 28, "val": 4, "test": 8}
    for dataset in sets.values():
        assert dataset.label_names == ("a", "b")
        assert dataset.name == name
        for text, label, number in zip(
            dataset.inputs["text"], dataset.labels, dataset.ids, strict=True
        ):
            assert text == rows[number]["text"]
            assert "ab"[label] == rows[number]["label"]
    # The same rows, the same splits, whatever the format.
    other = write_jsonl(tmp_path / "other.jsonl", rows)
    assert _load("jsonl", "test", path=other).content_hash == sets["test"].content_hash


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["3", "1", "2", "10"], ("1", "2", "3", "10")),  # numbers, from 1, in numeric order
        (["0", "1.0", "1", "2"], ("0", "1", "2")),
        (["-1", "1"], ("-1", "1")),
        (["b", "a", "10", "9"], ("10", "9", "a", "b")),  # one name makes all of them names
        ([" yes ", "no"], ("no", "yes")),
        (["é", "e", "Z"], ("Z", "e", "é")),
        (["nan", "inf"], ("inf", "nan")),
        (["007", "10"], ("007", "10")),  # codes stay as they are
        (["1_0", "2"], ("1_0", "2")),
        (["1", "9" * 20, "9" * 19 + "8"], ("1", "9" * 19 + "8", "9" * 20)),
    ],
)
def test_labels_are_mapped_in_sorted_order(
    labels: list[str], names: tuple[str, ...], tmp_path: pathlib.Path
) -> None:
    path = write_csv(tmp_path / "a.csv", texts(80, labels))
    train = _load("csv", path=path)
    assert train.label_names == names
    for label, number in zip(train.labels, train.ids, strict=True):
        stored = labels[number % len(labels)].strip()
        assert train.label_names[label] in (stored, stored.removesuffix(".0"))
    mapping = ", ".join(f"{name!r} → {c}" for c, name in enumerate(names))
    assert f"{len(names)} classes: {mapping}" in train.notes


def test_values_of_jsonl_may_be_numbers_and_booleans(tmp_path: pathlib.Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", texts(40, (True, False)))
    assert _load("jsonl", path=path).label_names == ("False", "True")
    path = write_jsonl(tmp_path / "b.jsonl", texts(40, (1, 2.0, "2", 11)))
    assert _load("jsonl", path=path).label_names == ("1", "2", "11")


def test_many_classes_are_not_all_listed(tmp_path: pathlib.Path) -> None:
    path = write_csv(tmp_path / "a.csv", texts(400, [str(i) for i in range(20)]))
    (note,) = [n for n in _load("csv", path=path).notes if "classes" in n]
    assert note.startswith("20 classes: '0' → 0, '1' → 1, ")
    assert note.endswith(", …, '19' → 19")


@pytest.mark.parametrize(
    ("columns", "options", "used"),
    [
        ("text,label", {}, "text = 'text', label = 'label'"),
        ("Review,Label", {}, "text = 'Review', label = 'Label'"),
        ("body,target", {}, "text = 'body', label = 'target'"),  # the only other column
        ("id,body,stars", {"text": "body", "label": "stars"}, "text = 'body', label = 'stars'"),
        ("id,premise,hypothesis,label", {}, "text = 'premise', pair = 'hypothesis'"),
        ("a,b,label", {"text": "a", "pair": "b"}, "text = 'a', pair = 'b', label = 'label'"),
        ("text,x,y,label", {"choices": "x,y"}, "text = 'text', choices = 'x,y'"),
    ],
)
def test_columns_are_found_by_name(
    columns: str, options: dict[str, str], used: str, tmp_path: pathlib.Path
) -> None:
    names = columns.split(",")
    rows = [
        {name: f"{name} {i}" for name in names[:-1]} | {names[-1]: str(i % 2)} for i in range(30)
    ]
    train = _load("csv", path=write_csv(tmp_path / "a.csv", rows), **options)
    assert any(note.startswith(f"columns: {used}") for note in train.notes)
    position = train.ids[0]
    for key in ("text", "pair"):
        if match := re.search(f"{key} = '(.*?)'", used):
            assert train.inputs[key][0] == f"{match[1]} {position}"
    if "choices" in options:
        assert train.inputs["choices"].shape == (len(train), 2)
        assert train.inputs["choices"][0].tolist() == [f"x {position}", f"y {position}"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("a,b,label", {}, r"which column is the text\? Set text .* to one of a, b, the columns"),
        ("text,title,label", {}, r"which column is the text\? .* to one of text, title, the"),
        ("text,stars", {}, r"which column is the label\? Set label .* to one of text, stars, the"),
        ("text,label,class", {}, r"which column is the label\? .* to one of label, class, the"),
        ("text,label", {"text": "txt"}, r"text='txt': .*a.csv has no such column; .*mean 'text'\?"),
        ("text,label", {"choices": "a,b"}, r"choices='a': .* has no such column; expected one of"),
        ("text,label,text", {}, r"a.csv: column 'text' occurs 2 times"),
        ("label", {}, r"which column is the text\?"),
        ("text", {}, r"which column is the label\?"),
    ],
)
def test_columns_that_are_not_clear_are_listed(
    columns: str, options: dict[str, str], message: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(columns + "\n" + ",".join("x" for _ in columns.split(",")) + "\n")
    with pytest.raises(ValueError, match=message) as error:
        _load("csv", path=str(path), **options)
    assert "\n" not in str(error.value)


def test_csv_of_a_spreadsheet(tmp_path: pathlib.Path) -> None:
    """A byte order mark, semicolons, and CRLF."""
    lines = ["text;label", *(f'"a; ""b"" {i}";{i % 2}' for i in range(30)), ""]
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    train = _load("csv", path=str(path))
    assert train.inputs["text"][0] == f'a; "b" {train.ids[0]}'
    tabs = tmp_path / "a.tsv"
    tabs.write_text("text\tlabel\n" + "".join(f"a, b {i}\t{i % 2}\n" for i in range(30)))
    assert _load("csv", path=str(tabs)).inputs["text"][0].startswith("a, b ")


def test_malformed_rows_are_counted_with_their_lines(tmp_path: pathlib.Path) -> None:
    rows = [f"text {i},{i % 2}" for i in range(500)]
    rows[10] = "one column"
    rows[20] = ",1"
    rows[30] = "text,"
    rows[40] = "a,b,c"
    path = tmp_path / "a.csv"
    path.write_bytes(("text,label\n" + "\n".join(rows)).encode() + b"\nl\xe9,1\n\n")
    train = _load("csv", path=str(path), max_malformed=0.02)
    where = f"{tmp_path.name}/a.csv"
    assert train.notes[0] == (
        f"5 of 501 rows are malformed: {where}:12 (1 of 2 columns), {where}:22 (text: empty or not a "
        f"text), {where}:32 (no label), {where}:42 (3 of 2 columns), {where}:502 (not UTF-8); left out"
    )
    everything = [_load("csv", s, path=str(path), max_malformed=0.02).ids for s in SPLITS]
    assert set(range(501)) - set(np.concatenate(everything)) == {10, 20, 30, 40, 500}
    with pytest.raises(
        ValueError, match=r"5 of 501 rows are malformed.*more than max_malformed=0.0"
    ):
        _load("csv", path=str(path), max_malformed=0.005)


def test_a_quote_that_is_not_closed_takes_no_rows_in_silence(tmp_path: pathlib.Path) -> None:
    rows = [f"text {i},{i % 2}" for i in range(300)]
    rows[100] = '"text 100,0'
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(ValueError, match=r"200 of 300 rows are malformed: .*:102 \(unexpected end"):
        _load("csv", path=str(path))


def test_malformed_rows_of_jsonl(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, texts(500))
    lines = path.read_bytes().split(b"\n")
    lines[5:11] = [
        *(b"{", b"[1]", b'{"text": "x"}', b'{"text": 3, "label": "no"}'),
        *(b'{"text": "x", "label": null}', b'{"text": "x", "label": ["no"]}'),
    ]
    lines[20] = b'{"text": "\xff", "label": "no"}'
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    note = _load("jsonl", path=str(path), max_malformed=0.02).notes[0]
    assert note.startswith("7 of 500 rows are malformed: ")
    for line, why in [
        *((6, "not a JSON object"), (7, "not a JSON object"), (8, "no label")),
        *((9, "text: empty or not a text"), (10, "no label")),
    ]:
        assert f"a.jsonl:{line} ({why})" in note


def test_given_files_and_their_overlap(tmp_path: pathlib.Path) -> None:
    options = {
        "train": write_csv(tmp_path / "x.csv", texts(30)),
        "val": write_csv(tmp_path / "y.csv", texts(10, first=25)),
        "test": write_csv(tmp_path / "z.csv", texts(10, first=31)),
    }
    sets = [_load("csv", split, **options) for split in SPLITS]
    assert [len(d) for d in sets] == [30, 10, 10]
    warning = "warning: the inputs of {} of 10 examples are also in the {} files"
    assert warning.format(5, "train") in sets[1].notes
    assert warning.format(4, "val") in sets[2].notes
    assert not any("training files" in note for note in sets[1].notes)
    # The same from a folder, by the names of the files.
    for name, split in (("x", "train"), ("y", "dev"), ("z", "test")):
        (tmp_path / f"{name}.csv").rename(tmp_path / f"{split}.csv")
    again = [_load("csv", split, path=str(tmp_path)) for split in SPLITS]
    assert [d.content_hash for d in again] == [d.content_hash for d in sets]


def test_labels_of_all_files_are_one_mapping(tmp_path: pathlib.Path) -> None:
    train = write_csv(tmp_path / "train.csv", texts(30, ("b", "c")))
    test = write_csv(tmp_path / "test.csv", texts(10, ("a", "c"), first=50))
    sets = {s: _load("csv", s, train=train, test=test) for s in SPLITS}
    assert {d.label_names for d in sets.values()} == {("a", "b", "c")}
    assert set(sets["test"].labels) == {0, 2}


def test_shards_of_parquet(tmp_path: pathlib.Path) -> None:
    for i in range(2):
        write_parquet(tmp_path / f"data/train-0000{i}-of-00002.parquet", texts(20, first=20 * i))
    write_parquet(tmp_path / "data/test-00000-of-00001.parquet", texts(10, first=90))
    train, val, test = (_load("parquet", split, path=str(tmp_path)) for split in SPLITS)
    assert (len(train), len(val), len(test)) == (36, 4, 10)
    assert sorted([*train.ids, *val.ids]) == list(range(40))
    for text, number in zip(train.inputs["text"], train.ids, strict=True):
        assert text == f"text number {number}"


def test_class_names_of_parquet(tmp_path: pathlib.Path) -> None:
    rows = texts(40, (0, 1, -1))
    path = write_parquet(tmp_path / "a.parquet", rows, {"label": ("bad", "good", "fine")})
    train = _load("parquet", path=path)
    assert train.label_names == ("bad", "good", "fine")
    assert "13 of 40 rows have no label; left out" in train.notes
    rows = texts(40, (0, 3))
    path = write_parquet(tmp_path / "a.parquet", rows, {"label": ("bad", "good", "fine")})
    with pytest.raises(
        ValueError, match=r"a.parquet:2: label '3': expected 0 to 2, as the file na"
    ):
        _load("parquet", path=path)
    path = write_parquet(tmp_path / "a.parquet", texts(40, (-1,)), {"label": ("bad", "good")})
    with pytest.raises(
        ValueError, match=r"none of the 40 rows of .* can be used: 40 of 40 rows have"
    ):
        _load("parquet", path=path)
    test = write_parquet(tmp_path / "b.parquet", texts(40, (0, 1)), {"label": ("x", "y")})
    path = write_parquet(tmp_path / "a.parquet", texts(40, (0, 1)), {"label": ("bad", "good")})
    with pytest.raises(
        ValueError, match="test files name the classes x, y, the training files bad"
    ):
        _load("parquet", train=path, test=test)


@pytest.mark.parametrize("first", [0, 1])
def test_multiple_choice(first: int, tmp_path: pathlib.Path) -> None:
    rows = [
        {"text": f"q {i}", "answers": [f"x {i}", f"y {i}", f"z {i}"], "label": i % 3 + first}
        for i in range(40)
    ]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    train = _load("jsonl", path=path, choices="answers")
    assert train.inputs["choices"].shape == (28, 3)
    assert train.label_names == ("choice 0", "choice 1", "choice 2")
    np.testing.assert_array_equal(train.labels, train.ids % 3)
    rows[7]["label"] = 5
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(
        ValueError, match=rf"a.jsonl:8: label '5': .* a choice, {first} to {first + 2}"
    ):
        _load("jsonl", path=path, choices="answers")
    rows[7] |= {"label": 1, "answers": ["x", "y"]}
    rows[8]["answers"] = "xyz"
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    note = _load("jsonl", path=path, choices="answers", max_malformed=0.1).notes[0]
    assert "a.jsonl:8 (2 choices, others have 3)" in note
    assert "a.jsonl:9 (answers: no list of choices)" in note


def test_images_of_tables(tmp_path: pathlib.Path) -> None:
    rows = [{"image": f"pictures/{i}.png", "label": "ab"[i % 2]} for i in range(40)]
    (tmp_path / "pictures").mkdir()
    for i in range(39):
        (tmp_path / f"pictures/{i}.png").write_bytes(png(i))
    train = _load("csv", path=write_csv(tmp_path / "a.csv", rows), max_malformed=0.05)
    assert (
        f"1 of 40 rows are malformed: {tmp_path.name}/a.csv:41 (there is no file" in train.notes[0]
    )
    assert train.inputs["image"].shape == (len(train), 6, 6, 3)
    np.testing.assert_array_equal(train.inputs["image"][:, 0, 0, 0], train.ids)
    embedded = [r | {"image": {"bytes": png(i), "path": "x"}} for i, r in enumerate(rows)]
    train = _load("parquet", path=write_parquet(tmp_path / "a.parquet", embedded), size=4)
    assert train.inputs["image"].shape == (28, 4, 4, 3)
    np.testing.assert_array_equal(train.inputs["image"][:, 0, 0, 0], train.ids)
    embedded[3]["image"] = {"bytes": b"no image", "path": "x"}
    path = write_parquet(tmp_path / "a.parquet", embedded)
    notes = [_load("parquet", s, path=path, max_malformed=0.3).notes for s in SPLITS]
    assert sum("a.parquet:4 (not an image)" in note for split in notes for note in split) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"csv: path='', train='': expected one of them, a file or folder"),
        ({"path": "a.csv", "train": "a.csv"}, r"path='a.csv', train='a.csv': expected one of them"),
        (
            {"path": "nowhere.csv"},
            r"path='nowhere.csv': there is no such file or folder here or in",
        ),
        ({"path": "a.csv", "test": "b.csv"}, r"test='b.csv': there is no such file or folder"),
        ({"path": "a.csv", "val_share": 0.0}, r"val_share=0: expected a fraction of the examples"),
        ({"path": "a.csv", "test_share": 0.95}, r"test_share=0.95: .* together less than 1"),
        (
            {"path": "a.csv", "val_share": 0.001},
            r"60 different examples are too few for test_share=0.2",
        ),
        ({"path": "empty"}, r"csv: .*/empty has no file that ends with .csv or .tsv"),
        ({"path": "notes.txt"}, r"notes.txt: expected a file that ends with one of .csv, .tsv, "),
        ({"path": "none.csv"}, r"none.csv:1: expected the names of the columns \(it is empty\)"),
        ({"path": "header.csv"}, r"none of the 0 rows of .*header.csv can be used: there is none"),
        ({"path": "one.csv"}, r"csv: all labels are 'no': expected at least two classes"),
        ({"path": "real.csv"}, r"csv: label 0.5: expected names or whole numbers as classes"),
        (
            {"path": "ids.csv"},
            r"csv: 300 different labels in 300 examples \('?0'?, .*another column\?",
        ),
        (
            {"path": "a.csv", "zzz": 1},
            r"csv: option 'zzz': expected one of path, train, val, test, ",
        ),
    ],
)
def test_mistakes_are_one_line(
    options: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    write_csv(tmp_path / "a.csv", texts())
    write_csv(tmp_path / "one.csv", texts(30, ["no"]))
    write_csv(tmp_path / "real.csv", texts(30, ["0.5", "1"]))
    write_csv(tmp_path / "ids.csv", texts(300, [str(i) for i in range(300)]))
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("text,label\n")
    (tmp_path / "none.csv").write_text("")
    (tmp_path / "header.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match=message) as error:
        data.load("csv", "train", tmp_path, **options)
    assert "\n" not in str(error.value)


def test_pyarrow_is_only_needed_for_parquet(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "a.parquet", texts())
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"needs pyarrow: pip install 'calib_jax\[data\]'"):
        _load("parquet", path=path)
    assert len(_load("csv", path=write_csv(tmp_path / "a.csv", texts()))) == 42
