"""`python -m calib_jax.evaluate`: what it accepts, refuses, prints and writes."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from calib_jax import evaluate, evaluation
from calib_jax.evaluation import check_predictions


def _logits(n: int = 400, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    return 3 * (rng.normal(size=(n, k)) + np.eye(k)[labels]), labels


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("predictions")
    for name, seed in (("test", 0), ("validation", 1)):
        logits, labels = _logits(seed=seed)
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    return folder


@pytest.fixture(scope="module")
def evaluated(files: pathlib.Path) -> tuple[str, pathlib.Path]:
    """One full run, in a process of its own."""
    out = files / "out"
    command = f"-m calib_jax.evaluate {files}/test.npz --validation {files}/validation.npz"
    command += f" --calibrate temperature,ets,spline --out {out}"
    done = subprocess.run(
        [sys.executable, *command.split()],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, out


def test_nothing_that_trains_is_imported() -> None:
    script = "import sys; from calib_jax import evaluate; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "calib_jax.evaluation" in modules
    for name in ("orbax", "flax", "transformers", "tensorflow_datasets", "ml_collections"):
        assert name not in modules, name
    for room in ("train", "models", "data", "methods", "experiment", "llm"):
        assert f"calib_jax.{room}" not in modules, room


def test_table_has_a_column_per_calibrator_and_intervals(
    evaluated: tuple[str, pathlib.Path],
) -> None:
    text, _ = evaluated
    header = next(line for line in text.splitlines() if line.startswith("| metric"))
    columns = [c.strip() for c in header.strip("|").split("|")]
    assert columns == ["metric", "uncalibrated", "temperature", "ets", "spline"]
    assert re.search(r"ECE-15 equal width % +\| +\d+\.\d\d \[\d+\.\d\d, \d+\.\d\d\]", text)
    assert "logits (from 'logits')" in text
    assert re.search(r"temperature: temperature = \d", text)


def test_results_agree_with_numpy(evaluated: tuple[str, pathlib.Path]) -> None:
    _, out = evaluated
    record = json.loads((out / "results.json").read_text())
    logits, labels = _logits()
    p = _softmax(logits)
    confidence, correct = p.max(1), p.argmax(1) == labels
    index = np.clip(np.ceil(confidence * 15) - 1, 0, 14)
    ece = sum(
        abs(confidence[index == b].sum() - correct[index == b].sum()) for b in range(15)
    ) / len(labels)
    before = record["results"][0]
    assert before["name"] == "uncalibrated"
    np.testing.assert_allclose(before["metrics"]["accuracy"], correct.mean(), atol=1e-6)
    np.testing.assert_allclose(before["metrics"]["ece"], ece, atol=1e-5)
    low, high = before["intervals"]["accuracy"]
    assert low < correct.mean() < high
    # The logits were made three times too large.
    after = record["results"][1]
    assert after["metrics"]["ece"] < before["metrics"]["ece"] / 2
    assert after["metrics"]["accuracy"] == before["metrics"]["accuracy"]


def test_pictures_are_drawn(evaluated: tuple[str, pathlib.Path]) -> None:
    _, out = evaluated
    for name in ("reliability.png", "risk_coverage.png"):
        with Image.open(out / name) as picture:
            assert min(picture.size) > 300
            assert len(picture.convert("L").getcolors(maxcolors=1000)) > 20


def test_probabilities_give_the_same_metrics_as_their_logits(files: pathlib.Path) -> None:
    logits, labels = _logits()
    probs = check_predictions("probs", _softmax(logits), labels)
    assert "probabilities" in probs.notes[0]
    as_logits = check_predictions("logits", logits, labels)
    a, b = (evaluation.evaluate(x, num_samples=4)[0].metrics for x in (probs, as_logits))
    for key in a:
        np.testing.assert_allclose(a[key], b[key], atol=1e-4, err_msg=key)


def test_probabilities_called_logits_are_recognized() -> None:
    logits, labels = _logits()
    assert "probabilities" in check_predictions("logits", _softmax(logits), labels).notes[0]


def test_csv_reads_like_npz(tmp_path: pathlib.Path) -> None:
    logits, labels = _logits(n=20)
    path = tmp_path / "p.csv"
    rows = [",".join([str(y), *(f"{z:.7f}" for z in row)]) for y, row in zip(labels, logits)]  # noqa: B905
    path.write_text("label,logit_0,logit_1,logit_2,logit_3\n" + "\n".join(rows) + "\n")
    found = evaluation.load_predictions(path)
    np.testing.assert_allclose(found.logits, logits, atol=1e-6)
    np.testing.assert_array_equal(found.labels, labels)


def test_cross_fitting_evaluates_every_example_by_the_other_half() -> None:
    logits, labels = _logits(n=200)
    predictions = check_predictions("logits", logits, labels)
    before, after = evaluation.evaluate(predictions, calibrators=["temperature"], num_samples=4)
    assert len(after.confidence) == 200
    assert len(after.parameters["temperature"]) == 2  # one per half
    assert after.metrics["nll"] < before.metrics["nll"]


GOOD = np.full((6, 3), 1 / 3)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": GOOD, "labels": Y + 1}, "expected 0 to 2, row 2 has 3; do they count from 1?"),
        ({"logits": GOOD, "labels": Y - 1}, "expected 0 to 2, row 0 has -1"),
        ({"logits": GOOD, "labels": Y + 0.5}, "expected whole numbers, row 0 has 0.5"),
        ({"logits": GOOD, "labels": Y[:4]}, "expected shape (6,) to match the scores, got (4,)"),
        ({"probs": GOOD * 1.5, "labels": Y}, "row 0 is no probability distribution (sum 1.5"),
        ({"probs": GOOD - 1, "labels": Y}, "no probability distribution"),
        ({"predictions": GOOD * 1.5, "labels": Y}, "name the array 'logits'"),
        ({"logits": GOOD * np.nan, "labels": Y}, "6 rows hold NaN or infinity, the first is row 0"),
        ({"logits": GOOD[:0], "labels": Y[:0]}, "there are no predictions (0 rows)"),
        ({"logits": GOOD[:, :1], "labels": Y}, "a binary classifier needs a column for each class"),
        ({"logits": GOOD[0], "labels": Y}, "expected [n, num_classes >= 2], got shape (3,)"),
        ({"logits": GOOD}, "expected 'labels', found 'logits'"),
        ({"labels": Y}, "expected 'logits' or 'probs', found 'labels'"),
        ({}, "found nothing"),
        ({"logits": GOOD, "labels": np.array(list("abcabc"))}, "expected class numbers, got <U1"),
        (
            {"logits": GOOD.astype(object), "labels": Y},
            "holds Python objects, which are never loaded",
        ),
    ],
)
def test_refuses_with_one_line(
    arrays: dict, message: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    assert evaluate.main([str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(path) in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.npz", None, "no such file"),
        ("p.npz", b"not a zip", "not a readable npz archive"),
        ("p.txt", b"", "expected a .npz or .csv file"),
        ("p.csv", b"a,b\n1,2\n", "expected a header with a 'label' column"),
        ("p.csv", b"label,a,b\n0,1,x\n", "could not convert"),
        ("p.csv", b"label,a,b\n0,1,2,3\n", "3 columns in the header, 4 in the rows"),
        ("p.csv", b"label,a,b\n", "there are no predictions (0 rows)"),
    ],
)
def test_refuses_files(
    name: str,
    content: bytes | None,
    message: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert evaluate.main([str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_refuses_wrong_names_and_sizes(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([str(files / "test.npz"), "--calibrate", "temprature"]) == 2
    assert "calibrate='temprature': expected some of temperature, ets" in capsys.readouterr().err
    np.savez(tmp_path / "other.npz", logits=GOOD * 9, labels=Y)
    arguments = [str(files / "test.npz"), "--validation", str(tmp_path / "other.npz")]
    assert evaluate.main([*arguments, "--calibrate", "temperature"]) == 2
    assert "validation has 3 classes, the predictions 4" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evaluate.main([])
    assert "required: PREDICTIONS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10", 0.911, 0.054), ("densenet-bc-100-cifar-100", 0.754, 0.142)],
)
def test_real_networks(data_dir: pathlib.Path, name: str, accuracy: float, ece: float) -> None:
    path = data_dir / "softmax_outputs" / f"{name}.npz"
    (result,) = evaluation.evaluate(evaluation.load_predictions(path), num_samples=4)
    assert round(result.metrics["accuracy"], 3) == accuracy
    assert round(result.metrics["ece"], 3) == ece
