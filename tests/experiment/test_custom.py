"""Data sets, networks and methods of a user's: the same report, and the same bits after a stop."""

import dataclasses
import json
import pathlib
import re
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small
from experiment.conftest import Command, NoFigure

from calib_jax import data, experiment, losses, methods, report, train
from calib_jax.experiment import _custom, _evaluate, _run


class Net(nn.Module):
    """A module that knows nothing of calib_jax but `train`."""

    num_classes: int = 3
    width: int = 8

    @nn.compact
    def __call__(self, images: Any, train: bool = False) -> Any:
        x = nn.relu(nn.Dense(self.width)(images.reshape(images.shape[0], -1)))
        return nn.Dense(self.num_classes)(x)


def _squared(apply: Any, params: Any, state: Any, batch: Any, key: Any) -> Any:
    logits, model_state = apply(params, batch.inputs, key)
    per_example = losses.brier(logits, batch.labels)
    value = jnp.sum(batch.weights * per_example) / jnp.sum(batch.weights)
    return value, methods.Aux(logits, model_state)


METHOD = methods.Method(init=lambda info: jnp.zeros(()), loss=_squared)


def _sets(seed: int = 0) -> dict[str, data.Dataset]:
    names = {"train": 22, "val": 14, "test": 16}
    return {name: small.images(n, seed + i) for i, (name, n) in enumerate(names.items())}


def _config(**changes: Any) -> Any:
    config = small.config(train__batch_size=4, train__epochs=2, **changes)
    config.data.options = {}
    config.model.options = {}
    return config


@pytest.fixture
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and predictions; no metrics, plots or report."""
    monkeypatch.setattr(_evaluate, "evaluate", lambda *_, **__: [])
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for name in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, name, lambda *_, **__: NoFigure())


def _logits(folder: pathlib.Path) -> np.ndarray:
    return small.arrays(folder / "seed_0" / "logits" / "test.npz")["logits"]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A run with all three, beside a method to compare with, and one more set."""
    workdir = tmp_path_factory.mktemp("custom")
    sets = _sets() | {"shifted": small.images(9, 7)}
    config = _config(method__name="cross_entropy,squared")
    text = experiment.run(config, str(workdir), sets, Net(), METHOD, log=lambda _: None)
    assert re.search("squared", text)
    return workdir


def test_the_report_is_that_of_any_run(workdir: pathlib.Path) -> None:
    results = json.loads((workdir / "squared" / "seed_0" / "results.json").read_text())
    assert results["splits"].keys() == {"test", "shifted"}
    summary = (workdir / "summary.md").read_text()
    assert "squared" in summary
    assert "toy" in summary
    assert "Net" in summary
    assert "on toy with Net" in (workdir / "report.html").read_text()
    assert not np.array_equal(_logits(workdir / "squared"), _logits(workdir / "cross_entropy"))


def test_what_identifies_them_is_written_down(workdir: pathlib.Path) -> None:
    for folder in (workdir, workdir / "squared" / "seed_0"):
        written = json.loads((folder / "config.json").read_text())
        assert written["data"]["name"] == "toy"
        sets = _sets() | {"shifted": small.images(9, 7)}
        hashes = {name: dataset.content_hash[:16] for name, dataset in sets.items()}
        assert written["data"]["content"] == hashes
        sizes = {split: len(sets[split]) for split in ("train", "val", "test")}
        assert written["data"]["examples"] == sizes
        assert written["data"]["label_names"] == list(sets["train"].label_names)
        assert written["model"]["name"] == "Net"
        assert written["model"]["class"].endswith("test_custom.Net")
        assert written["model"]["num_parameters"] == 16 * 8 + 8 + 8 * 3 + 3
        assert written["custom"]["methods"]["squared"].endswith("test_custom._squared")


@pytest.mark.usefixtures("_light")
def test_it_resumes_bit_for_bit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = tuple(_sets().values())
    network = train.Network(Net(), (0.5,), (0.2,))
    arguments = (_config(checkpoint__seconds=0.0), tmp_path / "stopped", sets, network, METHOD)
    calls = iter(range(100))
    with monkeypatch.context() as patch:
        patch.setattr(_run.StopRequest, "requested", lambda _: next(calls) == 4)
        with pytest.raises(train.Stopped, match="stopped at step"):
            experiment.run(*arguments)
    experiment.run(*arguments)
    experiment.run(_config(checkpoint__seconds=0.0), tmp_path / "whole", sets, network, METHOD)
    # Without a name of its own, the method has the row `custom` instead of the config's.
    stopped, whole = (_logits(tmp_path / name / "custom") for name in ("stopped", "whole"))
    np.testing.assert_array_equal(stopped, whole)
    assert not (tmp_path / "whole" / "cross_entropy").exists()
    np.testing.assert_array_equal(
        *(
            small.rows(tmp_path / n / "custom" / "seed_0")[-1]["val/nll"]
            for n in ("stopped", "whole")
        )
    )


