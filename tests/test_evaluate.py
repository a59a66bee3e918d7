"""`python -m calib_jax.evaluate`: what it accepts, refuses, prints and writes."""

import json
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from calib_jax import evaluate, evaluation, posthoc
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
    script = "import sys; from calib_jax import evaluate, evaluation; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "calib_jax.evaluation" in modules
    for name in (
        *("orbax", "flax", "transformers", "tensorflow_datasets", "ml_collections"),
        *("matplotlib", "optax", "pyarrow", "sklearn"),
    ):
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
    assert "500 resamples" in text
    # The logits were made three times too large: what a temperature gains is no chance.
    assert re.search(r"\| NLL \(nats\) +\| +-\d\.\d+ \[-\d\.\d+, -\d\.\d+\] ! \|", text)
    assert "Overconfident by" in text


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


def test_probabilities_in_place_of_logits_are_refused() -> None:
    logits, labels = _logits()
    good = evaluation.Predictions(logits, labels)
    bad = evaluation.Predictions(_softmax(logits), labels)
    message = r"so these are probabilities; use check_predictions\('probs', probs, labels\)"
    with pytest.raises(ValueError, match="test: .*" + message):
        evaluation.evaluate(bad, num_samples=2)
    with pytest.raises(ValueError, match="validation: .*" + message):
        evaluation.evaluate(good, bad, num_samples=2)
    with pytest.raises(ValueError, match="b: .*" + message):
        evaluation.compare({"a": good, "b": bad}, num_samples=2)
    (result,) = evaluation.evaluate(bad, num_samples=2, check=False)
    assert round(result.metrics["accuracy"], 6) == (logits.argmax(1) == labels).mean()


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
        ({"probs": GOOD - 1, "labels": Y}, "these are no probabilities (-0.6667 is none)"),
        ({"predictions": GOOD * 1.5, "labels": Y}, "name the array 'logits'"),
        ({"logits": GOOD * np.nan, "labels": Y}, "6 rows hold NaN or infinity, the first is row 0"),
        ({"logits": GOOD[:0], "labels": Y[:0]}, "there are no predictions (0 rows)"),
        (
            {"logits": GOOD[:, :1], "labels": Y},
            "expected 0 or 1, found 2; of one score per example",
        ),
        ({"logits": GOOD[0], "labels": Y}, "expected 0 or 1 of shape (3,) to match the scores"),
        (
            {"logits": GOOD[None], "labels": Y},
            "expected [n, num_classes >= 2], got shape (1, 6, 3)",
        ),
        (
            {"probs": GOOD[:, 0] * 9, "labels": Y % 2},
            "3 is no probability; log odds go by the name",
        ),
        ({"logits": GOOD[:, 0] * np.nan, "labels": Y % 2}, "6 rows hold NaN or infinity"),
        ({"probs": GOOD, "labels": GOOD > 0}, "every row sums to 1, so these are probabilities of"),
        ({"logits": GOOD}, "expected 'labels', found 'logits'"),
        ({"labels": Y}, "expected 'logits' or 'probs', found 'labels'"),
        ({}, "found nothing"),
        (
            {"logits": GOOD, "labels": np.array(list("abcabc"))},
            "expected class numbers, got text such as 'a'",
        ),
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
        ("p.txt", b"", "expected a file of one of these kinds: .npz, .csv"),
        ("p.pth", b"", "a pickle, which is never loaded; convert it: python -c"),
        ("p.csv", b"a,b\n1,2\n", "expected a header with a 'label' column"),
        ("p.csv", b"label,a,b\n0,1,x\n", "line 2, column 'b': expected a number, got 'x'"),
        ("p.csv", b"label,a,b\n0,1,2,3\n", "line 2: 3 columns in the header, 4 here"),
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
    assert "validation: 3 classes, but 4 in the predictions" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evaluate.main([])
    assert "required: PREDICTIONS" in capsys.readouterr().err


