"""The folder of an experiment: who may write to it, and for which config."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import jax
import numpy as np

from calib_jax.experiment._config import differences

_PACKAGES = ("calib_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# More seeds and methods may join a workdir, the data may have moved, and no result depends on the rest.
_FREE = ("seeds", "method.name", "data.dir", "checkpoint.seconds", "train.workers", "tensorboard")


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
    """Keeps a second process out of the workdir; the lock goes when the process does, however."""
    workdir.mkdir(parents=True, exist_ok=True)
    with (workdir / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise ValueError(
                f"{workdir} is in use by process {owner}; wait for it, or choose another --workdir"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def claim(workdir: pathlib.Path, config: Any) -> None:
    """Writes the config, or checks that it is the one the workdir has.

    Raises:
      ValueError: with the differences.
    """
    path = workdir / "config.json"
    new = json.loads(config.to_json())
    if path.exists():
        old = json.loads(path.read_text())["config"]
        free = tuple(f"config.{key}:" for key in _FREE)
        found = [line for line in differences(old, new) if not line.startswith(free)]
        if found:
            raise ValueError(
                f"{workdir} belongs to another config; choose another --workdir, or undo:\n  "
                + "\n  ".join(found)
            )
    write_json(path, describe(new))


def describe(config: dict[str, Any]) -> dict[str, Any]:
    """A config with what else its results depend on."""
    return {
        "config": config,
        "versions": {name: metadata.version(name) for name in _PACKAGES} | {"python": sys.version},
        "git": _git_hash(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def phase_folder(run: pathlib.Path, phase: str) -> pathlib.Path:
    """Where a phase before the last is: shared by all methods, so that it is trained once a seed."""
    return run.parent.parent / "phases" / phase / run.name


def write_json(path: pathlib.Path, content: Any) -> None:
    """All or nothing."""
    new = path.with_name(path.name + ".tmp")
    new.write_text(json.dumps(content, indent=2) + "\n")
    new.replace(path)


def write_npz(path: pathlib.Path, **arrays: np.ndarray) -> None:
    """All or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".tmp")
    with new.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    new.replace(path)


def _git_hash() -> str | None:
    """Of the code that runs, if it runs from a repository."""
    here = pathlib.Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
