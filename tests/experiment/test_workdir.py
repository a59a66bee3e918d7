"""Who may use a workdir: one config, and what may be added to it."""

import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest
from experiment import small
from experiment.conftest import NoFigure

from calib_jax import experiment, report
from calib_jax._hints import differences
from calib_jax.experiment import _config, _evaluate, _workdir


@pytest.fixture(autouse=True)
def _light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training and predictions; no metrics, plots or report."""
    monkeypatch.setattr(_evaluate, "evaluate", lambda *_, **__: [])
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for name in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, name, lambda *_, **__: NoFigure())


def _run_all(workdir: pathlib.Path, **changes: Any) -> list[str]:
    said: list[str] = []
    assert experiment.run(small.config(**changes), workdir, log=said.append) == "report"
    return said


def _changes(folder: pathlib.Path) -> dict[pathlib.Path, int]:
    """When each file was written, but for the lock."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != ".lock"]
    return {path: path.stat().st_mtime_ns for path in files}


def _claimed_with_a_checkpoint(workdir: pathlib.Path) -> None:
    _workdir.claim(workdir, small.config())
    (workdir / "cross_entropy" / "seed_0" / "checkpoints" / "3").mkdir(parents=True)


def test_another_config_is_refused_with_what_differs(tmp_path: pathlib.Path) -> None:
    _claimed_with_a_checkpoint(tmp_path)
    before = (tmp_path / "config.json").read_text()
    with pytest.raises(ValueError, match="another config") as caught:
        experiment.run(
            small.config(
                train__epochs=3,
                optimizer__learning_rate=0.2,
                method__adafocal__gamma_min=-1.0,
                calibrate=("temperature",),
                seeds=(0, 1),
                data__dir="elsewhere",
            ),
            tmp_path,
        )
    assert str(caught.value).splitlines() == [
        f"{tmp_path} belongs to another config; choose another --workdir, or undo:",
        "  config.calibrate: [] there, ['temperature'] now",
        "  config.method.adafocal.gamma_min: -2.0 there, -1.0 now",
        "  config.optimizer.learning_rate: 0.1 there, 0.2 now",
        "  config.train.epochs: 2 there, 3 now",
    ]
    assert (tmp_path / "config.json").read_text() == before


def test_of_many_differences_the_first_are_named(tmp_path: pathlib.Path) -> None:
    config = small.config()
    _workdir.claim(tmp_path, config)
    for key in config.optimizer:
        if isinstance(config.optimizer[key], float):
            config.optimizer[key] += 1.0
    config.train.epochs += 1
    config.train.batch_size += 1
    config.data.max_length += 1
    config.data.num_train += 1
    config.data.num_eval += 1
    with pytest.raises(ValueError, match="another config") as caught:
        _workdir.claim(tmp_path, config)
    lines = str(caught.value).splitlines()
    assert len(lines) == 10
    number = len(differences(json.loads(small.config().to_json()), json.loads(config.to_json())))
    assert lines[-1] == f"  and {number - 8} more"


def test_keys_that_came_or_went_are_differences() -> None:
    old, new = {"a": {"x": 1, "y": (1,)}, "b": 2}, {"a": {"x": 1, "z": 3}, "b": 2}
    assert differences(old, new) == [
        "config.a.y: (1,) there, '(not set)' now",
        "config.a.z: '(not set)' there, 3 now",
    ]
    assert differences(old, old) == []


def test_seeds_and_methods_may_join_and_what_is_finished_stays(tmp_path: pathlib.Path) -> None:
    assert _run_all(tmp_path) == []
    first = tmp_path / "cross_entropy" / "seed_0"
    files = _changes(first)
    assert first / "metrics.jsonl" in files
    assert first / "results.json" in files

    said = _run_all(tmp_path, seeds=(0, 3), method__name="focal,cross_entropy")
    assert said == ["cross_entropy, seed 0: finished before"]
    assert _changes(first) == files
    runs = sorted(path.parent.relative_to(tmp_path) for path in tmp_path.rglob("results.json"))
    assert [str(run) for run in runs] == [
        "cross_entropy/seed_0",
        "cross_entropy/seed_3",
        "focal/seed_0",
        "focal/seed_3",
    ]
    for run in runs:
        described = json.loads((tmp_path / run / "config.json").read_text())["config"]
        assert f"{described['method']['name']}/seed_{described['seeds'][0]}" == str(run)

    # Fewer than before is no other config either.
    said = _run_all(tmp_path, seeds=(3,), method__name="focal")
    assert said == ["focal, seed 3: finished before"]


