"""Runs that end early: asked to, or because there is nothing left to train."""

import math
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment import small

from calib_jax import methods, train

TOTAL = 3 * small.STEPS
HINT = r"try a smaller learning rate or clipping \(config.optimizer.clip_norm\)"


def _breaking(step: int, what: str, *, once: bool = False) -> methods.Method:
    """Cross entropy whose loss or gradient is not finite at one step, and after it."""
    plain = methods.create("cross_entropy")

    def loss(apply: Any, params: Any, state: Any, batch: Any, key: Any) -> Any:
        value, aux = plain.loss(apply, params, state, batch, key)
        broken = state == step if once else state >= step
        if what == "loss":
            return jnp.where(broken, jnp.inf, value), aux
        size = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        return value + jnp.sqrt(jnp.where(broken, 0.0, 1.0) * size), aux  # whose slope is 0 x inf

    return plain._replace(
        init=lambda info: jnp.int32(0), loss=loss, after_step=lambda state, *_: state + 1
    )


def _saved(trainer: train.Trainer, folder: pathlib.Path) -> list[train.TrainState]:
    """All checkpoints of a run."""
    names = sorted(int(path.name) for path in (folder / "checkpoints").iterdir())
    found = []
    with train.Checkpoints(folder / "checkpoints", best="val/nll") as checkpoints:
        for _ in names:
            found.append(checkpoints.restore(trainer.abstract_state()))
            checkpoints._manager.delete(int(found[-1].step))
    assert [int(state.step) for state in found] == names[::-1]
    return found


def _assert_finite(tree: Any) -> None:
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("what", "step", "steps_per_call"),
    [("loss", 0, 4), ("loss", 8, 1), ("gradient", 11, 4), ("gradient", TOTAL - 1, 1)],
)
def test_what_was_not_finite_and_when(
    what: str, step: int, steps_per_call: int, tmp_path: pathlib.Path
) -> None:
    trainer = small.trainer(_breaking(step, what), steps_per_call=steps_per_call)
    with pytest.raises(train.DivergedError) as caught:
        small.fit(trainer, tmp_path, save_seconds=0)
    message = str(caught.value)
    found = re.fullmatch(rf"the {what} was not finite at step {step} \((.*)\); {HINT}", message)
    assert found, message
    saved = _saved(trainer, tmp_path)
    if saved:
        last = int(saved[0].step)
        assert last <= step
        assert step - last <= 2 * steps_per_call
        assert found[1] == f"last good checkpoint: step {last}"
    else:
        assert found[1] == "no checkpoint yet"
    _assert_finite([(state.params, state.opt_state) for state in saved])
    assert all(math.isfinite(row["train/loss"]) for row in small.rows(tmp_path))


def test_the_first_such_step_is_named_however_fast_steps_are(tmp_path: pathlib.Path) -> None:
    trainer = small.trainer(_breaking(8, "loss"))
    with pytest.raises(train.DivergedError, match="the loss was not finite at step 8 "):
        small.fit(trainer, tmp_path)
    assert all(row["step"] <= 6 for row in small.rows(tmp_path))


def test_once_is_enough(tmp_path: pathlib.Path) -> None:
    trainer = small.trainer(_breaking(8, "loss", once=True))
    with pytest.raises(train.DivergedError, match="the loss was not finite at step 8 "):
        small.fit(trainer, tmp_path)


def test_a_learning_rate_that_is_far_too_large(tmp_path: pathlib.Path) -> None:
    trainer = small.trainer(learning_rate=1e30)
    for _ in range(2):  # the same command again cannot do better
        with pytest.raises(train.DivergedError, match=r"was not finite at step \d+"):
            small.fit(trainer, tmp_path, save_seconds=0)
        assert 0 < len(list((tmp_path / "checkpoints").iterdir())) < 5
    _assert_finite([state.params for state in _saved(trainer, tmp_path)])


def test_asked_to_stop(tmp_path: pathlib.Path) -> None:
    trainer = small.shared_trainer()
    with pytest.raises(train.Stopped) as caught:
        small.fit(trainer, tmp_path, calls=8)
    assert str(caught.value) == f"stopped at step 8 of {TOTAL}; state saved"
    assert [int(state.step) for state in _saved(trainer, tmp_path)] == [8]
    assert [row["step"] for row in small.rows(tmp_path)] == [6]


def test_asked_to_stop_at_an_evaluation_its_line_is_there(tmp_path: pathlib.Path) -> None:
    trainer = small.shared_trainer()
    with pytest.raises(train.Stopped):
        small.fit(trainer, tmp_path, calls=6)
    assert [row["step"] for row in small.rows(tmp_path)] == [6]


def test_a_state_that_is_not_finite_is_not_saved_when_asked_to_stop(tmp_path: pathlib.Path) -> None:
    trainer = small.trainer(_breaking(3, "gradient"))
    with pytest.raises(train.DivergedError, match="at step 3 "):
        small.fit(trainer, tmp_path, calls=4)
    assert _saved(trainer, tmp_path) == []
