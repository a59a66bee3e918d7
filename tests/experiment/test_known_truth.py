"""A run on data with known truth: its results are those of p(y|x), which predictions keep."""

import json
import pathlib

import numpy as np

from calib_jax import experiment


def test_results_are_measured_against_the_truth(tmp_path: pathlib.Path) -> None:
    config = experiment.default_config()
    config.data.name = "known_truth"
    config.data.options.num_train, config.data.options.num_val = 60, 60
    config.data.options.num_test = 90
    config.data.num_eval = 60
    config.model.options.widths = (8,)
    config.train.batch_size = 30
    config.calibrate, config.num_bootstrap, config.plot_format = ("temperature",), 2, "none"
    experiment.run(config, tmp_path, log=lambda _: None)
    run = tmp_path / "cross_entropy" / "seed_0"
    with np.load(run / "logits" / "test.npz") as file:
        logits, truth = file["logits"].astype(float), file["label_probs"]
    results = json.loads((run / "results.json").read_text())["splits"]["test"]
    for evaluation in results:
        temperature = evaluation["parameters"].get("temperature", [1.0])[0]
        probs = np.exp(logits / temperature)
        probs /= probs.sum(axis=1, keepdims=True)
        right = truth[np.arange(60), probs.argmax(axis=1)]
        gaps = (probs.max(axis=1) - right)[np.argsort(probs.max(axis=1))]
        expected = np.abs(gaps.reshape(15, 4).mean(axis=1)).mean()
        np.testing.assert_allclose(evaluation["metrics"]["true_ece"], expected, rtol=1e-4)
        np.testing.assert_allclose(evaluation["metrics"]["true_accuracy"], right.mean(), rtol=1e-5)
    summary = (tmp_path / "summary.md").read_text()
    assert "true ECE-15 equal mass" in summary
    assert "Bayes error" in summary
    assert not list((run / "plots").iterdir())
