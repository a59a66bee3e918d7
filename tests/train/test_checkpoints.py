"""Checkpoints: what is kept, what comes back, and what happens to damaged ones."""

import contextlib
import pathlib
import shutil
from collections.abc import Callable
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment.small import assert_same

from calib_jax import train
from calib_jax.train import _checkpoints, _distributed
from calib_jax.train._state import zero_metrics

REPLICATED = _distributed.replicated(_distributed.make_mesh())


def _make(step: jax.Array) -> train.TrainState:
    """A state that is a function of its step: integers, floats, nothing at all, nested."""
    noise = jax.random.normal(jax.random.key(0), (40, 30))
    return train.TrainState(
        step=jnp.asarray(step, jnp.int32),
        params={"layer": {"kernel": noise + step, "bias": jnp.full(3, step, jnp.bfloat16)}},
        model_state={},
        opt_state=((), {"count": jnp.uint32(step)}),
        method_state=(jnp.arange(15.0) * step,),
        metrics=jax.tree.map(jnp.asarray, zero_metrics()),
    )


_state: Callable[[int], train.TrainState] = jax.jit(_make, out_shardings=REPLICATED)
LIKE = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=REPLICATED), _state(0)
)


def _open(folder: pathlib.Path, said: list[str] | None = None, **options) -> train.Checkpoints:
    return train.Checkpoints(
        folder, best="val/nll", log=print if said is None else said.append, **options
    )


