"""Files of predictions: every kind, every message, and 200 damaged ones."""

import json
import pathlib
import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calib_jax.evaluation import check_predictions, load_predictions
from calib_jax.evaluation._columns import match_columns

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 30)
LOGITS = (2 * RNG.normal(size=(30, 3)) + 2 * np.eye(3)[LABELS]).round(4).astype(np.float32)
EXP = np.exp(LOGITS - LOGITS.max(1, keepdims=True))
PROBS = EXP / EXP.sum(1, keepdims=True)
NAMES = np.array(["cat", "dog", "eel"])


def csv_text(header: list[str], columns: list[np.ndarray], sep: str = ",") -> str:
    rows = [sep.join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([sep.join(header), *rows]) + "\n"


def read(tmp_path: pathlib.Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return load_predictions(path)


@pytest.mark.parametrize(
    ("header", "order", "labels"),
    [
        (["logit_0", "logit_1", "logit_2"], [0, 1, 2], LABELS),
        (["logit_2", "logit_0", "logit_1"], [2, 0, 1], LABELS),
        (["Logits[1]", "Logits[2]", "Logits[0]"], [1, 2, 0], LABELS),
        (["logit2", "logit1", "logit0"], [2, 1, 0], LABELS),
        (["2", "1", "0"], [2, 1, 0], LABELS),
        (["logit_cat", "logit_dog", "logit_eel"], [0, 1, 2], NAMES[LABELS]),
    ],
)
def test_csv_columns_are_matched_by_name(tmp_path, header, order, labels) -> None:
    text = csv_text([*header, "label"], [*(LOGITS[:, i] for i in order), labels])
    got = read(tmp_path, "p.csv", text)
    np.testing.assert_allclose(got.logits, LOGITS, rtol=1e-6)
    np.testing.assert_array_equal(got.labels, LABELS)


def test_named_columns_in_another_order_keep_labels_and_names_together(tmp_path) -> None:
    header = ["eel", "label", "cat", "dog"]
    text = csv_text(header, [LOGITS[:, 2], NAMES[LABELS], LOGITS[:, 0], LOGITS[:, 1]])
    got = read(tmp_path, "p.csv", text)
    assert got.label_names == ("eel", "cat", "dog")
    np.testing.assert_array_equal(np.array(got.label_names)[got.labels], NAMES[LABELS])
    np.testing.assert_allclose(got.logits[:, 1], LOGITS[:, 0], rtol=1e-6)


@pytest.mark.parametrize("name", ["", "index", "Unnamed: 0", "id", "y_pred"])
def test_index_columns_are_ignored_with_a_note(tmp_path, name) -> None:
    header = [name, "label", "0", "1", "2"]
    got = read(tmp_path, "p.csv", csv_text(header, [np.arange(30), LABELS, *LOGITS.T]))
    np.testing.assert_allclose(got.logits, LOGITS, rtol=1e-6)
    assert got.notes[-1] == f"ignored: {name!r} (no class)"


def test_columns_without_a_prefix_are_said_to_be_classes(tmp_path) -> None:
    header = ["label", "cat", "dog", "age"]
    got = read(tmp_path, "p.csv", csv_text(header, [NAMES[LABELS % 2], *LOGITS.T]))
    assert got.notes[-1] == "every other column is a class: 'cat', 'dog', 'age'"


def test_numbers_as_labels_of_named_columns_are_said_to_be_in_their_order(tmp_path) -> None:
    got = read(tmp_path, "p.csv", csv_text(["y", *NAMES], [LABELS, *LOGITS.T]))
    assert "0 is 'cat', 1 is 'dog', 2 is 'eel', in the order of the columns" in got.notes[-1]


@pytest.mark.parametrize("sep", [";", "\t", ","])
def test_separators_groups_quotes_and_byte_order_mark(tmp_path, sep) -> None:
    groups = np.where(np.arange(30) % 2, '"a b"', "c")
    text = csv_text(["label", "group", "0", "1", "2"], [LABELS, groups, *LOGITS.T], sep)
    (tmp_path / "p.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    got = load_predictions(tmp_path / "p.csv")
    assert got.groups is not None
    assert got.groups[:2].tolist() == ["c", "a b"]
    np.testing.assert_allclose(got.logits, LOGITS, rtol=1e-6)


@pytest.mark.parametrize("kind", ["list", "object", "flat"])
def test_jsonl(tmp_path, kind) -> None:
    lines = []
    for y, row in zip(LABELS, PROBS, strict=True):
        values = {str(n): float(p) for n, p in zip(NAMES, row, strict=True)}
        scores = {
            "list": {"probs": list(values.values())},
            "object": {"probs": values},
            "flat": {f"prob_{n}": p for n, p in values.items()},
        }[kind]
        label = int(y) if kind == "list" else str(NAMES[y])
        lines.append(json.dumps({"label": label, "group": "g", **scores}))
    got = read(tmp_path, "p.jsonl", "\n".join(lines) + "\n")
    np.testing.assert_allclose(np.exp(got.logits), PROBS, atol=1e-6)
    np.testing.assert_array_equal(got.labels, LABELS)
    assert got.label_names == (() if kind == "list" else tuple(NAMES))


@pytest.mark.parametrize("flat", [True, False])
def test_parquet(tmp_path, flat) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {f"logit_{n}": LOGITS[:, i] for i, n in enumerate(NAMES)}
    columns = columns if flat else {"logits": list(LOGITS)}
    labels = NAMES[LABELS].tolist() if flat else LABELS
    parquet.write_table(pa.table({"label": labels, **columns}), tmp_path / "p.parquet")
    got = load_predictions(tmp_path / "p.parquet")
    np.testing.assert_allclose(got.logits, LOGITS, rtol=1e-6)
    np.testing.assert_array_equal(got.labels, LABELS)


def test_pairs_of_npy(tmp_path) -> None:
    np.save(tmp_path / "logits.npy", LOGITS)
    np.save(tmp_path / "y.npy", LABELS)
    got = load_predictions(f"{tmp_path}/logits.npy,{tmp_path}/y.npy")
    np.testing.assert_array_equal(got.logits, LOGITS)
    with pytest.raises(ValueError, match="the first file has labels, the second scores"):
        load_predictions(f"{tmp_path}/y.npy,{tmp_path}/logits.npy")
    with pytest.raises(ValueError, match=r"give both files: logits.npy,labels.npy"):
        load_predictions(tmp_path / "logits.npy")
    with pytest.raises(ValueError, match=r"z.npy: no such file"):
        load_predictions(f"{tmp_path}/logits.npy,{tmp_path}/z.npy")
    got = load_predictions(tmp_path / "logits.npy", labeled=False)
    np.testing.assert_array_equal(got.logits, LOGITS)


def test_npz_names_groups_and_other_arrays(tmp_path) -> None:
    groups = LABELS % 2
    np.savez(
        tmp_path / "p.npz", logits=LOGITS, labels=NAMES[LABELS], groups=groups, label_names=NAMES,
        features=LOGITS, ids=LABELS,
    )  # fmt: skip
    got = load_predictions(tmp_path / "p.npz")
    np.testing.assert_array_equal(got.labels, LABELS)
    assert got.label_names == tuple(NAMES)
    assert got.groups is not None
    np.testing.assert_array_equal(got.groups, groups.astype(str))
    assert got.notes[1:] == ("2 groups", "ignored: 'features'")


def note(name: str, scores: np.ndarray) -> str:
    return check_predictions(name, scores, LABELS).notes[0]


def test_what_scores_are_is_said() -> None:
    assert note("logits", LOGITS).endswith("classes: logits (from 'logits')")
    assert "every row of 'probs' is non-negative and sums to 1" in note("probs", PROBS)
    assert "probabilities (every row of 'logits'" in note("logits", PROBS)
    assert "log-probabilities (from 'logits'), which are logits" in note("logits", np.log(PROBS))
    assert "all of them in [0, 1]" in note("logits", 1 / (1 + np.exp(-LOGITS)))
    assert "probabilities (from 'logits') rounded to 2 digits" in note("logits", PROBS.round(2))
    rounded = np.array([[0.33, 0.33, 0.33], [0.5, 0.25, 0.25]] * 15)
    got = check_predictions("probs", rounded, LABELS)
    assert "rounded to 2 digits: rows sum to 0.99 to 1 and are divided" in got.notes[0]
    np.testing.assert_allclose(np.exp(got.logits[0]), 1 / 3, rtol=1e-6)
    half = PROBS.copy()
    half[3] *= 1.004
    assert "probabilities (from 'probs') rounded: rows sum to" in note("probs", half)
    zero = np.tile([1.0, 0.0, 0.0], (30, 1))
    got = check_predictions("probs", zero, LABELS)
    assert f"{np.sum(LABELS > 0)} labels have probability 0" in got.notes[1]


@pytest.mark.parametrize(
    ("name", "scores", "message"),
    [
        ("probs", 100 * PROBS, "every row sums to 100, so these are percentages; divide by 100"),
        ("logits", 100 * PROBS, "percentages"),
        ("logits", (100 * PROBS).round(), "percentages"),
        ("logits", -np.log(PROBS), "these are negative log-probabilities; change their sign"),
        (
            "logits",
            np.where(np.eye(3)[LABELS] > 0, 0, -np.inf),
            "logarithms of 0? Give the probabilities",
        ),
        ("probs", 1 / (1 + np.exp(-LOGITS)), "sigmoids of independent labels? Give softmax"),
        ("predictions", 1 / (1 + np.exp(-LOGITS)), "sigmoids of independent labels?"),
        ("probs", np.log(PROBS), "these are log-probabilities; logits and log-probabilities go by"),
        ("probs", LOGITS, "these are no probabilities ("),
        ("probs", np.zeros((30, 3)), "row 0 is no probability distribution (sum 0)"),
        ("logits", LOGITS > 0, "expected numbers, got bool"),
        # Sigmoids of many labels in two digits are no rounded softmax.
        ("probs", np.full((30, 300), 0.01), "row 0 is no probability distribution (sum 3)"),
    ],
)
def test_wrong_scores_are_rejected_with_a_fix(name, scores, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_predictions(name, scores, LABELS)


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (np.eye(3)[LABELS], (), "one-hot labels of shape (30, 3); give class numbers, labels.arg"),
        (PROBS, (), "soft labels of shape (30, 3)"),
        (NAMES[LABELS], (), "got text such as 'cat'; name the classes in the order of the columns"),
        (NAMES[LABELS], ("cat", "dog", "elk"), "'eel' is no class; expected one of cat, dog, elk"),
        (LABELS, ("cat", "dog"), "label_names: expected 3 names, one per column, got 2"),
        (LABELS, ("cat", "dog", "cat"), "two classes have the same name"),
        (LABELS.astype(bool), (), "expected class numbers, got bool"),
        (LABELS, ("1", "2", "3"), "'0' is no class; expected one of 1, 2, 3"),
    ],
)
def test_wrong_labels_are_rejected_with_a_fix(labels, names, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_predictions("logits", LOGITS, labels, label_names=names)


@pytest.mark.parametrize("labels", [LABELS + 1, (LABELS + 1).astype(str)])
def test_classes_that_are_numbers_are_names(labels) -> None:
    got = check_predictions("logits", LOGITS, labels, label_names=("1", "2", "3"))
    np.testing.assert_array_equal(got.labels, LABELS)


def test_ids_are_no_groups() -> None:
    n = 1001
    logits, labels = np.zeros((n, 2)), np.zeros(n, int)
    with pytest.raises(ValueError, match="groups: 1001 different ones, expected at most 1000"):
        check_predictions("logits", logits, labels, groups=np.arange(n))


def test_two_arrays_of_labels_or_scores(tmp_path) -> None:
    np.savez(tmp_path / "p.npz", logits=LOGITS, labels=LABELS, y=LABELS, predictions=LABELS)
    assert (
        load_predictions(tmp_path / "p.npz").notes[-1] == "ignored: 'predictions' beside 'logits'"
    )
    np.savez(tmp_path / "p.npz", logits=LOGITS, labels=LABELS, y=(LABELS + 1) % 3)
    with pytest.raises(ValueError, match="'labels' and 'y' differ; keep one of them"):
        load_predictions(tmp_path / "p.npz")


def test_logits_and_probs_must_agree(tmp_path) -> None:
    np.savez(tmp_path / "p.npz", logits=LOGITS, probs=PROBS, labels=LABELS)
    got = load_predictions(tmp_path / "p.npz")
    np.testing.assert_array_equal(got.logits, LOGITS)
    assert "agree with the softmax" in got.notes[-1]
    np.savez(tmp_path / "p.npz", logits=2 * LOGITS, probs=PROBS, labels=LABELS)
    with pytest.raises(ValueError, match="logits and probs disagree: in row"):
        load_predictions(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", logits=LOGITS, probs=PROBS.astype(str), labels=LABELS)
    with pytest.raises(ValueError, match="'probs': expected numbers, got <U"):
        load_predictions(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", logits=LOGITS, probs=PROBS[:9], labels=LABELS)
    with pytest.raises(ValueError, match="give one of them"):
        load_predictions(tmp_path / "p.npz")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("0,1", "expected a header with a 'label' column, found '0', '1'"),
        ("label_0,label_1,0,1", "one-hot labels? give the number or name of the class"),
        ("label,target_0,target_1,0,1", "one-hot labels: expected one column"),
        ("label,prob_0,prob_1,age", "column 'age' is neither a class"),
        ("label,prob_0,prob_0", "two columns have the name 'prob_0'"),
        ("label,target,0,1", "the columns 'label' and 'target' mean the same"),
        ("label,prob_1,prob_2", "0 to 1, found '1', '2'; do they count from 1?"),
        ("label,prob_0,prob_2", "expected columns of the classes 0 to 1, found '0', '2'"),
        ("label,prob_0,prob_cat", "some classes have numbers, others names"),
        ("label,prob_0,prob_1,logit_0,logit_2", "logits and probs are of different classes"),
        ("label,prob_a,p_a", "two columns are of the class 'a'"),
        ("label,id", "expected a column per class"),
    ],
)
def test_headers_that_are_rejected(header, message) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        match_columns(header.split(","))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "label,0,1\n0,1,x\n", "line 2, column '1': expected a number, got 'x'"),
        ("p.csv", "label,0,1\n0,1,2\n\n0,1\n", "line 4: 3 columns in the header, 2 here"),
        ("p.csv", "label,0,1\n0,1,\n", "line 2, column '1': expected a number, got ''"),
        ("p.csv", "label,0,1\n", "there are no predictions (0 rows)"),
        ("p.csv", "", "expected a header with a 'label' column"),
        ("p.csv", "label,0,1\n0,1,nan\n", "1 rows hold NaN or infinity, the first is row 0"),
        ("p.jsonl", "", "there are no predictions (0 rows)"),
        ("p.jsonl", "[1]\n", "line 1: expected a JSON object, got list"),
        ("p.jsonl", '{"label": 0, "probs": [0.5, 0.5]}\nx\n', "line 2: expected a JSON object"),
        (
            "p.jsonl",
            '{"label": 0, "probs": [0.5, 0.5]}\n{"label": 0, "probs": [1]}\n',
            "line 2: 'probs_1' is not in every line",
        ),
        ("p.parquet", "no", "not a readable parquet file"),
        (
            "p.pt",
            "x",
            'a pickle, which is never loaded; convert it: python -c "import numpy, torch',
        ),
        ("p.txt", "x", "expected a file of one of these kinds: .npz, .csv"),
    ],
)
def test_files_that_are_rejected(tmp_path, name, text, message) -> None:
    with pytest.raises(
        ValueError, match=re.escape(f"{tmp_path / name}: ") + ".*" + re.escape(message)
    ):
        read(tmp_path, name, text)


