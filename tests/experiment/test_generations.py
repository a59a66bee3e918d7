"""Networks that teach one another: shared teachers, cached logits, resumed anywhere, one result."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
from experiment import small
from experiment.conftest import Command, NoFigure, assert_same_run

from calib_jax import experiment, metrics, report, train
from calib_jax.experiment import _build, _recipe, _run
from calib_jax.experiment._generations import best_of

TWO = ("--config", "configs/smoke/digits.py", "--config.train.epochs=2")
TWO += ("--config.method.name=csd", "--config.method.csd.generations=2")


def test_killed_in_every_phase(command: Command, tmp_path: pathlib.Path) -> None:
    done = command(*TWO, "--workdir", tmp_path / "whole", light=True)
    assert done.code == 0, done.err
    parts = (*TWO, "--workdir", tmp_path / "parts", "--config.checkpoint.seconds=0")
    teacher, student = (tmp_path / "parts" / name / "seed_0" for name in ("cross_entropy", "csd"))
    for moment, number in [
        ("training", 4),  # the teacher
        ("writing_arrays", 3),  # when it hands over, after logits of two splits
        ("training", 7),  # the student
        ("writing_arrays", 2),  # its predictions
    ]:
        assert not (student / "results.json").exists()
        done = command(*parts, interrupt=[(moment, number, "SIGKILL")], light=True)
        assert done.code == -9, (moment, done)
        handed = (teacher / "artifacts.npz").exists()
        assert handed == ((moment, number) not in [("training", 4), ("writing_arrays", 3)])
    done = command(*parts, light=True)
    assert done.code == 0, done.err
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    whole, again = (
        small.arrays(tmp_path / run / "cross_entropy" / "seed_0" / "artifacts.npz")
        for run in ("whole", "parts")
    )
    for key, value in whole.items():
        np.testing.assert_array_equal(value, again[key], err_msg=key, strict=True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pictures and reports."""
    monkeypatch.setattr(report, "write_report", lambda *_, **__: "report")
    for plot in ("plot_reliability", "plot_risk_coverage"):
        monkeypatch.setattr(report, plot, lambda *_, **__: NoFigure())


def _read(run: pathlib.Path) -> dict[str, Any]:
    return json.loads((run / "results.json").read_text())


