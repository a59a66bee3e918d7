"""Every calibrator by its name: in a config, in `predict --calibrator` and in `evaluate --calibrate`."""

import csv
import json
import pathlib

import numpy as np
import pytest
import trained

from calib_jax import evaluate, experiment, posthoc, predict

NAMES = tuple(posthoc.CALIBRATORS)


@pytest.mark.slow
def test_every_name_everywhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network of two classes, which all calibrators take."""
    monkeypatch.setattr(experiment, "keep_compiled", lambda: None)
    config = trained.texts(tmp_path, calibrate=NAMES)
    experiment.run(config, tmp_path / "work", log=lambda _: None)
    run = tmp_path / "work" / config.method.name / "seed_0"
    results = json.loads((run / "results.json").read_text())["splits"]["test"]
    in_run = {result["name"]: result for result in results}
    logits = {split: trained.arrays(run / "logits" / f"{split}.npz") for split in ("val", "test")}
    assert list(in_run) == ["uncalibrated", *NAMES]

    arguments = [run / "logits" / "test.npz", "--validation", run / "logits" / "val.npz"]
    arguments += ["--calibrate", ",".join(NAMES), "--num_bootstrap", 2, "--out", tmp_path / "out"]
    assert evaluate.main(list(map(str, arguments))) == 0
    evaluated = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert [result["name"] for result in evaluated] == ["uncalibrated", *NAMES]

    texts = trained.write_texts(tmp_path / "new.csv", n=20)
    assert len(texts) == 20
    classifier = experiment.load(run)
    new = classifier.logits(texts)
    for name, result in zip(NAMES, evaluated[1:], strict=True):
        got, want = result["metrics"]["nll"], in_run[name]["metrics"]["nll"]
        np.testing.assert_allclose(got, want, rtol=1e-4, err_msg=name)
        out = tmp_path / f"{name}.csv"
        options = ["--calibrator", name, "--out", out]
        assert predict.main(list(map(str, [run, tmp_path / "new.csv", *options]))) == 0
        with out.open(newline="") as file:
            rows = list(csv.DictReader(file))
        probs = np.array([[float(row["p_bad"]), float(row["p_good"])] for row in rows])
        fitted = posthoc.CALIBRATORS[name](logits["val"]["logits"], logits["val"]["labels"])
        np.testing.assert_allclose(probs, fitted(new), atol=1e-3, err_msg=name)
        loaded = posthoc.load(run / "calibrators" / f"{name}.npz")
        np.testing.assert_allclose(loaded(new), fitted(new), atol=1e-3, err_msg=name)
