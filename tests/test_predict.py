"""`python -m calib_jax.predict`: every row of a file has a prediction, or a reason why not."""

import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import trained
from PIL import Image

from calib_jax import data, experiment, predict
from calib_jax.experiment import _predict

NEW = [
    "a a b a a a c a a a b a a",
    "d d d c d d d d b d d",
    "b c b c c b c b b",
    "a d a d d d a d a",
]
ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The run of a text CNN on the column `review` of a csv."""
    folder = tmp_path_factory.mktemp("texts")
    return trained.run(trained.texts(folder), folder / "work")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The run of a perceptron on digits."""
    return trained.run(trained.images(), tmp_path_factory.mktemp("images"))


@pytest.fixture(autouse=True)
def _no_cache_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "keep_compiled", lambda: None)


def _rows(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _main(*arguments: Any) -> int:
    return predict.main([str(argument) for argument in arguments])


def _check(rows: list[dict[str, Any]], probs: np.ndarray, names: tuple[str, ...]) -> None:
    assert np.ptp(probs[:, 0]) > 1e-3  # or it would not show which row is which
    found = np.array([[float(row[f"p_{name}"]) for name in names] for row in rows])
    np.testing.assert_allclose(found, probs, atol=1e-6)
    np.testing.assert_allclose([float(r["confidence"]) for r in rows], probs.max(1), atol=1e-6)
    assert [row["label"] for row in rows] == [names[i] for i in probs.argmax(1)]


def test_own_csv_and_the_runs_own_test_set(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The same csv as in training: its test rows have the probabilities of the run's logits."""
    settings = json.loads((texts / "config.json").read_text())["config"]["data"]["options"]
    out = tmp_path / "out.csv"
    assert _main(texts, settings["path"], "--out", out, "--calibrator", "uncalibrated") == 0
    rows = _rows(out)
    assert [row["input"] for row in rows] == [str(line) for line in range(2, 122)]
    test = data.load("csv", "test", **settings)
    logits = trained.arrays(texts / "logits" / "test.npz")["logits"]
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    _check([rows[i] for i in test.ids], probs, ("bad", "good"))
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def _write(path: pathlib.Path, texts: list[str]) -> pathlib.Path:
    if path.suffix == ".csv":
        path.write_text("review\n" + "".join(f"{text}\n" for text in texts))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"review": texts, "other": texts}), path)
    return path


@pytest.mark.parametrize(
    ("kind", "out"), [("csv", "jsonl"), ("jsonl", "parquet"), ("parquet", "csv")]
)
def test_every_format(texts: pathlib.Path, tmp_path: pathlib.Path, kind: str, out: str) -> None:
    new = NEW[:3]
    path, written = _write(tmp_path / f"new.{kind}", new), tmp_path / f"out.{out}"
    assert _main(texts, path, "--out", written) == 0
    if out == "csv":
        rows: list[dict[str, Any]] = list(_rows(written))
    elif out == "jsonl":
        rows = [json.loads(line) for line in written.read_text().splitlines()]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(written).to_pylist()
    assert list(rows[0]) == ["input", "label", "confidence", "p_bad", "p_good"]
    classifier = experiment.load(texts)
    _check(rows, classifier.predict_proba(new, "temperature"), ("bad", "good"))
    first = 2 if kind == "csv" else 1
    assert [row["input"] for row in rows] == [str(first + i) for i in range(3)]