def _main(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = evaluate.main(list(map(str, arguments)))
    output = capsys.readouterr()
    return code, output.out, output.err


def test_page_and_record(evaluated: tuple[str, pathlib.Path]) -> None:
    _, out = evaluated
    page = (out / "report.html").read_text()
    assert "Overconfident by" in page
    record = json.loads((out / "results.json").read_text())
    assert record["num_bootstrap"] == 500
    assert record["results"][1]["differences"]["nll"][1] < 0
    assert record["results"][0]["differences"] == {}


def test_saved_calibrator_is_applied_to_other_predictions(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, out = tmp_path / "t.npz", tmp_path / "out"
    test, validation = files / "test.npz", files / "validation.npz"
    options = ("--calibrate", "temperature", "--save_calibrator", saved, "--num_bootstrap", 3)
    code, text, _ = _main(capsys, validation, *options, "--out", out, "--no_interactive")
    assert code == 0
    assert f"saved: {saved} (temperature, fitted on all rows of the predictions)" in text
    assert "[95 % bootstrap interval, 3 resamples of the examples]" in text
    calibrator = posthoc.load(saved)
    logits, labels = _logits(seed=1)
    want = posthoc.Temperature.fit(logits.astype(np.float32), labels).temperature
    np.testing.assert_allclose(calibrator.temperature, want, rtol=1e-5)

    np.savez(tmp_path / "new.npz", logits=_logits()[0])  # no labels
    code, text, _ = _main(capsys, "apply", saved, tmp_path / "new.npz", "--out", out)
    assert code == 0
    assert "probs.npz (probs (400, 4), by Temperature)" in text
    probs = np.load(out / "probs.npz")["probs"]
    np.testing.assert_allclose(probs, _softmax(_logits()[0] / float(want)), atol=1e-5)

    code, text, _ = _main(capsys, test, "--validation", validation, *options, "--out", out)
    assert code == 0
    assert "fitted on the validation rows" in text

    np.savez(tmp_path / "other.npz", logits=GOOD * 9)
    code, _, error = _main(capsys, "apply", saved, tmp_path / "other.npz", "--out", out)
    assert code == 2
    assert "3 classes; this Temperature was fitted to 4" in error
    code, _, error = _main(capsys, "apply", test, test, "--out", out)
    assert code == 2
    assert "not a calibrator" in error


def test_files_are_compared(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logits, labels = _logits()
    np.savez(tmp_path / "sharp.npz", logits=3 * logits, labels=labels)
    both = (files / "test.npz", tmp_path / "sharp.npz")
    code, text, _ = _main(capsys, *both, "--out", tmp_path / "out", "--num_bootstrap", 50)
    assert code == 0
    assert "| less test" in text
    assert re.search(r"\| NLL \(nats\) +\| +\d\.\d+ \[\d\.\d+, \d\.\d+\] ! \|", text)
    assert re.search(r"\| accuracy % +\| +0.00 \[0.00, 0.00\] +\|", text)
    code, _, error = _main(capsys, files / "test.npz", files / "validation.npz", "--out", tmp_path)
    assert code == 2
    assert "expected predictions on the same examples in the same order" in error


def test_warnings(
    files: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test, validation = files / "test.npz", files / "validation.npz"
    options = ("--num_bootstrap", 2, "--out", tmp_path, "--no_interactive")
    _, text, _ = _main(capsys, test, "--validation", validation, *options)
    assert "warning: --validation is given without --calibrate, so nothing is fitted" in text
    logits, labels = _logits(n=12)
    np.savez(tmp_path / "few.npz", logits=logits, labels=labels % 3)
    names = ("--calibrate", "vector")
    _, text, _ = _main(capsys, test, "--validation", tmp_path / "few.npz", *names, *options)
    assert "warning: validation has no example of 1 of 4 classes (3)" in text
    assert "warning: vector: fitted on 12 rows, few for 8 parameters (expected 5 rows" in text
    _, text, _ = _main(capsys, test, "--validation", test, "--calibrate", "temperature", *options)
    assert "warning: 400 of 400 validation rows are also in the predictions" in text
    logits, labels = _logits(seed=1)
    logits[:30], labels[:30] = _logits()[0][50:80], _logits()[1][50:80]
    np.savez(tmp_path / "part.npz", logits=logits, labels=labels)
    names = ("--calibrate", "temperature")
    _, text, _ = _main(capsys, test, "--validation", tmp_path / "part.npz", *names, *options)
    assert "warning: 30 of 400 validation rows are also in the predictions" in text
    # Rows of few values repeat by themselves.
    for name, seed in (("a", 0), ("b", 1)):
        logits, labels = _logits(seed=seed)
        np.savez(tmp_path / f"{name}.npz", logits=np.sign(logits), labels=labels)
    _, text, _ = _main(
        capsys, tmp_path / "a.npz", "--validation", tmp_path / "b.npz", *names, *options
    )
    assert "warning:" not in text
    # Guesses: the less confident the better.
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "guess.npz",
        logits=20 * rng.normal(size=(400, 4)),
        labels=rng.integers(0, 4, 400),
    )
    names = ("--calibrate", "temperature_ece")
    _, text, _ = _main(capsys, tmp_path / "guess.npz", *names, *options)
    assert "temperature 5 lies at the end of its grid (0.01 to 5): the best one may be" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num_bootstrap", "0"], "--num_bootstrap=0: expected at least 1"),
        (["--save_calibrator", "c.npz"], "--save_calibrator: expected one file of predictions and"),
        (
            ["--calibrate", "ets", "--save_calibrator", "c.pkl"],
            "--save_calibrator c.pkl: expected a name ending in .npz",
        ),
        (["{files}/test.npz"], "expected different files to compare"),
        (["b.npz", "--validation", "c.npz"], "--validation: expected one file of predictions"),
        (["--out", "/proc/no"], "--out /proc/no: cannot be written to ("),
        (["--out", "{files}/test.npz/x"], "cannot be written to (Not a directory)"),
    ],
)
def test_arguments_are_checked_before_anything_is_read(
    arguments: list[str],
    message: str,
    files: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation._command, "load_predictions", None)
    given = [argument.format(files=files) for argument in arguments]
    code, out, error = _main(capsys, files / "test.npz", *given)
    assert code == 2
    assert out == ""
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(28, "No space left on device", "x/results.json"),
            1,
            "No space left on device: x/",
        ),
        (PermissionError(13, "Permission denied", "x"), 1, "error: Permission denied: x"),
        (MemoryError(), 1, "error: not enough memory"),
    ],
)
def test_failures_are_one_line(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(evaluation, "run_evaluation", fail)
    got, _, text = _main(capsys, "p.npz")
    assert got == code
    assert message in text
    assert len(text.strip().splitlines()) == 1


def test_closed_pipe_and_full_disk() -> None:
    """In a process of its own: what is left in the buffer is written at exit."""
    script = (
        "import sys; from calib_jax import evaluate, evaluation; "
        "evaluation.run_evaluation = lambda *a, **k: print('x' * int(sys.argv[1])); "
        "sys.exit(evaluate.main(['p.npz']))"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        [*command, "1000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    if not pathlib.Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*command, "10"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr == "error: No space left on device\n"
    assert done.returncode == 1


def test_progress_is_shown_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluation._command, "_PROGRESS_SECONDS", 0.01)
    with evaluation._command.Progress() as progress:
        progress("fitting")
        while not progress.shown:
            time.sleep(0.01)
    assert re.fullmatch(r"\[\d+ s\] fitting\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("name", "accuracy", "ece"),
    [("wideresnet-16-4-cifar-10", 0.911, 0.054), ("densenet-bc-100-cifar-100", 0.754, 0.142)],
)
def test_real_networks(data_dir: pathlib.Path, name: str, accuracy: float, ece: float) -> None:
    path = data_dir / "softmax_outputs" / f"{name}.npz"
    (result,) = evaluation.evaluate(evaluation.load_predictions(path), num_samples=4)
    assert round(result.metrics["accuracy"], 3) == accuracy
    assert round(result.metrics["ece"], 3) == ece
