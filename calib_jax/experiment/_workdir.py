"""The folder of an experiment: who may write to it, and for which config."""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import jax
import numpy as np

from calib_jax import _io, methods, train
from calib_jax._hints import differences
from calib_jax._locks import lock_owner, try_lock, write_owner

_PACKAGES = ("calib_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# More seeds and methods may join a workdir, the data may have moved, and no result depends on the rest.
_FREE = (
    *("seeds", "method.name", "data.dir", "tensorboard", "train.workers", "train.sharding"),
    *("checkpoint.seconds", "checkpoint.keep", "train.log_test"),
)
FORMAT = 2  # of what a run leaves in its workdir and needs to be resumed
_SHOWN = 8  # differences of two configs
_LOOK_AGAIN = 1.0  # seconds between two looks at a lock that another process holds


@contextlib.contextmanager
def locked(
    folder: pathlib.Path,
    name: str = ".lock",
    *,
    shared: bool = False,
    log: Callable[[str], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Keeps other processes out of a folder; the lock goes when the process does, however.

    Of the processes of a run, which all must ask, the first one holds it.

    Args:
      folder: made if need be.
      name: of the lock; those with different names do not keep each other out.
      shared: keep out only those who do not share it.
      log: Function for a line that says whom the user is waiting for; without it a lock that is
        not free is an error.
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
                file is not None and not try_lock(file, shared=shared), should_stop()
            )
            if not taken:
                break
            owner = lock_owner(file) if file is not None else "another process"
            if log is None:
                raise ValueError(
                    f"{folder} is in use by {owner}; wait for it, or choose another --workdir"
                )
            if stop:
                raise train.Stopped(f"stopped while waiting for {owner}")
            if not told:
                log(f"waiting for {owner}, at work in {folder}")
                told = True
            time.sleep(_LOOK_AGAIN)
        if file is not None:
            write_owner(file, "a sweep, last joined by " if shared else "")
        yield


def is_claimed(workdir: pathlib.Path) -> bool:
    """Return whether a workdir has a config; the same in all processes."""
    return train.any_process((workdir / "config.json").exists())[0]


def claim(workdir: pathlib.Path, config: Any) -> None:
    """Write the config, or check that it is the one the workdir has; new variants may join it.

    Raises:
      ValueError: If the workdir is of an earlier version or of another config, with the differences.
    """
    path = workdir / "config.json"
    new = json.loads(config.to_json())
    if path.exists():
        try:
            stored = json.loads(path.read_text())
            old, version = stored["config"], stored.get("format", 1)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(
                f"{path} is damaged; choose another --workdir, or remove it if the config is the same"
            ) from None
        if version != FORMAT:
            raise ValueError(
                f"{workdir} has format {version}, expected {FORMAT}: another version of calib_jax made "
                "it, and its runs cannot be resumed; choose another --workdir (--compare and "
                "calib_jax.evaluate still read it)"
            )
        _share_variants(old, new)
        free = tuple(f"config.{key}:" for key in _FREE)
        changed = [line for line in differences(old, new) if not line.startswith(free)]
        if changed:
            more = [f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
            raise ValueError(
                f"{workdir} belongs to another config; choose another --workdir, or undo:\n  "
                + "\n  ".join(changed[:_SHOWN] + more)
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
        "format": FORMAT,
        "config": config,
        "versions": {name: metadata.version(name) for name in _PACKAGES} | {"python": sys.version},
        "git": git_hash(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def run_folder(workdir: pathlib.Path, name: str, seed: int) -> pathlib.Path:
    return workdir / name / f"seed_{seed}"


def phase_folder(run: pathlib.Path, phase: str, owner: str) -> pathlib.Path:
    """Return the folder of a phase of a run.

    A preparation has no owner and is shared by all methods, so that it is trained once per seed.
    """
    workdir = run.parent.parent
    if not owner:
        return workdir / "phases" / phase / run.name
    return workdir / owner / run.name / ("" if phase == "train" else phase)


def remove(folder: pathlib.Path) -> None:
    """Removes a folder when all processes have done with it."""
    train.barrier(f"{folder} is done with")
    if train.is_primary():
        shutil.rmtree(folder, ignore_errors=True)


def write_json(path: pathlib.Path, content: Any) -> None:
    """Write JSON atomically, in the primary process only."""
    if train.is_primary():
        _io.write_json(path, content)


def write_npz(path: pathlib.Path, **arrays: np.ndarray) -> None:
    """Write arrays atomically, in the primary process only."""
    if train.is_primary():
        _io.write_npz(path, **arrays)


def git_hash() -> str | None:
    """Of the code that runs, if it runs from a repository."""
    here = pathlib.Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
