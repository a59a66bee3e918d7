"""What a run leaves is enough to use its network: without its data, on one device, and exported."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
import trained
from experiment import small  # noqa: F401 - it silences what orbax leaves of a damaged checkpoint
from quick import with_devices

from calib_jax import data, experiment, models, posthoc, train
from calib_jax.experiment._inputs import as_columns

RESNET = {"stages": (1,), "widths": (4,), "bottleneck": False, "stem_width": 4}
Runs = dict[str, pathlib.Path]
Classifiers = dict[str, experiment.Classifier]
needs_flatbuffers = pytest.mark.skipif(
    importlib.util.find_spec("flatbuffers") is None, reason="needs flatbuffers"
)
KINDS = ("mlp", "resnet", "text_cnn", "encoder")


def _config(kind: str, folder: pathlib.Path) -> Any:
    if kind == "text_cnn":
        return trained.texts(folder)
    if kind == "encoder":
        return trained.tokens(folder)
    changes: dict[str, Any] = {}
    if kind == "resnet":
        changes = {"model__name": "resnet50", "model__options": RESNET}
    return trained.images(**changes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The folder of a run of each kind, without the files it was trained from."""
    folders = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        run = trained.run(_config(kind, folder), folder / "work")
        if kind in ("text_cnn", "encoder"):
            dataset = data.load("csv", "test", path=str(folder / "reviews.csv"), text="review")
            np.savez(run / "texts.npz", texts=dataset.inputs["text"].astype(str))
        folders[kind] = tmp_path_factory.mktemp("elsewhere") / "seed_0"
        shutil.copytree(run, folders[kind])
        shutil.rmtree(folder)
    return folders


@pytest.fixture(scope="module")
def loaded(runs: Runs) -> Classifiers:
    return {kind: experiment.load(run) for kind, run in runs.items()}


def _inputs(kind: str, run: pathlib.Path) -> Any:
    if kind in ("mlp", "resnet"):
        return data.load("digits", "test", num_train=60).inputs["image"]
    return trained.arrays(run / "texts.npz")["texts"].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_run(kind: str, runs: Runs, loaded: Classifiers) -> None:
    test = trained.arrays(runs[kind] / "logits" / "test.npz")
    inputs = _inputs(kind, runs[kind])
    classifier = loaded[kind]
    logits = classifier.logits(inputs)
    assert logits.dtype == np.float32
    assert np.ptp(logits, axis=0).max() > 1e-3  # not all the same
    np.testing.assert_allclose(logits, test["logits"], atol=1e-6)
    # In another order and number, and so in other batches of other lengths.
    few = [7, 0, 3]
    np.testing.assert_allclose(
        classifier.logits([inputs[i] for i in few]), test["logits"][few], atol=1e-6
    )


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_runs_calibrators(
    kind: str, runs: Runs, loaded: Classifiers
) -> None:
    run, classifier = runs[kind], loaded[kind]
    logits = trained.arrays(run / "logits" / "test.npz")["logits"]
    val = trained.arrays(run / "logits" / "val.npz")
    inputs = _inputs(kind, run)
    # A spline has steep pieces, where the last bit of a confidence shows.
    for name, tolerance in (("temperature", 1e-6), ("spline", 1e-3)):
        fitted = posthoc.CALIBRATORS[name](val["logits"], val["labels"])
        probs = classifier.predict_proba(inputs, name)
        np.testing.assert_allclose(probs, fitted(logits), atol=tolerance)
    first = classifier.predict_proba(inputs, "temperature")
    np.testing.assert_array_equal(classifier.predict_proba(inputs), first)
    np.testing.assert_allclose(
        classifier.predict_proba(inputs, "uncalibrated"), jax.nn.softmax(logits), atol=1e-6
    )
    names = np.array(classifier.label_names)
    np.testing.assert_array_equal(classifier.predict(inputs), names[logits.argmax(1)])


def test_label_names(loaded: Classifiers) -> None:
    assert loaded["encoder"].label_names == loaded["text_cnn"].label_names == ("bad", "good")
    assert loaded["mlp"].label_names == tuple("0123456789")