def _other_loss(*args: Any) -> Any:
    return _squared(*args)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": None, "network": None},
            r"was made with data=… given to experiment\.run, and now is",
        ),
        (
            {"network": None},
            r"was made with network=… given .* run without; choose another --workd",
        ),
        (
            {"data": _sets(1)},
            r"other data: the set 'train' has changed \(content \w{16} there, \w{16}",
        ),
        (
            {"network": Net(width=9)},
            r"another network: .*Net of 163 parameters there, .* 183 param",
        ),
        (
            {"method": METHOD._replace(loss=_other_loss)},
            r"another method 'squared': .*_squared there, .*_other_loss now; choose another",
        ),
    ],
)
def test_others_are_refused_in_one_line(
    workdir: pathlib.Path, changes: dict[str, Any], message: str
) -> None:
    before = (workdir / "config.json").read_text()
    sets = _sets() | {"shifted": small.images(9, 7)}
    objects = {"data": sets, "network": Net(), "method": METHOD} | changes
    config = _config(method__name="cross_entropy,squared")
    with pytest.raises(ValueError, match=message) as caught:
        experiment.run(config, workdir, **objects)
    assert "\n" not in str(caught.value)
    assert (workdir / "config.json").read_text() == before


@pytest.mark.usefixtures("_light")
def test_data_of_a_config_that_change_are_noticed_too(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment.run(small.config(), tmp_path)
    load = data.load

    def changed(name: str, split: str, *args: Any, **options: Any) -> data.Dataset:
        dataset = load(name, split, *args, **options)
        return dataclasses.replace(dataset, labels=dataset.labels[::-1].copy())

    monkeypatch.setattr(data, "load", changed)
    experiment.run(small.config(), tmp_path)  # all is finished: no data are read
    with pytest.raises(ValueError, match="other data: the set 'train' has changed"):
        experiment.run(small.config(seeds=(1,)), tmp_path)


def test_an_objective_is_a_method() -> None:
    objective = methods.Objective(lambda logits, labels, state: losses.brier(logits, labels))
    _, custom = _custom.make_custom(_config(), None, None, objective)
    assert custom.name == "custom"
    assert custom.loss.endswith("test_an_objective_is_a_method.<locals>.<lambda>")
    assert isinstance(custom.recipe, methods.Recipe)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"data": {"train": None}},
            r"data: expected calib_jax\.data\.Dataset objects train, val and",
        ),
        ({"data": tuple(_sets().values())[:2]}, "train, val and test, .* got train, val"),
        ({"data": (*_sets().values(), small.images(3, 0))}, "got train, val, test"),
        ({"method": _squared}, "method=function: expected a Method, Objective or Recipe"),
    ],
)
def test_objects_of_other_kinds(
    tmp_path: pathlib.Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        experiment.run(_config(), tmp_path / "x", **arguments)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["a,b", "a b"])
def test_names_of_a_given_method(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(ValueError, match="expected one name for the given method"):
        experiment.run(_config(method__name=name), tmp_path, method=METHOD)


FILE = """
import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from calib_jax import data, experiment, losses, methods


class Linear(nn.Module):
    @nn.compact
    def __call__(self, images, train: bool = False):
        return nn.Dense(2)(images.reshape(images.shape[0], -1))


def get_config():
    config = experiment.default_config()
    config.method.name = "mine"
    config.calibrate = ()
    config.num_bootstrap = 5
    config.train.batch_size = 4
    config.data.options.number = 8
    return config


def get_data(config):
    number = config.data.options.number
    images = np.arange(number, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    labels, ids = np.arange(number, dtype=np.int32) % 2, np.arange(number)
    part = data.Dataset("mine", "train", {"image": images}, labels, ids, ("even", "odd"))
    return part, part, part


def get_network(config):
    return Linear()


def get_method(config):
    return methods.Objective(lambda logits, labels, state: losses.focal(logits, labels, 2.0))
"""


def test_a_config_file_may_make_them(command: Command, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    run = ("--config", path, "--workdir", tmp_path / "x", "--config.data.options.number=12")
    done = command(*run, "--dry_run")
    assert (done.code, done.err) == (0, "")
    assert "data       mine train: 12 examples, image uint8 [2, 2, 1]" in done.out
    assert "network    Linear: 10 parameters" in done.out
    assert command(*run, light=True).code == 0
    written = json.loads((tmp_path / "x" / "mine" / "seed_0" / "config.json").read_text())
    assert written["model"]["class"] == "configs.mine.Linear"
    assert written["custom"]["methods"] == {"mine": "configs.mine.get_method.<locals>.<lambda>"}
    path.write_text(FILE.replace("% 2", "// 9"))
    done = command(*run, "--config.seeds=1", light=True)
    assert done.code == 2
    last = done.err.splitlines()[-1]
    assert re.fullmatch(r"error: .* has runs on other data: the set 'train' has .*", last)