def _steps(folder: pathlib.Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with checkpoints 1 and 2."""
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    with _open(folder) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, _state(step), {"val/nll": float(step)})
    return folder


def test_a_state_comes_back_as_it_was(two: pathlib.Path) -> None:
    with _open(two) as checkpoints:
        restored = checkpoints.restore(LIKE)
        assert checkpoints.latest() == 2
    assert jax.tree.structure(restored) == jax.tree.structure(_state(2))
    assert_same(restored, _state(2))
    assert all(leaf.sharding == REPLICATED for leaf in jax.tree.leaves(restored))


def test_nothing_there_is_nothing(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path / "none") as checkpoints:
        assert checkpoints.restore(LIKE) is None
        assert checkpoints.latest() is None


def test_training_goes_on_in_the_buffers_that_are_being_saved(tmp_path: pathlib.Path) -> None:
    # Large enough that the write is still going on when the next steps reuse the donated memory.
    def make(step):
        return _make(step)._replace(
            params=jax.random.bits(jax.random.key(1), (2_000_000,)) + jnp.uint32(step)
        )

    def advance(state):
        return state._replace(
            step=state.step + 1,
            params=state.params + 1,
            opt_state=((), {"count": state.opt_state[1]["count"] + 1}),
        )

    make = jax.jit(make, out_shardings=REPLICATED)
    advance = jax.jit(advance, out_shardings=REPLICATED, donate_argnums=0)
    state, saved = make(0), [1, 4, 7, 10]
    with _open(tmp_path, newest=len(saved)) as checkpoints:
        for step in range(1, 12):
            state = advance(state)
            if step in saved:
                checkpoints.save(step, state)
        checkpoints.wait()
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=REPLICATED), state
        )
        for step in reversed(saved):
            restored = checkpoints.restore(like)
            assert int(restored.step) == int(restored.opt_state[1]["count"]) == step
            np.testing.assert_array_equal(restored.params, make(step).params)
            shutil.rmtree(tmp_path / str(step))
            checkpoints._manager.reload()


def test_the_newest_are_kept(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, _state(step))
    assert _steps(tmp_path) == [4, 5]


@pytest.mark.parametrize("reopened", [False, True])
def test_the_best_is_kept(tmp_path: pathlib.Path, reopened: bool) -> None:
    values = {1: 5.0, 2: 0.5, 3: 2.0, 4: 3.0, 5: 4.0, 6: None}
    checkpoints = _open(tmp_path)
    for step, value in values.items():
        checkpoints.save(step, _state(step), None if value is None else {"val/nll": value})
        if reopened:
            checkpoints.__exit__()
            checkpoints = _open(tmp_path)
    checkpoints.__exit__()
    assert _steps(tmp_path) == [2, 5, 6]


def test_the_best_comes_back(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as checkpoints:
        for step, value in ((1, 3.0), (2, 0.5), (3, 2.0), (4, 2.5)):
            checkpoints.save(step, _state(step), {"val/nll": value})
        assert_same(checkpoints.restore_best(LIKE), _state(2))
    with _open(tmp_path) as checkpoints:
        assert_same(checkpoints.restore_best(LIKE), _state(2))


@pytest.mark.parametrize("metric", ["val/accuracy", "val/f1"])
def test_of_accuracy_and_f1_the_largest_is_best(tmp_path: pathlib.Path, metric: str) -> None:
    with train.Checkpoints(tmp_path, best=metric, newest=1) as checkpoints:
        for step, value in ((1, 0.5), (2, 0.9), (3, 0.7), (4, 0.8)):
            checkpoints.save(step, _state(step), {metric: value})
        assert_same(checkpoints.restore_best(LIKE), _state(2))
    assert _steps(tmp_path) == [2, 4]


@pytest.mark.parametrize(("metric", "worse"), [("val/accuracy", 0.5), ("val/refinement", 0.9)])
def test_of_equals_the_earliest_is_best(tmp_path: pathlib.Path, metric: str, worse: float) -> None:
    # Accuracies are often equal. Later ones may or may not have been saved: they must not matter.
    with train.Checkpoints(tmp_path, best=metric, newest=1) as checkpoints:
        for step, value in ((1, worse), (2, 0.75), (3, 0.75), (4, worse), (5, 0.75)):
            checkpoints.save(step, _state(step), {metric: value})
        assert_same(checkpoints.restore_best(LIKE), _state(2))
    with train.Checkpoints(tmp_path, best=metric, newest=1) as checkpoints:
        assert_same(checkpoints.restore_best(LIKE), _state(2))
    assert _steps(tmp_path) == [2, 5]


def test_without_the_metric_there_is_no_best(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as checkpoints:
        checkpoints.save(1, _state(1))
        with pytest.raises(
            ValueError, match=f"no checkpoint in {tmp_path} has the metric 'val/nll'"
        ):
            checkpoints.restore_best(LIKE)


def test_a_step_is_saved_once(tmp_path: pathlib.Path) -> None:
    with _open(tmp_path) as checkpoints:
        checkpoints.save(1, _state(1))
        checkpoints.save(1, _state(2))
        assert_same(checkpoints.restore(LIKE), _state(1))


def _truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _zero(path: pathlib.Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [_truncate, _zero, pathlib.Path.unlink])
def test_whatever_happens_to_a_file_what_comes_back_is_whole(
    two: pathlib.Path, tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None]
) -> None:
    files = [path.relative_to(two) for path in (two / "2").rglob("*") if path.is_file()]
    fell_back = 0
    for number, name in enumerate(sorted(files)):
        folder, said = tmp_path / str(number), []
        shutil.copytree(two, folder)
        damage(folder / name)
        with _open(folder, said) as checkpoints:
            restored = checkpoints.restore(LIKE)
            assert restored is not None, name
            step = int(restored.step)
            assert_same(restored, _state(step))
            assert bool(said) == (step == 1), name
            if step == 1:  # the damaged one is out of the way of its successor
                fell_back += 1
                assert "checkpoint 2 cannot be read" in said[0]
                assert said[0].endswith("going back to the one before")
                assert "\n" not in said[0]
                checkpoints.save(2, _state(2))
                assert_same(checkpoints.restore(LIKE), _state(2))
    assert fell_back >= 3  # some files nobody needs, but not all


@pytest.mark.parametrize(
    "error", [OSError(116, "stale file handle"), PermissionError("no"), MemoryError()]
)
def test_a_disk_or_memory_that_fails_for_once_costs_no_checkpoint(
    two: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    shutil.copytree(two, tmp_path / "x")
    with _open(tmp_path / "x") as checkpoints:
        with monkeypatch.context() as patch:
            patch.setattr(checkpoints._reader, "restore", mock.Mock(side_effect=error))
            with pytest.raises(type(error)):
                checkpoints.restore(LIKE)
        assert _steps(tmp_path / "x") == [1, 2]
        assert_same(checkpoints.restore(LIKE), _state(2))


@pytest.mark.parametrize("passing", [False, True])
def test_what_another_process_cannot_read_nobody_does(
    two: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, passing: bool
) -> None:
    shutil.copytree(two, tmp_path / "x")
    agreed = mock.Mock(side_effect=[(passing, True), (False, False)])
    monkeypatch.setattr(_checkpoints, "any_process", agreed)
    # Its parts would be waited for.
    compared = mock.Mock(wraps=_checkpoints._fingerprint)
    monkeypatch.setattr(_checkpoints, "_fingerprint", compared)
    said: list[str] = []
    with _open(tmp_path / "x", said) as checkpoints:
        if passing:
            with pytest.raises(OSError, match="another process could not read checkpoint 2 this"):
                checkpoints.restore(LIKE)
            assert _steps(tmp_path / "x") == [1, 2]
            assert not compared.called
        else:
            assert_same(checkpoints.restore(LIKE), _state(1))
            assert _steps(tmp_path / "x") == [1]
            assert "another process could not read it" in said[0]
            assert compared.call_count == 1
    assert agreed.call_args_list[0] == mock.call(False, False)


def test_a_changed_byte_is_noticed(two: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(two, tmp_path / "x")
    largest = max((tmp_path / "x/2").rglob("*"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0x55
    largest.write_bytes(content)
    with _open(tmp_path / "x") as checkpoints:
        assert_same(checkpoints.restore(LIKE), _state(1))


def test_values_of_another_state_are_noticed(tmp_path: pathlib.Path) -> None:
    saved = {}
    for value in (0.0, 1.0):
        saved[value] = _state(1)._replace(model_state={"scale": jnp.full(64, value)})
        with _open(tmp_path / str(value)) as checkpoints:
            checkpoints.save(1, saved[value])
    for path in (tmp_path / "0.0" / "1").iterdir():
        if path.is_dir() and list(
            path.rglob("manifest.ocdbt")
        ):  # the arrays, not what is said of them
            shutil.rmtree(tmp_path / "1.0" / "1" / path.name)
            shutil.copytree(path, tmp_path / "1.0" / "1" / path.name)
    like = LIKE._replace(
        model_state={"scale": jax.ShapeDtypeStruct((64,), jnp.float32, sharding=REPLICATED)}
    )
    with _open(tmp_path / "1.0") as checkpoints:
        assert checkpoints.restore(like) is None


def test_a_damaged_best_is_named(two: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(two, tmp_path / "x")
    for path in (tmp_path / "x" / "1").rglob("manifest.ocdbt"):
        _zero(path)
    with _open(tmp_path / "x") as checkpoints:
        with pytest.raises(ValueError, match=r"checkpoint 1 .*best") as caught:
            checkpoints.restore_best(LIKE)
        assert "\n" not in str(caught.value)


def _empty(folder: pathlib.Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _hollow(folder: pathlib.Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            _empty(path)


def _file(folder: pathlib.Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.parametrize("damage", [_empty, _hollow, _file])
def test_a_folder_without_a_checkpoint_is_passed_over(
    two: pathlib.Path, tmp_path: pathlib.Path, damage: Callable[[pathlib.Path], None]
) -> None:
    folder, said = tmp_path / "x", []
    shutil.copytree(two, folder)
    damage(folder / "2")
    with _open(folder, said) as checkpoints:
        assert_same(checkpoints.restore(LIKE), _state(1))
    with _open(folder, said) as checkpoints:
        assert_same(checkpoints.restore(LIKE), _state(1))


def test_an_old_one_that_was_half_deleted_is_in_nobodys_way(
    two: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "x"
    shutil.copytree(two, folder)
    _hollow(folder / "1")
    with _open(folder) as checkpoints:
        assert_same(checkpoints.restore(LIKE), _state(2))
        checkpoints.save(3, _state(3), {"val/nll": 1.0})
        checkpoints.save(4, _state(4), {"val/nll": 1.0})
        assert_same(checkpoints.restore(LIKE), _state(4))


def test_if_all_are_damaged_there_is_none(two: pathlib.Path, tmp_path: pathlib.Path) -> None:
    folder, said = tmp_path / "x", []
    shutil.copytree(two, folder)
    for path in folder.rglob("manifest.ocdbt"):
        _zero(path)
    with _open(folder, said) as checkpoints:
        assert checkpoints.restore(LIKE) is None
        assert said[2:] == ["no checkpoint is left: beginning anew"]
        checkpoints.save(1, _state(1))
        assert_same(checkpoints.restore(LIKE), _state(1))


def test_a_good_checkpoint_of_something_else_is_not_thrown_away(
    two: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "x"
    shutil.copytree(two, folder)
    other = LIKE._replace(
        method_state=(jax.ShapeDtypeStruct((7,), jnp.float32, sharding=REPLICATED),)
    )

    def read() -> None:
        with _open(folder) as checkpoints, contextlib.suppress(ValueError):
            assert checkpoints.restore(other) is None

    read()  # refused, or moved out of the way: days of training are in there
    assert len(list(tmp_path.rglob("_CHECKPOINT_METADATA"))) == 2
