"""Predictions of one label and of several independent ones, from file to table; conformal sets."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from scipy.special import expit, softmax

from calib_jax import evaluate, evaluation, metrics, posthoc
from calib_jax.evaluation._bootstrap import resample
from calib_jax.evaluation._labels import label_rows, macro_samples
from calib_jax.evaluation._sets import set_metrics

N, L = 400, 3


def make_data(seed: int, num_labels: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are three times too large."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=N if num_labels is None else (N, num_labels))
    return (3 * true).astype(np.float32), (rng.random(true.shape) < expit(true)).astype(np.int32)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("labels")
    for name, seed in (("test", 0), ("val", 1)):
        z, y = make_data(seed)
        np.savez(folder / f"one_{name}.npz", logits=z, labels=y)
        z, y = make_data(seed, L)
        np.savez(folder / "classes.npz", logits=z, labels=y[:, 0])
        np.savez(folder / f"many_{name}.npz", probs=expit(z), labels=y, label_names=list("abc"))
    return folder


def read(folder: pathlib.Path, name: str, text: str) -> evaluation.Predictions:
    (folder / name).write_text(text)
    return evaluation.load_predictions(folder / name)


def test_files_of_every_kind(files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    one = evaluation.load_predictions(files / "one_test.npz")
    assert one.is_independent
    assert one.num_classes == 1
    assert "400 predictions of one label: log odds" in one.notes[0]
    many = evaluation.load_predictions(files / "many_test.npz")
    assert many.is_independent
    assert many.num_classes == L
    assert many.label_names == ("a", "b", "c")
    np.testing.assert_allclose(many.logits, make_data(0, L)[0], atol=2e-3, rtol=1e-3)
    assert "probabilities of the label being 1" in many.notes[0]

    column = read(tmp_path, "one.csv", "label,prob\n0,0.25\n1,0.5\n")
    assert column.labels.tolist() == [0, 1]
    assert column.is_independent
    np.testing.assert_allclose(column.logits, [-np.log(3), 0], atol=1e-6)
    header = "label_a,label_b,prob_b,prob_a"
    table = read(tmp_path, "many.csv", f"{header}\n0,1,0.5,0.25\n1,1,0.25,0.5\n")
    assert table.labels.tolist() == [[0, 1], [1, 1]]
    assert table.label_names == ("a", "b")
    np.testing.assert_allclose(table.logits, [[-np.log(3), 0], [0, -np.log(3)]], atol=1e-6)
    assert len(table.notes) == 1
    lines = '{"labels": [0, 1], "logits": [2, -3]}\n{"labels": [0, 0], "logits": [1, 4]}\n'
    assert read(tmp_path, "many.jsonl", lines).logits.tolist() == [[2, -3], [1, 4]]
    np.save(tmp_path / "logits.npy", np.array([2.0, -3.0]))
    np.save(tmp_path / "labels.npy", np.array([True, False]))
    pair = evaluation.load_predictions(f"{tmp_path}/logits.npy,{tmp_path}/labels.npy")
    assert pair.is_independent
    assert pair.labels.tolist() == [1, 0]


def test_the_command_on_one_label(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [files / "one_test.npz", "--validation", files / "one_val.npz"]
    options = ["--calibrate", "platt", "--out", tmp_path, "--num_bootstrap", 40]
    assert evaluate.main([str(x) for x in (*arguments, *options)]) == 0
    text = capsys.readouterr().out
    assert "| ECE-15 of P(y=1) %" in text
    assert "| ECE-15 of max(p, 1−p) %" in text
    assert "of each label" not in text
    record = json.loads((tmp_path / "results.json").read_text())
    before, after = record["results"]
    z, y = make_data(0)
    want = {k: float(v) for k, v in metrics.binary_summary(z, y).items()}
    for key, value in want.items():
        assert before["metrics"][key] == pytest.approx(value, rel=1e-5), key
    fitted = posthoc.Platt.fit(*make_data(1))
    assert after["parameters"]["slope"] == pytest.approx([float(fitted.slope)], rel=1e-4)
    ece = float(metrics.binary_ece(fitted(z), y))
    assert after["metrics"]["ece_positive"] == pytest.approx(ece, rel=1e-3)
    # What a slope gains on logits that are three times too large is no chance.
    assert after["differences"]["ece_positive"][1] < 0
    assert "By label" not in (tmp_path / "report.html").read_text()


def test_the_command_on_several_labels(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "platt.npz"
    options = ["--calibrate", "platt", "--save_calibrator", saved, "--out", tmp_path]
    options += ["--num_bootstrap", 40]
    assert evaluate.main([str(x) for x in (files / "many_test.npz", *options)]) == 0
    text = capsys.readouterr().out
    assert "means over the labels; of each label:" in text
    assert "fitted on all rows of the predictions" in text
    assert [line.split()[1] for line in text.splitlines() if line[:4] in ("| a ", "| b ")] == [
        *("a", "b", "a", "b")
    ]
    before = json.loads((tmp_path / "results.json").read_text())["results"][0]
    want = metrics.multilabel_summary(*make_data(0, L))
    np.testing.assert_allclose(before["per_label"]["ece_top"], want.per_label["ece_top"], atol=2e-5)
    np.testing.assert_allclose(before["metrics"]["ece_top"], want.macro["ece_top"], atol=2e-5)
    assert "By label" in (tmp_path / "report.html").read_text()

    calibrator = posthoc.load(saved)
    new = make_data(5, L)[0]
    np.savez(tmp_path / "new.npz", logits=new)  # no labels: the calibrator says what they are
    assert (
        evaluate.main(["apply", *map(str, (saved, tmp_path / "new.npz", "--out", tmp_path))]) == 0
    )
    probs = np.load(tmp_path / "probs.npz")["probs"]
    np.testing.assert_allclose(probs, calibrator(new), atol=1e-6)
    np.savez(tmp_path / "new.npz", logits=new[:, :2])
    capsys.readouterr()
    assert (
        evaluate.main(["apply", *map(str, (saved, tmp_path / "new.npz", "--out", tmp_path))]) == 2
    )
    assert "expected [n, 3], the labels this Platt was fitted to" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["one_test", "--calibrate", "ets"], "of independent labels expected some of platt, beta"),
        (["one_test", "--sets", "0.1"], "conformal sets are of classes"),
        (["one_test", "--sets", "10"], "--sets=10.0: expected a value between 0 and 1"),
        (["many_test", "one_test"], "1 classes, but 3 in the predictions"),
        (["one_test", "classes"], "independent labels in one file and classes in the other"),
        (["one_test", "one_val"], "expected predictions on the same examples in the same order"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, files: pathlib.Path, tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    full = [
        f"{files}/{a}.npz" if a.startswith(("one", "many", "classes")) else a for a in arguments
    ]
    assert evaluate.main([*full, "--out", str(tmp_path), "--num_bootstrap", "2"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_warnings_of_validation_rows(files: pathlib.Path) -> None:
    test, val = (evaluation.load_predictions(files / f"many_{x}.npz") for x in ("test", "val"))
    assert evaluation.validation_warnings(test, val, ["platt"]) == []
    ones = np.where(np.arange(L) == 1, 1, val.labels).astype(np.int32)
    (warning,) = evaluation.validation_warnings(
        test, dataclasses.replace(val, labels=ones), ["platt"]
    )
    assert warning == "validation has either no 0 or no 1 of 1 of 3 labels (b)"
    (warning,) = evaluation.validation_warnings(test, test, ["platt"])
    assert warning.startswith("400 of 400 validation rows are also in the predictions")


def test_resampled_metrics_are_those_of_the_drawn_rows() -> None:
    """The macro averages of a bootstrap against the metrics of the same rows, drawn."""
    z, y = make_data(2, L)
    got = macro_samples(resample(label_rows(z, y), seed=3, num_samples=2))
    rng = np.random.default_rng(3)
    for i in range(2):
        drawn = rng.integers(0, N, N)
        want = metrics.multilabel_summary(z[drawn], y[drawn]).macro
        for key, values in got.items():
            np.testing.assert_allclose(values[i], want[key], atol=2e-5, err_msg=key)
    assert len(got) == 8


def test_sets_never_see_the_rows_of_their_calibrator() -> None:
    """A calibrator that knows the labels it was fitted to; its thresholds are of other rows."""
    rng = np.random.default_rng(0)
    n, k = 4000, 5
    labels = rng.integers(0, k, n)
    logits = rng.normal(size=(n, k)).astype(np.float32)
    fold = rng.integers(0, 2, n).astype(np.int32)
    got = set_metrics(logits, labels, 0.2, fold=fold, seed=1)
    for score, values in got.items():
        assert abs(values["coverage"] - 0.8) < 4 * np.sqrt(0.2 * 0.8 * 2 / n), score
        assert values["worst_class_coverage"] < values["coverage"]
    # By hand: the halves of each fold, and the threshold of the other half.
    halves_rng, covered, size = np.random.default_rng(1), 0, 0
    probs = softmax(logits.astype(np.float64), axis=1)
    for i in (0, 1):
        a, b = np.array_split(halves_rng.permutation(np.flatnonzero(fold == i)), 2)
        for fit_on, use_on in ((a, b), (b, a)):
            assert (fold[fit_on] == fold[use_on][0]).all()
            assert not set(fit_on) & set(use_on)
            scores = np.sort(1 - probs[fit_on, labels[fit_on]])
            threshold = scores[int(np.ceil(0.8 * (len(fit_on) + 1))) - 1]
            sets = 1 - probs[use_on] <= threshold + 1e-7
            covered += sets[np.arange(len(use_on)), labels[use_on]].sum()
            size += sets.sum()
    assert got["lac"]["coverage"] == pytest.approx(covered / n, abs=2 / n)
    assert got["lac"]["set_size"] == pytest.approx(size / n, abs=1e-3)


def test_the_command_with_sets(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, N)
    np.savez(
        tmp_path / "p.npz", logits=3 * (rng.normal(size=(N, 4)) + np.eye(4)[labels]), labels=labels
    )
    arguments = ["p.npz", "--calibrate", "temperature", "--sets", "0.1", "--num_bootstrap", "5"]
    arguments[0] = str(tmp_path / "p.npz")
    assert evaluate.main([*arguments, "--no_interactive", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "conformal sets that may miss the label in 10 % of the examples" in text
    assert "| temperature, raps" in text
    assert "Conformal sets" in (tmp_path / "report.html").read_text()
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    for result in results:
        for values in result["sets"].values():
            assert abs(values["coverage"] - 0.9) < 0.07
    # The calibrators of the two halves differ, so the sets are of quarters, not of all rows.
    (predictions,) = [evaluation.load_predictions(tmp_path / "p.npz")]
    (_, fitted) = evaluation.evaluate(predictions, None, ["temperature"], alpha=0.1, num_samples=2)
    assert fitted.sets == results[1]["sets"]