def test_forms_of_inputs_agree(runs: Runs, loaded: Classifiers) -> None:
    texts = _inputs("encoder", runs["encoder"])[:6]
    encoder = loaded["encoder"]
    logits = encoder.logits(texts)
    column = np.array(texts, object)
    rows = np.arange(6, dtype=np.int32)
    dataset = data.Dataset("new", "test", {"text": column}, rows, rows, ("bad", "good"))
    tokenized = dataclasses.replace(dataset, inputs=encoder.preprocessing({"text": column}))
    for inputs in (tuple(texts), column, {"text": texts}, dataset, tokenized):
        np.testing.assert_allclose(encoder.logits(inputs), logits, atol=1e-6)
    images = _inputs("mlp", runs["mlp"])[:6]
    logits = loaded["mlp"].logits(images)
    stacked = dataclasses.replace(dataset, inputs={"image": images})
    streamed = dataclasses.replace(dataset, inputs={}, read=lambda i, _: {"image": images[i]})
    for inputs in ({"image": images}, stacked, streamed, images.astype(np.float32) / 255):
        np.testing.assert_allclose(loaded["mlp"].logits(inputs), logits, atol=1e-5)
    assert encoder.predict_proba([]).shape == (0, 2)
    assert loaded["mlp"].predict(images[:0]).shape == (0,)


def test_many_inputs_are_few_programs(loaded: Classifiers) -> None:
    """Batches of texts have a few lengths, whatever the texts have."""
    encoder = loaded["encoder"]
    program: Any = encoder._logits
    texts = [" ".join("abcd"[i % 4] for i in range(n % 22)) for n in range(1, 4200)]
    probs = encoder.predict_proba(texts)
    before = program._cache_size()
    np.testing.assert_allclose(encoder.predict_proba(texts[::-1])[::-1], probs, atol=1e-6)
    assert program._cache_size() == before <= 8


PAIR = {"text": (), "pair": ()}
CHOICES = {"text": (), "choices": (2,)}


@pytest.mark.parametrize(
    ("shapes", "inputs", "message"),
    [
        ({"text": ()}, "one", r"inputs: expected a list of texts, got 'one' \(str\)"),
        ({"text": ()}, ["a", None], r"text: expected texts, row 1 has None \(NoneType\)"),
        ({"text": ()}, np.zeros((2, 3)), "text: expected texts, row 0 has array"),
        (PAIR, ["a"], r"expected a list of \(text, pair\) tuples of two texts, row 0 is 'a'"),
        (PAIR, [("a", 1)], r"pair: expected texts, row 0 has 1 \(int\)"),
        (PAIR, {"text": ["a"]}, "inputs: expected text, pair, got text"),
        (
            PAIR,
            {"text": ["a"], "pair": []},
            "as many rows of each column, got 1 of text, 0 of pair",
        ),
        (CHOICES, [("a", ["b"])], r"choices: expected 2 texts, row 0 has \['b'\] \(list\)"),
        (CHOICES, [("a", ["b", "c"]), ("a", ["b", 1])], "choices: expected texts, row 1 has 1"),
        (
            {"image": (8, 8, 1)},
            np.zeros((2, 9, 9, 1), np.uint8),
            r"uint8 \[n, 8, 8, 1\], got uint8 \[2",
        ),
        ({"image": (8, 8, 1)}, np.zeros((8, 8, 1), np.uint8), r"one example is x\[None\]"),
        (
            {"image": (1, 1, 1)},
            np.full((1, 1, 1, 1), 255.0),
            "floats of 0 to 1; got float64 of 255",
        ),
        ({"image": (1, 1, 1)}, np.full((1, 1, 1, 1), np.nan), "row 0 has NaN or infinity"),
        ({"image": (1, 1, 1)}, ["a"], r"image: expected uint8 \[n, 1, 1, 1\], got <U1"),
        (
            {"features": (2,)},
            [[1.0, 2.0, 3.0]],
            r"features: expected numbers \[n, 2\], got float64",
        ),
    ],
)
def test_wrong_inputs_are_one_line(shapes: Any, inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        as_columns(inputs, shapes)
    assert "\n" not in str(caught.value)


def test_pairs_and_choices_become_columns() -> None:
    pairs = as_columns([("a", "b"), ("c", "d")], PAIR)
    assert {name: rows.tolist() for name, rows in pairs.items()} == {
        "text": ["a", "c"],
        "pair": ["b", "d"],
    }
    choices = as_columns([("a", ["b", "c"])], CHOICES)
    assert choices["choices"].tolist() == [["b", "c"]]


def test_unknown_calibrator(loaded: Classifiers) -> None:
    message = "calibrator='temprature': expected one of temperature, spline, uncalibrated; did you"
    with pytest.raises(ValueError, match=message):
        loaded["mlp"].predict_proba(np.zeros((1, 8, 8, 1), np.uint8), "temprature")


def test_folders_that_are_no_run(runs: Runs, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="nowhere: there is no such folder"):
        experiment.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is not the folder of a run"):
        experiment.load(tmp_path)
    workdir = tmp_path / "work"
    for seed in (0, 1):
        shutil.copytree(runs["mlp"], workdir / "focal" / f"seed_{seed}")
    with pytest.raises(ValueError, match=r"expected one of them: focal/seed_0, focal/seed_1$"):
        experiment.load(workdir)
    with pytest.raises(ValueError, match=r"expected one of them: seed_0, seed_1$"):
        experiment.load(workdir / "focal")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("results.json", "has no results.json: it is not finished"),
        ("preprocessing.json", "an earlier version of calib_jax trained it"),
        ("checkpoints", r"checkpoints/\d+: there is no such checkpoint"),
        ("calibrators/spline.npz", r"spline.npz: no such file"),
    ],
)
def test_incomplete_runs(runs: Runs, tmp_path: pathlib.Path, missing: str, message: str) -> None:
    run = shutil.copytree(runs["mlp"], tmp_path / "run")
    path = run / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ValueError, match=message) as caught:
        experiment.load(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["results.json", "config.json", "preprocessing.json"])