@pytest.mark.slow
def test_a_million_rows_of_csv_are_streamed(tmp_path) -> None:
    import resource
    import time

    block = csv_text(["label", *map(str, range(10))], [np.arange(10), *np.eye(10)])
    lines = block.splitlines(keepends=True)
    with (tmp_path / "p.csv").open("w") as file:
        file.write(lines[0])
        file.writelines("".join(lines[1:]) for _ in range(100_000))
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.process_time()
    got = load_predictions(tmp_path / "p.csv")
    assert time.process_time() - start < 30
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert got.logits.shape == (1_000_000, 10)
    assert (after.ru_maxrss - before.ru_maxrss) / 1024 < 600  # megabytes; the text has 60 to 200


def _npz_bytes(tmp_path: pathlib.Path) -> bytes:
    np.savez(tmp_path / "good.npz", logits=LOGITS, labels=LABELS)
    return (tmp_path / "good.npz").read_bytes()


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files_give_one_line(tmp_path_factory, data) -> None:
    """Predictions or a ValueError of one line, whatever the file holds."""
    folder = tmp_path_factory.mktemp("fuzz")
    suffix = data.draw(st.sampled_from([".csv", ".jsonl", ".npz", ".npy", ".parquet"]))
    good = {
        ".csv": csv_text(["label", "0", "1", "2"], [LABELS[:5], *LOGITS[:5].T]).encode(),
        ".jsonl": b'{"label": 1, "probs": [0.25, 0.75]}\n{"label": 0, "probs": {"0": 1, "1": 0}}\n',
    }.get(suffix) or _npz_bytes(folder)
    content = bytearray(good)
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(rng.randrange(1, 6)):
        i = rng.randrange(len(content))
        change = rng.randrange(4)
        if change == 0:
            content[i] = rng.randrange(256)
        elif change == 1:
            del content[i : i + rng.randrange(1, 30)]
        elif change == 2:
            content[i:i] = rng.choice(
                [b"\0", b'"', b"\xff", b",", b"\n", b"nan", b"1e999", b"{", b"[]"]
            )
        else:
            content = content[: max(1, i)]
        if not content:
            content = bytearray(b" ")
    path = folder / f"p{suffix}"
    path.write_bytes(bytes(content))
    name = f"{path},{path}" if suffix == ".npy" else path
    message = None
    try:
        got = load_predictions(name)
    except ValueError as error:
        message = str(error)
    if message is None:
        assert np.isfinite(got.logits).all()
        assert got.labels.max() < got.num_classes
    else:
        assert "\n" not in message
        assert str(path) in message
