"""A run that ends anywhere and goes on ends where it would have ended: bit for bit."""

import itertools
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
import pytest
from experiment import small

from calib_jax import _cpu, models, train
from calib_jax.train import _loader

# Two epochs of six steps, the last of them not full; evaluations in the middle of them and at the end.
# Loops of four steps are cut short by the ends of epochs and by evaluations.
TOTAL, EVERY = 2 * small.STEPS, 5
KINDS: dict[str, dict[str, Any]] = {
    name: {"steps_per_call": steps, "evaluate_every": EVERY, "epochs": 2}
    for name, steps in (("single steps", 1), ("loops", 4))
}


@pytest.fixture(scope="module", params=KINDS)
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[train.Trainer, train.TrainState, pathlib.Path]:
    """A run that nothing happens to, and that saves nothing before its end."""
    trainer = small.shared_trainer(**KINDS[request.param])
    folder = tmp_path_factory.mktemp("whole")
    state = small.fit(trainer, folder)
    assert [path.name for path in (folder / "checkpoints").iterdir()] == [str(TOTAL)]
    return trainer, state, folder


def _calls(trainer: train.Trainer) -> int:
    """Calls of the compiled function in a whole run."""
    ends = {0, TOTAL, *range(0, TOTAL, small.STEPS), *range(0, TOTAL, trainer.evaluate_every)}
    edges = sorted(ends)
    each = trainer.train.steps_per_call
    return sum(-(-(b - a) // each) for a, b in itertools.pairwise(edges))


def test_stopped_after_every_call(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    trainer, state, folder = whole
    stops = 0
    for calls in range(1, _calls(trainer)):
        part = tmp_path / str(calls)
        with pytest.raises(train.Stopped, match=rf"stopped at step \d+ of {TOTAL}; state saved"):
            small.fit(trainer, part, calls=calls)
        small.assert_same(small.fit(trainer, part), state)
        assert small.rows(part) == small.rows(folder)
        stops += 1
    assert stops > 3


def test_stopped_again_and_again(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    trainer, state, folder = whole
    for _ in range(_calls(trainer)):
        with pytest.raises(train.Stopped):
            small.fit(trainer, tmp_path, calls=1)
    small.assert_same(small.fit(trainer, tmp_path), state)
    assert small.rows(tmp_path) == small.rows(folder)


def test_saving_changes_nothing(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    trainer, state, folder = whole
    small.assert_same(small.fit(trainer, tmp_path, save_seconds=0), state)
    assert small.rows(tmp_path) == small.rows(folder)
    steps = {int(path.name) for path in (tmp_path / "checkpoints").iterdir()}
    assert TOTAL in steps
    assert len(steps) >= 2


@pytest.mark.parametrize("where", ["advance", "predict"])
def test_an_accident_at_any_moment(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    trainer, state, folder = whole
    function, left = getattr(trainer, where), 0

    def fail_at_last(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError("the plug was pulled")
        return function(*args, **kwargs)

    monkeypatch.setattr(trainer, where, fail_at_last)
    for calls in (1, 1, 2, 1):
        left = calls
        with pytest.raises(OSError, match="plug"):
            small.fit(trainer, tmp_path, save_seconds=0)
    monkeypatch.undo()
    small.assert_same(small.fit(trainer, tmp_path), state)
    assert small.rows(tmp_path) == small.rows(folder)


@pytest.mark.parametrize("steps", [1, 4])
def test_nothing_is_compiled_twice(steps: int, tmp_path: pathlib.Path) -> None:
    options = {"steps_per_call": steps, "evaluate_every": EVERY, "epochs": 3}
    trainer = small.trainer(**options)
    small.fit(trainer, tmp_path / "whole")
    assert trainer.compilations() == {"train": 1, "predict": 1}
    with pytest.raises(train.Stopped):
        small.fit(trainer, tmp_path / "parts", calls=3)
    again = small.trainer(**options)
    small.fit(again, tmp_path / "parts")
    assert again.compilations() == {"train": 1, "predict": 1}
    small.fit(trainer, tmp_path / "another seed")
    assert trainer.compilations() == {"train": 1, "predict": 1}


def test_loops_and_single_steps_agree(tmp_path: pathlib.Path) -> None:
    trainers = [small.shared_trainer(**KINDS[kind]) for kind in KINDS]
    assert [trainer.train.steps_per_call for trainer in trainers] == [1, 4]
    a, b = (small.fit(made, tmp_path / str(n)) for n, made in enumerate(trainers))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-4, atol=1e-5)


def test_batch_statistics_and_noise_go_on_too(tmp_path: pathlib.Path) -> None:
    def augment(key: jax.Array, inputs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"image": inputs["image"] + 0.1 * jax.random.normal(key, inputs["image"].shape)}

    options = {"stages": (1,), "widths": (4,), "stem_width": 4}
    trainer = small.trainer("adafocal", "resnet20", options, augment=augment, epochs=2, width=8)
    state = small.fit(trainer, tmp_path / "whole")
    assert state.model_state["batch_stats"]
    for calls in (2, 6, 9):
        with pytest.raises(train.Stopped):
            small.fit(trainer, tmp_path / str(calls), calls=calls, save_seconds=0)
        small.assert_same(small.fit(trainer, tmp_path / str(calls), save_seconds=0), state)
        assert small.rows(tmp_path / str(calls)) == small.rows(tmp_path / "whole")


def test_there_is_an_evaluation_every_so_many_steps_and_at_the_end(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path],
) -> None:
    assert [row["step"] for row in small.rows(whole[2])] == [5, 10, 12]


def test_lines_say_what_is_true(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path],
) -> None:
    trainer, state, folder = whole
    rows = train.Log(folder / "metrics.jsonl").rows()
    assert [row["epoch"] for row in rows] == [row["step"] / small.STEPS for row in rows]
    last = rows[-1]
    assert last["step"] == TOTAL
    assert last["method/gamma"] == np.asarray(state.method_state.gamma).tolist()
    logits = np.asarray(trainer.predict(state, trainer.val), np.float64)
    labels = trainer.val.dataset.labels
    assert last["val/accuracy"] == pytest.approx(np.mean(logits.argmax(1) == labels))
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    nll = -log_probs[np.arange(len(labels)), labels].mean()
    assert last["val/nll"] == pytest.approx(nll, rel=1e-5)
    assert 0 <= last["train/accuracy"] <= 1
    assert {"val/ece", "val/ece_mass", "perf/seconds", "perf/examples_per_second"} <= last.keys()


@pytest.mark.parametrize("number", [1, 2])
def test_damaged_checkpoints_cost_time_and_nothing_else(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path],
    tmp_path: pathlib.Path,
    number: int,
) -> None:
    trainer, state, folder = whole
    for calls in (2, 2):
        with pytest.raises(train.Stopped):
            small.fit(trainer, tmp_path, calls=calls)
    saved = sorted((tmp_path / "checkpoints").iterdir(), key=lambda path: int(path.name))
    assert len(saved) == 2
    for path in saved[-number:]:
        for manifest in path.rglob("manifest.ocdbt"):
            manifest.write_bytes(b"")
    said: list[str] = []
    small.assert_same(small.fit(trainer, tmp_path, say=said.append), state)
    assert f"checkpoint {saved[-1].name} cannot be read" in said[0]
    assert said[2:] == (["no checkpoint is left: beginning anew"] if number == 2 else [])
    assert small.rows(tmp_path) == small.rows(folder)


def test_a_finished_run_is_read_not_trained(
    whole: tuple[train.Trainer, train.TrainState, pathlib.Path],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer, state, folder = whole
    shutil.copytree(folder, tmp_path / "x")
    monkeypatch.setattr(trainer, "advance", None)
    small.assert_same(small.fit(trainer, tmp_path / "x"), state)
    log = "metrics.jsonl"
    assert (tmp_path / "x" / log).read_text() == (folder / log).read_text()


def test_calls_on_the_cpu_are_short_and_change_no_bit(tmp_path: pathlib.Path) -> None:
    pace = _loader.Pace(6)
    taken = []
    for _ in range(8):
        taken.append(pace.steps)
        pace.update(0.1 if len(taken) < 4 else 5.0)
    assert taken == [1, 2, 4, 6, 3, 1, 1, 1]
    pace.update(0.5)
    assert pace.steps == 1
    assert _loader.Pace(6, adapts=False).steps == 6

    one_by_one = small.trainer(steps_per_call=1)
    looped = small.trainer(steps_per_call=0)
    assert looped.train.steps_per_call == 50
    assert one_by_one.pace().steps == 1
    ends = [
        small.fit(trainer, tmp_path / str(number))
        for number, trainer in enumerate((one_by_one, looped))
    ]
    small.assert_same(*ends)
    assert looped.compilations()["train"] == 1


def test_steps_of_other_networks_are_called_one_by_one_on_the_cpu() -> None:
    assert _cpu.steps_per_call(type(models.create("resnet20", 3))) == 50
    assert _cpu.steps_per_call(type(models.create("vit", 3))) == 1
