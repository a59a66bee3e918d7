"""The folder of an experiment: who may write to it, and for which config."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import IO, Any

import jax
import numpy as np

from calib_jax import methods, train
from calib_jax.experiment._config import differences

_PACKAGES = ("calib_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# More seeds and methods may join a workdir, the data may have moved, and no result depends on the rest.
_FREE = (
    *("seeds", "method.name", "data.dir", "tensorboard", "train.workers", "train.sharding"),
    *("checkpoint.seconds", "checkpoint.keep", "train.log_test"),
)
_SHOWN = 8  # differences of two configs
_LOOK_AGAIN = 1.0  # seconds between two looks at a lock that another process holds


@contextlib.contextmanager
def locked(
    folder: pathlib.Path,
    name: str = ".lock",
    *,
    shared: bool = False,
    say: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Keeps other processes out of a folder; the lock goes when the process does, however.

    Of the processes of a run, which all must ask, the first one holds it.

    Args:
      folder: made if need be.
      name: of the lock; those with different names do not keep each other out.
      shared: keep out only those who do not share it.
      say: wait until the lock is free, and tell the user for whom; without it that is an error.
      should_stop: asked while waiting.
    """
    first = train.is_primary()
    if first:
        folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a+") if first else contextlib.nullcontext() as file:
        told = False
        while True:
            # Not one long wait of the first: the others would give it up for lost.
            taken, stop = train.any_process(
                file is not None and not _lock(file, shared), should_stop()
            )
            if not taken:
                break
            owner = _owner(file)
            if say is None:
                raise ValueError(
                    f"{folder} is in use by {owner}; wait for it, or choose another --workdir"
                )
            if stop:
                raise train.Stopped(f"stopped while waiting for {owner}")
            if not told:
                say(f"waiting for {owner}, at work in {folder}")
                told = True
            time.sleep(_LOOK_AGAIN)
        if file is not None:
            file.truncate(0)
            sharers = "a sweep, last joined by " if shared else ""
            file.write(f"{sharers}process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        yield


def _lock(file: IO[str], shared: bool) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(file: IO[str] | None) -> str:
    """Who wrote last into the file of a lock."""
    if file is None:  # known to the first process only
        return "another process"
    file.seek(0)
    return (file.read().splitlines() or ["another process"])[-1]


def claim(workdir: pathlib.Path, config: Any) -> None:
    """Writes the config, or checks that it is the one the workdir has; new variants may join it.

    Raises:
      ValueError: with the differences.
    """
    path = workdir / "config.json"
    new = json.loads(config.to_json())
    if path.exists():
        try:
            old = json.loads(path.read_text())["config"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{path} is damaged; choose another --workdir, or remove it if the config is the same"
            ) from None
        _share_variants(old, new)
        free = tuple(f"config.{key}:" for key in _FREE)
        found = [line for line in differences(old, new) if not line.startswith(free)]
        if found:
            more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
            raise ValueError(
                f"{workdir} belongs to another config; choose another --workdir, or undo:\n  "
                + "\n  ".join(found[:_SHOWN] + more)
            )
    write_json(path, describe(new))


def _share_variants(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Give each of two configs the variants that only the other one has.

    Not those with the name of a method: without one its runs are of other settings.
    """
    there, now = (config["method"].setdefault("variants", {}) for config in (old, new))
    for name in there.keys() ^ now.keys():
        if name not in methods.NAMES:
            there[name] = now[name] = there.get(name, now.get(name))


def describe(config: dict[str, Any]) -> dict[str, Any]:
    """A config with what else its results depend on."""
    return {
        "config": config,
        "versions": {name: metadata.version(name) for name in _PACKAGES} | {"python": sys.version},
        "git": git_hash(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def run_folder(workdir: pathlib.Path, name: str, seed: int) -> pathlib.Path:
    return workdir / name / f"seed_{seed}"


def phase_folder(run: pathlib.Path, phase: str, row: str) -> pathlib.Path:
    """Where a phase of a run is.

    One that only prepares has no row and is shared by all methods, so that it is trained once a seed.
    """
    workdir = run.parent.parent
    if not row:
        return workdir / "phases" / phase / run.name
    return workdir / row / run.name / ("" if phase == "train" else phase)


def remove(folder: pathlib.Path) -> None:
    """Removes a folder when all processes have done with it."""
    train.barrier(f"{folder} is done with")
    if train.is_primary():
        shutil.rmtree(folder, ignore_errors=True)


def write_json(path: pathlib.Path, content: Any) -> None:
    """All or nothing; by the first process."""
    if not train.is_primary():
        return
    new = path.with_name(path.name + ".tmp")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)


def write_npz(path: pathlib.Path, **arrays: np.ndarray) -> None:
    """All or nothing; by the first process."""
    if not train.is_primary():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".tmp")
    with new.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    new.replace(path)


def git_hash() -> str | None:
    """Of the code that runs, if it runs from a repository."""
    here = pathlib.Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