def test_one_teacher_for_all_and_the_best_student(
    quick: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []
    fit = train.fit
    monkeypatch.setattr(train, "fit", lambda *a, **k: fitted.append(k["title"]) or fit(*a, **k))
    config = small.config(method__name="csd,sd", train__epochs=1)
    config.method.sd.generations = config.method.csd.generations = 3
    experiment.run(config, tmp_path)
    begun = [title for title in dict.fromkeys(fitted) if not title.endswith(", train")]
    assert begun == [
        "cross_entropy, seed 0",  # joined, though nobody asked for it
        *("csd, seed 0, generation_2", "csd, seed 0, generation_3"),
        *("sd, seed 0, generation_2", "sd, seed 0, generation_3"),
    ]

    run = tmp_path / "csd" / "seed_0"
    found = _read(run)
    assert [g["generation"] for g in found["generations"]] == [1, 2, 3]
    assert [g["method"] for g in found["generations"]] == ["cross_entropy", "csd", "csd"]
    nll = [g["validation"]["nll"] for g in found["generations"]]
    assert found["generation"] == 2 + int(np.argmin(nll[1:]))  # the teacher does not compete
    chosen = run / f"generation_{found['generation']}"
    with np.load(run / "logits" / "val.npz") as ours, np.load(chosen / "logits" / "val.npz") as its:
        np.testing.assert_array_equal(ours["logits"], its["logits"])
        assert metrics.nll(ours["logits"], ours["labels"]) == pytest.approx(min(nll[1:]), rel=1e-5)
    assert found["splits"] == found["generations"][found["generation"] - 1]["splits"]
    assert (run / "metrics.jsonl").read_text() == (chosen / "metrics.jsonl").read_text()

    # Students of the same teacher, one of them calibrated; the third learns from the second.
    assert small.rows(run / "generation_2")[-1]["method/temperature"] != 1
    assert small.rows(tmp_path / "sd" / "seed_0" / "generation_2")[-1]["method/temperature"] == 1
    fitted.clear()
    experiment.run(config, tmp_path)
    assert not fitted


@pytest.mark.parametrize(
    ("metric", "chosen"),
    [("val/nll", 2), ("val/refinement", 3), ("val/accuracy", 3), ("val/f1", 4), ("val/ece", 2)],
)
def test_the_metric_says_which_generation_is_best(
    metric: str, chosen: int, tmp_path: pathlib.Path
) -> None:
    values = {  # of the teacher, who does not compete, and of generations 2, 3 and 4
        "nll": [0.1, 0.3, 0.4, 0.5],
        "refinement": [0.1, 0.3, 0.2, 0.4],
        "accuracy": [0.99, 0.7, 0.9, 0.9],  # of equals the first
        "f1": [0.99, 0.7, 0.8, 0.9],
        "ece": [0.01, 0.02, 0.03, 0.04],
    }
    generations = []
    for i, method in enumerate(["cross_entropy", "csd", "csd", "csd"]):
        folder = tmp_path / f"generation_{i + 1}"
        for part in ("logits", "plots"):
            (folder / part).mkdir(parents=True)
        validation = {key: row[i] for key, row in values.items()}
        generations.append((folder, {"method": method, "validation": validation, "splits": {},
                                     "train_seconds": 1.0, "checkpoint": "best"}))  # fmt: skip
    best = best_of(generations, tmp_path, metric)
    assert best["generation"] == chosen
    assert best["checkpoint"] == f"generation_{chosen}/best"


def test_cached_logits_are_the_teachers(quick: None, tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="csd", train__epochs=2)
    config.method.csd.generations = 2
    experiment.run(config, tmp_path)
    folder = tmp_path / "cross_entropy" / "seed_0"
    with np.load(folder / "artifacts.npz", allow_pickle=False) as arrays:
        handed = dict(arrays)

    sets = _build.load_data(config)
    trainer = _build.build_trainer(config, sets, _recipe.phases(config, "csd")[0].method, {})
    with train.Checkpoints(folder / "checkpoints", best="val/nll") as checkpoints:
        state = checkpoints.restore(trainer.abstract_state())
    assert state is not None
    np.testing.assert_array_equal(handed["ids"], sets.train.ids)
    images = sets.train.inputs["image"].astype(np.float32) / 255
    logits, _ = trainer.network(state.params, {"image": images})  # all at once, without a key
    np.testing.assert_allclose(handed["teacher_logits"], logits, rtol=1e-5, atol=1e-5)

    # The temperature: the first of the grid with the least ECE of ten bins, by a plain loop.
    with np.load(folder / "logits" / "val.npz") as arrays:
        val, labels = arrays["logits"].astype(np.float64), arrays["labels"]
    errors = []
    for t in np.arange(1, 501) / 100:
        p = np.exp((val - val.max(1, keepdims=True)) / t)
        p /= p.sum(1, keepdims=True)
        confidence, right = p.max(1), p.argmax(1) == labels
        bins = np.minimum((confidence * 10).astype(int), 9)
        gaps = [np.sum((confidence - right)[bins == b]) for b in range(10)]
        errors.append(np.sum(np.abs(gaps)) / len(labels))
    chosen = errors[round(100 * float(handed["teacher_temperature"])) - 1]
    assert chosen == pytest.approx(min(errors), abs=1e-6)


def test_of_many_networks_those_that_are_results_are_kept(
    quick: None, tmp_path: pathlib.Path
) -> None:
    config = small.config(method__name="csd", train__epochs=1, checkpoint__keep=False)
    config.method.csd.generations = 3
    experiment.run(config, tmp_path)
    run = tmp_path / "csd" / "seed_0"
    chosen = _read(run)["generation"]
    kept = {place.parent.name for place in tmp_path.rglob("checkpoints")}
    assert kept == {"seed_0", f"generation_{chosen}"}  # the teacher's, a result of its own, and one
    sets, student = _build.load_data(config), _recipe.phases(config, "csd")[-1]
    with np.load(tmp_path / "cross_entropy" / "seed_0" / "artifacts.npz") as handed:
        trainer = _build.build_trainer(config, sets, student, dict(handed))
    with train.Checkpoints(
        run / f"generation_{chosen}" / "checkpoints", best="val/nll"
    ) as checkpoints:
        state = checkpoints.restore(trainer.abstract_state())
    with np.load(run / "logits" / "test.npz") as file:
        again = trainer.predict(state, trainer.loader(sets.test))
        np.testing.assert_array_equal(again, file["logits"])


def test_logits_of_other_examples_teach_nobody(quick: None, tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="csd", train__epochs=1)
    config.method.csd.generations = 2
    experiment.run(config, tmp_path)
    (tmp_path / "csd" / "seed_0" / "results.json").unlink()
    path = tmp_path / "cross_entropy" / "seed_0" / "artifacts.npz"
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"ids": arrays["ids"][::-1]})
    with pytest.raises(ValueError, match=r"artifacts\.npz is of other training examples: the data"):
        experiment.run(config, tmp_path)


def test_any_single_training_teaches(quick: None, tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="ours", train__epochs=1)
    config.method.variants.ours = {"of": "csd", "teacher": "sim_mixup", "generations": 2}
    names = [(phase.name, phase.owner) for phase in _recipe.phases(config, "ours")]
    assert names == [("records", ""), ("train", "sim_mixup"), ("generation_2", "ours")]
    experiment.run(config, tmp_path)
    assert (tmp_path / "phases" / "records" / "seed_0" / "artifacts.npz").exists()
    assert _read(tmp_path / "ours" / "seed_0")["generation"] == 2
    assert "generations" not in _read(tmp_path / "sim_mixup" / "seed_0")

    shown = experiment.describe(config)
    assert "train      sim_mixup: 3 steps of 24" in shown
    assert "train      ours, generation_2: 3 steps of 24" in shown


@pytest.mark.parametrize("teacher", ["sd", "csd", "sim_mixup_"])
def test_who_cannot_teach(teacher: str, tmp_path: pathlib.Path) -> None:
    config = small.config(method__name="csd")
    config.method.csd.teacher = teacher
    with pytest.raises(ValueError, match=rf"config.method.csd.teacher='{teacher}': .*expected"):
        _run.run(config, tmp_path)
