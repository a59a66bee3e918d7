"""The same small trainings on however many devices and processes there are.

As a script, for a process that has eight devices, or for one of two that have four each:

    python on_devices.py OUT.npz FOLDER [KIND …]
"""

import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any
from unittest import mock

import jax
import numpy as np
import orbax.checkpoint as ocp
from experiment import nnx_networks, small
from jax.sharding import AxisType, Mesh

from calib_jax import methods, train
from calib_jax.experiment import _recipe, _robustness

RESNET = {"stages": (1,), "widths": (4,), "stem_width": 4}
KINDS: dict[str, dict[str, Any]] = {
    "cross_entropy": {"method": "cross_entropy"},
    "adafocal": {"method": "adafocal", "evaluate_every": 1},
    "mmce": {"method": "mmce"},
    "accumulated": {"method": "adafocal", "accumulate": 2, "steps_per_call": 2},
    "aum_mixup": {"method": "aum_mixup", "batch_size": 8},
    "autolabel": {"method": methods.create("mixup_autolabel", num_buckets=2, alpha=0.5)},
    "csd": {"method": "csd"},
    "fsdp": {"method": "adafocal", "sharding": "fsdp", "model_options": {"widths": (16,)}},
    "streamed": {"method": "adafocal", "streamed": True},
    "statistics": {"method": "cross_entropy", "model": "resnet20", "model_options": RESNET},
    "nnx_resnet": {"method": "adafocal", "model": nnx_networks.resnet()},
    "nnx_mlp": {"method": "mixup", "model": nnx_networks.mlp()},
}
SLOW = ("cross_entropy", "nnx_mlp")  # what they do is part of what others do, too
DEFAULT = tuple(kind for kind in KINDS if kind not in SLOW)


def trainer(kind: str) -> train.Trainer:
    """Two epochs of two steps; the second has six rows that count and ten that fill up."""
    width = 8 if kind == "statistics" else 4
    options = {"batch_size": 16, "epochs": 2, "width": width} | KINDS[kind]
    if kind != "streamed":
        return small.trainer(**options)
    with mock.patch.object(train._trainer._distributed, "make_mesh", _interleaved):
        return small.trainer(**options)


def _interleaved() -> Mesh:
    """Neighbours are of different processes, as a machine's wiring may have it."""
    own = [jax.local_devices(process_index=i) for i in range(jax.process_count())]
    devices = [device for neighbours in zip(*own, strict=True) for device in neighbours]
    return Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))


def results(folder: pathlib.Path, kinds: Iterable[str] = DEFAULT) -> dict[str, np.ndarray]:
    """Final state and log of each, and whether a run that was stopped ended in the same bits."""
    found = {}
    for kind in kinds:
        made = trainer(kind)
        state = small.fit(made, folder / kind)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state):
            found[f"{kind}{jax.tree_util.keystr(path)}"] = train.to_host(leaf)
        for key, value in small.rows(folder / kind)[-1].items():
            if key not in ("method/bucket_names", "method/bucket_meaning"):  # words
                found[f"{kind} {key}"] = np.asarray(value)
        found[f"{kind} compilations"] = np.asarray(list(made.compilations().values()))
        if kind == "csd":
            for key, value in _recipe._teaching(made, state).items():  # the generation after it
                found[f"csd artifact {key}"] = value
        if kind == "adafocal":
            found["resumed"] = np.asarray(_resumed(made, folder / "parts", state))
            part, options = small.images(20, 3), {"eps": 0.1, "steps": 2, "restarts": 2, "seed": 0}
            for key, value in _robustness.attack(made, state, part, **options).items():
                found[f"adafocal attack {key}"] = np.asarray(value)
        if kind == "fsdp":
            again = _with_a_damaged_part(made, folder / "damaged")
            pairs = zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True)
            same = [np.array_equal(train.to_host(a), train.to_host(b)) for a, b in pairs]
            found["gone back"] = np.asarray(all(same))
    # Eight seeds, one for each of eight devices, and three, whose batches are dealt out.
    made = trainer("adafocal")
    for seeds in (range(8), range(3)):
        state = small.fit_seeds(made, folder / f"{len(seeds)}_seeds", seeds)[-1]
        for path, leaf in jax.tree_util.tree_leaves_with_path(state):
            found[f"{len(seeds)} seeds{jax.tree_util.keystr(path)}"] = train.to_host(leaf)
    return found


def _resumed(made: train.Trainer, folder: pathlib.Path, whole: train.TrainState) -> bool:
    stop_after(made, folder, 3 if jax.process_count() == 1 else 2)  # several stop a call later
    small.assert_same(small.fit(made, folder), whole)
    return True


def _with_a_damaged_part(made: train.Trainer, folder: pathlib.Path) -> train.TrainState:
    """All go back if the last process cannot read its part of the newest checkpoint."""
    small.fit(made, folder, save_seconds=0.0)
    restore, steps = ocp.CompositeCheckpointHandler.restore, []

    def restored(self: ocp.CompositeCheckpointHandler, place: pathlib.Path, **options: Any) -> Any:
        steps.append(int(place.name))
        if len(steps) == 1 and jax.process_index() == jax.process_count() - 1:
            raise ValueError("damaged")
        return restore(self, place, **options)

    with mock.patch.object(ocp.CompositeCheckpointHandler, "restore", restored):
        state = small.fit(made, folder)
    assert steps == sorted(steps, reverse=True), steps
    assert len(steps) == 2, steps
    return state


def stop_after(made: train.Trainer, folder: pathlib.Path, calls: int) -> None:
    try:
        small.fit(made, folder, calls=calls)
    except train.Stopped:
        return
    raise AssertionError("it did not stop")


def message(**setup: int) -> str:
    try:
        small.trainer(**setup)
    except ValueError as error:
        return str(error)
    raise AssertionError("not refused")


if __name__ == "__main__":
    out, folder = map(pathlib.Path, sys.argv[1:3])
    train.init_distributed("env" if "JAX_PROCESS_ID" in os.environ else "none")
    arrays = results(folder, sys.argv[3:] or DEFAULT)
    arrays["devices"] = np.asarray(jax.device_count())
    arrays["messages"] = np.asarray(
        [
            message(batch_size=12),
            message(batch_size=8, accumulate=2),
            message(batch_size=16, eval_batch_size=20),
        ]
    )
    stop_after(trainer("adafocal"), folder / "moved", 3)
    if train.is_primary():
        np.savez(out, **arrays)