def test_malformed_rows_keep_their_place(
    texts: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.csv"
    path.write_bytes(b"review,id\na b,1\n,2\nc\n\xff,4\nd,5\n")
    assert _main(texts, path) == 0
    done = capsys.readouterr()
    rows = list(csv.DictReader(done.out.splitlines()))
    assert [row["input"] for row in rows] == ["2", "3", "4", "5", "6"]
    assert [bool(row["label"]) for row in rows] == [True, False, False, False, True]
    assert [row["confidence"] == row["p_bad"] == "" for row in rows] == [False] + [True] * 3 + [
        False
    ]
    for line, problem in ((3, "review: empty"), (4, "1 of 2 columns"), (5, "not UTF-8")):
        assert f"new.csv:{line}: {problem}" in done.err
    assert "3 of 5 rows malformed" in done.err


def test_abstaining(
    texts: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _write(tmp_path / "new.csv", NEW)
    confidence = experiment.load(texts).predict_proba(NEW).max(1)
    threshold = float(np.sort(confidence)[1:3].mean())
    assert _main(texts, path, "--abstain_below", threshold) == 0
    done = capsys.readouterr()
    rows = list(csv.DictReader(done.out.splitlines()))
    assert [bool(row["label"]) for row in rows] == (confidence >= threshold).tolist()
    assert all(row["confidence"] for row in rows)
    assert "2 of 4 rows abstained" in done.err


def test_chunks(
    texts: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only so many rows are in memory at a time; progress has the time that is left."""
    new = [" ".join("abcd"[(i + j) % 4] for j in range(i % 20 + 1)) for i in range(50)]
    path = _write(tmp_path / "new.csv", new)
    classifier = experiment.load(texts)
    lines: list[str] = []
    monkeypatch.setattr(_predict, "_ROWS", 16)
    monkeypatch.setattr(_predict, "_SECONDS", 0.0)
    sizes = []
    calls = classifier.predict_proba

    def counted(columns: Any, *options: Any) -> np.ndarray:
        sizes.append(len(columns["text"]))
        return calls(columns, *options)

    monkeypatch.setattr(classifier, "predict_proba", counted)
    out = tmp_path / "out.csv"
    assert experiment.predict_file(classifier, path, out, log=lines.append) == (50, 0, 0)
    assert sizes == [16, 16, 16, 2]
    _check(_rows(out), calls(new), ("bad", "good"))
    assert lines[0] == f"{path}: columns: text = 'review'"
    assert lines[1].startswith("16 rows, 33%, ")
    assert lines[1].endswith(" s to go")
    assert lines[-1].startswith("50 rows in ")


def test_arrays_and_folders_of_images(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    digits = data.load("digits", "test", num_train=60).inputs["image"][:6]
    classifier = experiment.load(images)
    probs = classifier.predict_proba(digits)
    np.savez_compressed(tmp_path / "new.npz", image=digits, labels=np.zeros(6))
    assert _main(images, tmp_path / "new.npz", "--out", tmp_path / "a.csv") == 0
    _check(_rows(tmp_path / "a.csv"), probs, classifier.label_names)
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for i, image in enumerate(digits):
        Image.fromarray(image[..., 0]).save(folder / ("more" if i > 3 else "") / f"{i}.png")
    (folder / "9.png").write_bytes(b"no image")
    assert _main(images, folder, "--out", tmp_path / "b.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    names = ["0.png", "1.png", "2.png", "3.png", "9.png", "more/4.png", "more/5.png"]
    assert [row["input"] for row in rows] == names
    assert rows.pop(4)["label"] is None
    _check(rows, probs, classifier.label_names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error: what is to be done? Give INPUT to classify, or --export FOLDER"),
        (("none.csv",), "none.csv: there is no such file or folder"),
        (("new.txt",), "new.txt: expected a file that ends with one of .csv"),
        (("new.csv", "--out", "out.txt"), "out='out.txt': expected a name that ends in .csv"),
        (("new.csv", "--out", "no/out.csv"), "out='no/out.csv': there is no folder no"),
        (("new.csv", "--abstain_below", "7"), "abstain_below=7: expected a confidence, 0 to 1"),
        (
            ("new.csv", "--calibrator", "ets"),
            "calibrator='ets': expected one of temperature, spline",
        ),
        (("other.csv",), "other.csv: expected the columns review; it has id, first, second"),
        (("new.npz",), "new.npz: expected the array text, it has image"),
        (("folder",), "folder: expected a file with text, got a folder"),
        (("damaged.npz",), "damaged.npz: not a whole npz archive without pickled objects"),
    ],
)
def test_mistakes_are_one_line(
    texts: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "new.csv", ["a"])
    (tmp_path / "new.txt").write_text("a\n")
    (tmp_path / "other.csv").write_text("id,first,second\n1,a,b\n")
    (tmp_path / "damaged.npz").write_bytes(b"PK")
    (tmp_path / "folder").mkdir()
    np.savez(tmp_path / "new.npz", image=np.zeros((2, 3, 3, 1), np.uint8))
    before = sorted(tmp_path.iterdir())
    assert _main(texts, *arguments) == 2
    done = capsys.readouterr()
    assert done.out == ""
    assert message in done.err
    assert done.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_images_of_another_size(
    images: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "new.npz", image=np.zeros((2, 3, 3, 1), np.uint8))
    assert _main(images, tmp_path / "new.npz") == 2
    assert "image has shape (2, 3, 3, 1), expected (n, 8, 8, 1)" in capsys.readouterr().err
    objects = np.array([{}, {}], object)
    np.savez(tmp_path / "objects.npz", image=objects)
    assert _main(images, tmp_path / "objects.npz") == 2
    assert "without pickled objects" in capsys.readouterr().err


def test_interrupted(
    texts: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither half a file nor a temporary one stays; an older output does."""
    path, out = _write(tmp_path / "new.csv", ["a"]), tmp_path / "out.csv"
    out.write_text("old")

    def interrupt(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_predict, "_classify", interrupt)
    assert _main(texts, path, "--out", out) == 130
    assert capsys.readouterr().err.endswith("\nstopped; no output file was written\n")
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "out.csv"]


def test_closed_pipe_is_one_line(texts: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = _write(tmp_path / "new.csv", ["a b"] * 9000)
    command = [sys.executable, "-m", "calib_jax.predict", str(texts), str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "input,label,confidence,p_bad,p_good\n"
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(300) == 141
    assert error.endswith("\nstopped: the reader of the output has closed it\n")


def test_export(images: pathlib.Path, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("flatbuffers")
    assert _main(images, "--export", tmp_path / "out", "--calibrator", "uncalibrated") == 0
    about = json.loads((tmp_path / "out" / "classifier.json").read_text())
    assert about == {"label_names": list("0123456789"), "calibrator": "uncalibrated"}
