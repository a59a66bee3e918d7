"""The configs for your own data, from files to a report."""

import importlib.util
import pathlib
from typing import Any

import numpy as np
import pytest
from own_files import write_csv, write_images

from calib_jax import experiment

CONFIGS = pathlib.Path(__file__).parents[2] / "configs/own"


def _config(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, CONFIGS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config()
    config.num_bootstrap, config.calibrate = 20, ("temperature",)
    return config


def test_arrays(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    # Of very different scales: without standardization nothing would be learned.
    features = (rng.normal(size=(300, 4)) + 3 * np.eye(4)[labels]) * [1e4, 1, 1e-3, 1] + 1e3
    np.savez(tmp_path / "a.npz", features=features, labels=np.array(["x", "y", "z"])[labels])
    config = _config("arrays")
    config.data.options.path = str(tmp_path / "a.npz")
    config.model.options.widths = (16,)
    config.train.batch_size, config.optimizer.learning_rate = 32, 0.01
    config.train.epochs = 10
    lines: list[str] = []
    report = experiment.run(config, tmp_path / "run", log=lines.append)
    assert "npz train: 3 classes: 'x' → 0, 'y' → 1, 'z' → 2" in lines
    error = float(report.split("cross_entropy")[1].split()[0].rstrip("*"))
    assert error < 20
    assert (tmp_path / "run/report.html").is_file()


@pytest.mark.slow
def test_texts_with_learned_vectors(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    rows = []
    for i in range(400):
        chosen = rng.choice(words[:20] if i % 2 else words[20:], 8)
        rows.append({"text": " ".join([*chosen, *rng.choice(words, 4)]), "label": "ab"[i % 2]})
    config = _config("text")
    config.data.options.path = write_csv(tmp_path / "a.csv", rows)
    config.data.max_length = 24
    config.model.options.width = 16
    config.train.batch_size = 16
    report = experiment.run(config, tmp_path / "run", log=lambda line: None)
    assert float(report.split("cross_entropy")[1].split()[0].rstrip("*")) < 20


@pytest.mark.slow
def test_images(tmp_path: pathlib.Path) -> None:
    write_images(tmp_path / "photos", 25, side=9)
    config = _config("images")
    config.data.options.path, config.data.options.size = str(tmp_path / "photos"), 8
    config.model.options.stages = (1, 1, 1)
    config.train.batch_size, config.train.epochs = 16, 2
    report = experiment.run(config, tmp_path / "run", log=lambda line: None)
    assert "cross_entropy" in report
