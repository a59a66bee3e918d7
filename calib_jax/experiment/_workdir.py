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

import jax
import numpy as np

from calib_jax import _io, methods, train
from calib_jax._hints import differences
from calib_jax._locks import lock_owner, try_lock, write_owner
from calib_jax.experiment._keys import Config, JsonDict

_PACKAGES = ("calib_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# More seeds and methods may join a workdir, the data may have moved, and no result depends on the rest.
_FREE = (
    *("seeds", "method.name", "data.dir", "tensorboard", "train.workers", "train.sharding"),
    *("checkpoint.seconds", "checkpoint.keep", "train.log_test", "interactive"),
)
_IDENTITY = ("data", "model")
_NO_CUSTOM: JsonDict = {"data": False, "network": False, "methods": {}}
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
    """Keep other processes out of a folder; the lock ends with the process, however that ends.

    All processes of a run must call this; the primary one holds the lock.

    Args:
      folder: Folder, created if needed.
      name: Name of the lock; locks with different names are independent.
      shared: Whether to keep out only those that do not share it.
      log: Function for a line that says whom the user is waiting for; without it a lock that is
        not free is an error.
      should_stop: Function that is called while waiting.
    """
    first = train.is_primary()
    if first:
        folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a+") if first else contextlib.nullcontext() as file:
        logged = False
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
            if not logged:
                log(f"waiting for {owner}, at work in {folder}")
                logged = True
            time.sleep(_LOOK_AGAIN)
        if file is not None:
            write_owner(file, "a sweep, last joined by " if shared else "")
        yield


def is_started(workdir: pathlib.Path) -> bool:
    """Return whether a workdir has a config and a checkpoint or result; the same in all processes."""
    started = (workdir / "config.json").exists() and any(
        path.exists()
        for pattern in ("checkpoints/[0-9]*", "results.json", "evaluation.json")
        for path in workdir.rglob(pattern)
    )
    return train.any_process(started)[0]


def claim(
    workdir: pathlib.Path,
    config: Config,
    identity: JsonDict | None = None,
    custom: JsonDict | None = None,
    *,
    replace: bool = False,
) -> None:
    """Write the config, or check that it is the one the workdir has; new variants may join it.

    Args:
      workdir: Folder of the experiment.
      config: Config of the experiment.
      identity: What tells data and network from others (`_custom.identify`); `None` for what the workdir
        has.
      custom: Kinds of objects in place of the config's (`Custom.kinds`).
      replace: Whether a config that the workdir has is replaced.

    Raises:
      ValueError: If the workdir is of an earlier version or of another config, with the differences.
    """
    path = workdir / "config.json"
    new, custom = json.loads(config.to_json()), custom or _NO_CUSTOM
    stored: JsonDict = {}
    if path.exists() and not replace:
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
        _check_objects(workdir, stored, identity, custom)
        names = stored.get("custom", _NO_CUSTOM)["methods"] | custom["methods"]
        custom = custom | {"methods": names}
    kept = {key: stored[key] for key in _IDENTITY if key in stored}
    write_json(path, describe(new) | kept | (identity or {}) | {"custom": custom})


def read_identity(workdir: pathlib.Path) -> JsonDict:
    """Return what tells the data and network of a workdir from others."""
    stored = json.loads((workdir / "config.json").read_text())
    return {key: stored[key] for key in (*_IDENTITY, "custom") if key in stored}


def check_content(workdir: pathlib.Path, content: dict[str, str]) -> None:
    """Raise a ValueError if sets of a workdir have changed.

    Args:
      workdir: Folder of the experiment.
      content: Hash of each set, as it is now.
    """
    stored = read_identity(workdir).get("data", {}).get("content", {})
    for name, there in stored.items():
        if name in content and content[name] != there:
            raise ValueError(
                f"{workdir} has runs on other data: the set {name!r} has changed (content {there} there, "
                f"{content[name]} now); choose another --workdir"
            )


def _check_objects(
    workdir: pathlib.Path, stored: JsonDict, identity: JsonDict | None, custom: JsonDict
) -> None:
    """Raise a ValueError for other objects than those that a workdir was made with."""
    there = stored.get("custom", _NO_CUSTOM)
    for kind in ("data", "network"):
        if there[kind] != custom[kind]:
            words = ("with", "without") if there[kind] else ("without", "with")
            raise ValueError(
                f"{workdir} was made {words[0]} {kind}=… given to experiment.run, and now is run "
                f"{words[1]}; choose another --workdir, or give the same"
            )
    for name, loss in custom["methods"].items():
        before = there["methods"].get(name, loss)
        if before != loss:
            raise ValueError(
                f"{workdir} has another method {name!r}: {before} there, {loss} now; choose another "
                "--workdir, or another name in config.method.name"
            )
    if identity is None:
        return
    check_content(workdir, identity["data"]["content"])
    models = [known["model"] for known in (stored, identity) if "model" in known]
    if custom["network"] and models[0] != models[-1]:
        before, now = (f"{m['class']} of {m['num_parameters']:,} parameters" for m in models)
        raise ValueError(
            f"{workdir} has another network: {before} there, {now} now (names, shapes and types of "
            "parameters are compared); choose another --workdir"
        )


def _share_variants(old: JsonDict, new: JsonDict) -> None:
    """Give each of two configs the variants that only the other one has.

    Not those with the name of a method: without one its runs are of other settings.
    """
    there, now = (config["method"].setdefault("variants", {}) for config in (old, new))
    for name in there.keys() ^ now.keys():
        if name not in methods.NAMES:
            there[name] = now[name] = there.get(name, now.get(name))


def describe(config: JsonDict) -> JsonDict:
    """Return a config with what else its results depend on."""
    return {
        "format": FORMAT,
        "config": config,
        "versions": {name: metadata.version(name) for name in _PACKAGES} | {"python": sys.version},
        "git": git_hash(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def run_folder(workdir: pathlib.Path, name: str, seed: int) -> pathlib.Path:
    """Return the folder of one seed of a method or variant."""
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
    """Remove a folder when no process needs it anymore."""
    train.barrier(f"{folder} is not needed")
    if train.is_primary():
        shutil.rmtree(folder, ignore_errors=True)


def write_json(path: pathlib.Path, content: JsonDict) -> None:
    """Write JSON atomically, in the primary process only."""
    if train.is_primary():
        _io.write_json(path, content)


def write_npz(path: pathlib.Path, **arrays: np.ndarray) -> None:
    """Write arrays atomically, in the primary process only."""
    if train.is_primary():
        _io.write_npz(path, **arrays)


def git_hash() -> str | None:
    """Return the git revision of the code that runs, if it runs from a repository."""
    here = pathlib.Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
