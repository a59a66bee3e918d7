"""kill -9 at any moment, the same command again: nothing in the results shows it."""

import pathlib
import random

import pytest
from experiment.conftest import DIGITS, Command, assert_same_run

SMALL_RESNET = """
from calib_jax import experiment

def get_config():
    config = experiment.default_config()
    config.method.name = "adafocal"
    config.data.options.num_train = 60
    config.data.augment = "pad_crop_flip"
    config.model.name = "resnet20"
    config.model.options.stages = (1,)
    config.model.options.widths = (8,)
    config.train.batch_size = 16
    config.train.epochs = 2
    config.checkpoint.seconds = 0.0
    return config
"""


def _run(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / "adafocal" / "seed_0"


def test_at_one_moment_after_the_other(
    command: Command, whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    # Saves after every step: what is being written while training goes on is what is read back.
    every_step = (*DIGITS, "--workdir", tmp_path, "--config.checkpoint.seconds=0")
    checkpoints = _run(tmp_path) / "checkpoints"
    for moment, number in [
        ("training", 3),
        ("writing_checkpoint", 3),
        ("after_epoch", 1),
        ("writing_line", 1),
        ("judging", 1),
    ]:
        done = command(*every_step, interrupt=[(moment, number, "SIGKILL")], light=True)
        assert done.code == -9, (moment, done)
        left = [path.name for path in checkpoints.iterdir()]
        if moment == "writing_checkpoint":
            assert any("tmp" in name for name in left)  # it was in the middle of it
    done = command(*every_step, light=True)
    assert done.code == 0, done.err
    assert_same_run(_run(tmp_path), whole)
    left = [path.name for path in checkpoints.iterdir()]
    assert all(name.isdigit() for name in left), left  # nothing half-written is left lying about
    assert not list(tmp_path.rglob("*.tmp"))


def test_before_the_first_checkpoint(
    command: Command, whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    workdir = (*DIGITS, "--workdir", tmp_path)
    done = command(*workdir, interrupt=[("training", 12, "SIGKILL")], light=True)
    assert done.code == -9
    assert (_run(tmp_path) / "metrics.jsonl").read_text()  # lines, but no state
    done = command(*workdir, light=True)
    assert done.code == 0
    assert "resumed" not in done.err
    assert_same_run(_run(tmp_path), whole)


@pytest.mark.slow
def test_loops_of_steps_in_the_middle_of_an_epoch(command: Command, tmp_path: pathlib.Path) -> None:
    loops = (*DIGITS, "--config.train.steps_per_call=2", "--config.train.evaluate_every=4")
    loops += ("--config.checkpoint.seconds=0",)
    done = command(*loops, "--workdir", tmp_path / "whole", light=True)
    assert done.code == 0, done.err
    parts = (*loops, "--workdir", tmp_path / "parts")
    for number in (3, 4):
        done = command(*parts, interrupt=[("training", number, "SIGKILL")], light=True)
        assert done.code == -9
    done = command(*parts, light=True)
    assert done.code == 0, done.err
    assert "resumed at step" in done.err
    assert_same_run(_run(tmp_path / "parts"), _run(tmp_path / "whole"))


@pytest.mark.slow  # its quick brother, within one process: tests/train/test_resume.py
def test_batch_statistics_and_augmentation(command: Command, tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.py").write_text(SMALL_RESNET)
    resnet = ("--config", tmp_path / "config.py")
    done = command(*resnet, "--workdir", tmp_path / "whole", light=True)
    assert done.code == 0, done.err
    parts = (*resnet, "--workdir", tmp_path / "parts")
    for moment in [("writing_checkpoint", 3), ("after_epoch", 1)]:
        done = command(*parts, interrupt=[(*moment, "SIGKILL")], light=True)
        assert done.code == -9, (moment, done)
    done = command(*parts, light=True)
    assert done.code == 0, done.err
    assert_same_run(_run(tmp_path / "parts"), _run(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_at_random_moments(
    command: Command, whole: pathlib.Path, tmp_path: pathlib.Path, seed: int
) -> None:
    rng = random.Random(seed)
    arguments = (*DIGITS, "--workdir", tmp_path, "--config.checkpoint.seconds=0")
    for _ in range(8):
        moment = rng.choice(["training", "writing_checkpoint", "after_epoch", "writing_line"])
        command(*arguments, interrupt=[(moment, rng.randint(1, 4), "SIGKILL")], light=True)
    done = command(*arguments, light=True)
    assert done.code == 0, done.err
    assert_same_run(_run(tmp_path), whole)


@pytest.mark.slow
def test_resnet20(command: Command, tmp_path: pathlib.Path) -> None:
    resnet = ("--config", "configs/smoke/resnet.py", "--config.checkpoint.seconds=0")
    done = command(*resnet, "--workdir", tmp_path / "whole", light=True)
    assert done.code == 0, done.err
    parts = (*resnet, "--workdir", tmp_path / "parts")
    for moment in [("training", 2), ("writing_checkpoint", 2), ("after_epoch", 1)]:
        done = command(*parts, interrupt=[(*moment, "SIGKILL")], light=True)
        assert done.code == -9, (moment, done)
    done = command(*parts, light=True)
    assert done.code == 0, done.err
    assert_same_run(_run(tmp_path / "parts"), _run(tmp_path / "whole"))