def test_a_seed_is_the_same_alone_and_among_others(tmp_path: pathlib.Path) -> None:
    _run_all(tmp_path / "several", seeds=(2, 0), method__name="adafocal")
    _run_all(tmp_path / "alone", seeds=(0,), method__name="adafocal")
    logits = []
    for name, seed in (("several", 0), ("alone", 0), ("several", 2)):
        path = tmp_path / name / "adafocal" / f"seed_{seed}" / "logits" / "test.npz"
        with np.load(path, allow_pickle=False) as arrays:
            logits.append(arrays["logits"])
    np.testing.assert_array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0], logits[2])


def test_the_config_is_written_with_what_else_results_depend_on(tmp_path: pathlib.Path) -> None:
    config = small.config()
    _workdir.claim(tmp_path, config)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["config"] == json.loads(config.to_json())
    assert re.match(r"\d+\.\d+", written["versions"]["jax"])
    assert written["versions"].keys() >= {"calib_jax", "jaxlib", "flax", "optax", "numpy", "python"}
    assert "cpu" in json.dumps(written["devices"])
    assert "git" in written


@pytest.mark.parametrize(
    ("value", "expected"), [((0, 1), [0, 1]), (3, [3]), ([5], [5]), ((2, 1), [2, 1])]
)
def test_seeds(value: Any, expected: list[int]) -> None:
    config = experiment.default_config()
    with config.ignore_type():
        config.seeds = value
    assert _config.seeds(config) == expected


def test_files_are_all_or_nothing(tmp_path: pathlib.Path) -> None:
    _workdir.write_json(tmp_path / "x.json", {"a": 1})
    _workdir.write_npz(tmp_path / "sub" / "x.npz", a=np.arange(3))
    with pytest.raises(TypeError):
        _workdir.write_json(tmp_path / "x.json", {"a": object()})
    with pytest.raises(ValueError, match="allow_pickle"):
        _workdir.write_npz(tmp_path / "sub" / "x.npz", a=np.asarray([object()]))
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}
    with np.load(tmp_path / "sub" / "x.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["a"], [0, 1, 2])


@pytest.mark.parametrize("content", ["{", "{}", "[]"])
def test_a_damaged_config_is_named(content: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config.json is damaged; choose another --workdir"):
        _workdir.claim(tmp_path, small.config())


def test_a_workdir_of_an_earlier_version_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    _workdir.claim(tmp_path, small.config())
    path = tmp_path / "config.json"
    stored = json.loads(path.read_text())
    assert stored.pop("format") == _workdir.FORMAT
    path.write_text(json.dumps(stored))
    with pytest.raises(
        ValueError, match=r"has format 1, expected 2: .* cannot be resumed"
    ) as error:
        _workdir.claim(tmp_path, small.config())
    assert "\n" not in str(error.value)


def test_a_workdir_is_claimed_only_when_everything_could_be_built(tmp_path: pathlib.Path) -> None:
    for changes, message in [
        ({"model__options": {"widht": 3}}, "widht"),
        ({"train__batch_size": 0}, "batch_size=0: expected a multiple of 1"),
        # Found when the trainer of the second method is built.
        (
            {"method__name": "focal,aum_mixup", "train__accumulate": 2, "train__batch_size": 2},
            r"batch_size=2: expected a multiple of 4 \(2 groups x 2 accumulated parts\)",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            experiment.run(small.config(**changes), tmp_path)
        assert not (tmp_path / "config.json").exists()


def test_a_workdir_without_a_checkpoint_can_be_claimed_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text("{")  # the process died while it wrote
    _workdir.claim(tmp_path, small.config(), replace=True)
    assert not _workdir.is_started(tmp_path)
    with pytest.raises(ValueError, match="another config"):  # another job of a sweep may be at work
        experiment.run(small.config(train__epochs=1), tmp_path, sweep_index=0)
    _run_all(tmp_path, train__epochs=1)
    assert json.loads((tmp_path / "config.json").read_text())["config"]["train"]["epochs"] == 1
    assert _workdir.is_started(tmp_path)
    with pytest.raises(ValueError, match="another config"):
        experiment.run(small.config(train__epochs=2), tmp_path)