def test_damaged_json(runs: Runs, tmp_path: pathlib.Path, name: str) -> None:
    run = shutil.copytree(runs["mlp"], tmp_path / "run")
    (run / name).write_text('{"half": ')
    with pytest.raises(ValueError, match=rf"{name}: damaged \("):
        experiment.load(run)


def test_damaged_checkpoint(runs: Runs, tmp_path: pathlib.Path) -> None:
    """Values that are not those saved are never used, even if they can be read."""
    run = shutil.copytree(runs["mlp"], tmp_path / "run")
    (check,) = run.glob("checkpoints/*/check/metadata")
    check.write_text(json.dumps(json.loads(check.read_text()) | {"network": 1}))
    with pytest.raises(ValueError, match="damaged; its values are not those that were saved"):
        experiment.load(run)
    for path in run.glob("checkpoints/*/state/d/*"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"checkpoints/\d+: cannot be read \("):
        experiment.load(run)


def test_own_network_has_to_be_passed(runs: Runs, tmp_path: pathlib.Path) -> None:
    run = shutil.copytree(runs["mlp"], tmp_path / "run")
    settings = {"name": "", "class": "mine.Network", "num_networks": 1}
    (run / "network.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"a network of its user's, mine.Network: pass it to"):
        experiment.load(run)
    images = _inputs("mlp", runs["mlp"])
    logits = trained.arrays(run / "logits" / "test.npz")["logits"]
    module = models.create("mlp", 10, widths=(8,))
    np.testing.assert_array_equal(experiment.load(run, module).logits(images), logits)
    other = models.create("mlp", 10, widths=(9,))
    with pytest.raises(ValueError, match=r"has shape \(8, 10\), expected \(9, 10\)$"):
        experiment.load(run, other)
    deeper = train.Network(models.create("mlp", 10, widths=(8, 8)))
    with pytest.raises(
        ValueError, match=r"of another network: .*layers_1.* has shape None, expected"
    ):
        experiment.load(run, deeper)


def test_network_of_a_config_file(runs: Runs, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from calib_jax import models\n\n\ndef get_network(config):\n"
        "    return models.create('mlp', 10, widths=config.model.options.widths)\n"
    )
    made = experiment.network_from_file(path, runs["mlp"])
    assert made == models.create("mlp", 10, widths=(8,))
    path.write_text("")
    with pytest.raises(ValueError, match=r"mine.py: expected a config file with a function get_ne"):
        experiment.network_from_file(path, runs["mlp"])
    with pytest.raises(ValueError, match=r"none.py: there is no such file"):
        experiment.network_from_file(tmp_path / "none.py", runs["mlp"])


_ON_DEVICES = """
import sys, pathlib, numpy as np
import trained
from calib_jax import data, experiment
run = trained.run(trained.images(train__sharding="fsdp"), pathlib.Path(sys.argv[1]))
classifier = experiment.load(run)
images = data.load("digits", "test", num_train=60).inputs["image"]
logits = trained.arrays(run / "logits" / "test.npz")["logits"]
np.testing.assert_allclose(classifier.logits(images), logits, atol=1e-5)
assert {d.id for x in [classifier.params["classifier"]["kernel"]] for d in x.devices()} == {0}
"""


@pytest.mark.slow
def test_trained_on_several_devices_used_on_one(runs: Runs, tmp_path: pathlib.Path) -> None:
    tests = pathlib.Path(__file__).parent.parent
    path = os.pathsep.join([str(tests.parent), str(tests), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", _ON_DEVICES, str(tmp_path)],
        env=with_devices(2, PYTHONPATH=path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_best_state_and_generation_are_loaded(tmp_path: pathlib.Path) -> None:
    """The checkpoint is the evaluated one: the best epoch of the best generation."""
    made = trained.images(
        method__name="csd", checkpoint__select="best", optimizer__schedule="cosine", train__epochs=3
    )
    made.method.csd.generations = 2
    run = trained.run(made, tmp_path)
    results = json.loads((run / "results.json").read_text())
    assert (run / results["checkpoint"]).is_dir()
    logits = trained.arrays(run / "logits" / "test.npz")["logits"]
    images = _inputs("mlp", run)
    np.testing.assert_allclose(experiment.load(run).logits(images), logits, atol=1e-6)


# As if calib_jax were not installed.
_BLOCKED = """
import runpy, sys
sys.modules["calib_jax"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _run_script(folder: pathlib.Path, inputs: pathlib.Path) -> tuple[list[str], np.ndarray]:
    """Labels and probabilities that the script of an export prints."""
    command = [sys.executable, "-c", _BLOCKED, str(folder / "predict.py"), str(inputs)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], np.float32)


def _texts(path: pathlib.Path) -> list[str]:
    texts = ["a b", "c d a b c d a b c, d", "d", "A unknown b-c", "a " * 40]
    path.write_text("\n".join(texts) + "\n")
    return texts


@needs_flatbuffers
def test_exported_images(loaded: Classifiers, tmp_path: pathlib.Path) -> None:
    classifier = loaded["mlp"]
    lines = experiment.export(classifier, tmp_path / "out", "spline")
    assert lines[0].endswith("for cpu, cuda, tpu; calibrator: spline")
    assert len(lines) == 2
    images = data.load("digits", "test", num_train=60).inputs["image"][:5]
    np.savez(tmp_path / "new.npz", image=images)
    labels, probs = _run_script(tmp_path / "out", tmp_path / "new.npz")
    np.testing.assert_allclose(probs, classifier.predict_proba(images, "spline"), atol=1e-5)
    assert labels == classifier.predict(images).tolist()
    assert len((tmp_path / "out" / "predict.py").read_text().splitlines()) < 20


@needs_flatbuffers
def test_exported_word_vectors(loaded: Classifiers, tmp_path: pathlib.Path) -> None:
    classifier = loaded["text_cnn"]
    experiment.export(classifier, tmp_path / "out")
    texts = _texts(tmp_path / "new.txt")
    labels, probs = _run_script(tmp_path / "out", tmp_path / "new.txt")
    np.testing.assert_allclose(probs, classifier.predict_proba(texts), atol=1e-6)
    assert labels == classifier.predict(texts).tolist()


@needs_flatbuffers
def test_exported_tokens(loaded: Classifiers, tmp_path: pathlib.Path) -> None:
    encoder = loaded["encoder"]
    experiment.export(encoder, tmp_path / "out")
    texts = _texts(tmp_path / "new.txt")
    labels, probs = _run_script(tmp_path / "out", tmp_path / "new.txt")
    np.testing.assert_allclose(probs, encoder.predict_proba(texts), atol=1e-6)
    assert labels == encoder.predict(texts).tolist()


@needs_flatbuffers
def test_exported_to_pytorch(loaded: Classifiers, tmp_path: pathlib.Path) -> None:
    encoder = loaded["encoder"]
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    lines = experiment.export(encoder, tmp_path)
    assert lines[2].endswith(
        "BertForSequenceClassification; divide its logits by config.calibration_temperature"
    )
    folder = tmp_path / "huggingface"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "bad", 1: "good"}
    texts = _texts(tmp_path / "new.txt")
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
    with torch.no_grad():
        logits = model.eval()(**tokens).logits
    np.testing.assert_allclose(logits, encoder.logits(texts), atol=1e-5)
    probs = torch.softmax(logits / model.config.calibration_temperature, dim=-1)
    np.testing.assert_allclose(probs, encoder.predict_proba(texts), atol=1e-5)


@needs_flatbuffers
def test_what_pytorch_cannot_do_is_said(loaded: Classifiers, tmp_path: pathlib.Path) -> None:
    encoder = loaded["encoder"]
    lines = experiment.export(encoder, tmp_path, "spline")
    assert "spline is not a temperature, so its probabilities are uncalibrated" in lines[2]
    settings = json.loads((tmp_path / "huggingface" / "config.json").read_text())
    assert "calibration_temperature" not in settings
    with pytest.raises(ValueError, match="calibrator='platt': expected one of temperature"):
        experiment.export(encoder, tmp_path, "platt")


def test_missing_flatbuffers_is_one_line(
    loaded: Classifiers, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serialize(*_: Any, **__: Any) -> None:
        raise ImportError("Please install 'flatbuffers'")

    monkeypatch.setattr("jax.export.Exported.serialize", serialize)
    with pytest.raises(ValueError, match=r"needs flatbuffers: pip install 'calib_jax\[export\]'"):
        experiment.export(loaded["mlp"], tmp_path)
