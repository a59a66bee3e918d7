"""One device and eight give the same training."""

import pathlib
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from experiment import on_devices, small
from quick import with_devices

TESTS = pathlib.Path(__file__).parent.parent
CLONE = f"{TESTS}:{TESTS.parent}"  # this one, whichever is installed

IN_PROCESSES = ("adafocal", "aum_mixup", "fsdp", "streamed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def eight(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """What `on_devices.py` finds in a process with eight devices."""
    return _with_eight(folder / "eight")


def _with_eight(folder: pathlib.Path, *kinds: str) -> dict[str, np.ndarray]:
    folder.mkdir()
    out = folder.with_suffix(".npz")
    done = subprocess.run(
        [sys.executable, on_devices.__file__, out, folder, *kinds],
        env=with_devices(8, PYTHONPATH=CLONE),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(out) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def processes(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """The same of two processes with four devices each."""
    (folder / "processes").mkdir()
    arguments = [folder / "processes.npz", folder / "processes", *IN_PROCESSES]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = with_devices(
        4, PYTHONPATH=CLONE, JAX_COORDINATOR_ADDRESS=address, JAX_NUM_PROCESSES="2"
    )
    both = [
        subprocess.Popen(
            [sys.executable, on_devices.__file__, *arguments],
            env=settings | {"JAX_PROCESS_ID": str(number)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        ends = [(process.communicate(timeout=900)[1], process.returncode) for process in both]
    finally:
        for process in both:
            process.kill()
            process.communicate()
    for errors, code in ends:
        assert code == 0, errors[-3000:]
    with np.load(folder / "processes.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def one(folder: pathlib.Path) -> dict[str, np.ndarray]:
    assert jax.device_count() == 1
    (folder / "one").mkdir()
    return on_devices.results(folder / "one")


@pytest.mark.parametrize("kind", on_devices.DEFAULT)
def test_state_and_log_agree(
    kind: str, one: dict[str, np.ndarray], eight: dict[str, np.ndarray]
) -> None:
    _assert_agree(kind, one, eight)


@pytest.mark.slow
def test_state_and_log_of_more_kinds_agree(tmp_path: pathlib.Path) -> None:
    eight = _with_eight(tmp_path / "eight", *on_devices.SLOW)
    (tmp_path / "one").mkdir()
    one = on_devices.results(tmp_path / "one", on_devices.SLOW)
    for kind in on_devices.SLOW:
        _assert_agree(kind, one, eight)


def _assert_agree(kind: str, one: dict[str, np.ndarray], eight: dict[str, np.ndarray]) -> None:
    assert eight["devices"] == 8
    names = [name for name in one if name.startswith((f"{kind}.", f"{kind} "))]
    assert any(".params" in name for name in names)
    for name in names:
        np.testing.assert_allclose(one[name], eight[name], rtol=2e-4, atol=2e-5, err_msg=name)
    moved = max(
        np.abs(one[name] - other).max()
        for name, other in _start(kind).items()
        if name.startswith(f"{kind}.params")
    )
    assert moved > 0.01  # far more than the tolerance: there was something to agree about


def test_there_was_a_method_to_agree_about(one: dict[str, np.ndarray]) -> None:
    assert one["autolabel.method_state.confidence"].max() < 0.99  # begins at 1
    logits = one["csd artifact teacher_logits"]
    assert logits.shape == (small.NUM_TRAIN, 3)
    assert np.abs(logits - small.ARTIFACTS["teacher_logits"]).max() > 0.1


@pytest.mark.parametrize("kind", IN_PROCESSES)
def test_two_processes_are_one_run(
    kind: str, one: dict[str, np.ndarray], processes: dict[str, np.ndarray]
) -> None:
    assert processes["devices"] == 8
    assert processes["resumed"]
    assert processes["gone back"]
    names = [name for name in processes if name.startswith((f"{kind}.", f"{kind} "))]
    assert any(".params" in name for name in names)
    assert any(" val/nll" in name for name in names)
    for name in names:
        np.testing.assert_allclose(one[name], processes[name], rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("seeds", ["8 seeds", "3 seeds"])
def test_seeds_in_parallel(
    seeds: str,
    one: dict[str, np.ndarray],
    eight: dict[str, np.ndarray],
    processes: dict[str, np.ndarray],
) -> None:
    names = [name for name in one if name.startswith(seeds)]
    assert any(".params" in name for name in names)
    for name in names:
        for found in (eight, processes):
            np.testing.assert_allclose(one[name], found[name], rtol=2e-4, atol=2e-5, err_msg=name)


def _start(kind: str) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(on_devices.trainer(kind).init(0))
    return {f"{kind}{jax.tree_util.keystr(path)}": np.asarray(leaf) for path, leaf in leaves}


def test_eight_devices_compile_once_and_resume_bit_for_bit(eight: dict[str, np.ndarray]) -> None:
    assert eight["resumed"]
    assert eight["gone back"]
    for kind in on_devices.DEFAULT:
        assert eight[f"{kind} compilations"].tolist() == [1, 1], kind


def test_a_run_may_move_from_eight_devices_to_one(
    folder: pathlib.Path, one: dict[str, np.ndarray], eight: dict[str, np.ndarray]
) -> None:
    state = small.fit(on_devices.trainer("adafocal"), folder / "eight" / "moved")
    assert int(state.step) == 4
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = f"adafocal{jax.tree_util.keystr(path)}"
        np.testing.assert_allclose(one[name], leaf, rtol=2e-4, atol=2e-5, err_msg=name)


def test_a_batch_that_does_not_deal_out_is_refused(eight: dict[str, np.ndarray]) -> None:
    assert eight["messages"].tolist() == [
        "batch_size=12: expected a multiple of 8 (8 devices x 1 accumulated parts)",
        "batch_size=8: expected a multiple of 16 (8 devices x 2 accumulated parts)",
        "eval_batch_size=20: expected a multiple of 8 (8 devices x 1 accumulated parts)",
    ]
