"""Checkpoints: the only module that knows orbax.

It is imported when something is saved or read, which the first steps of a run do not wait for.
"""

import functools
import json
import math
import pathlib
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from calib_jax.methods import Params, PyTree
from calib_jax.metrics import METRICS
from calib_jax.train._distributed import any_process, barrier, is_primary, to_host
from calib_jax.train._state import TrainState

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

# Metrics of the validation set by which a checkpoint can be chosen, and whether higher is better.
SELECTION = {
    f"val/{key}": bool(METRICS[key].higher_is_better)
    for key in ("nll", "refinement", "ece", "ece_mass", "accuracy")
} | {"val/f1": bool(METRICS["f1_macro"].higher_is_better)}


def cost(metric: str, value: float) -> float:
    """Return a value of one of `SELECTION` so that less is better."""
    return -value if SELECTION[metric] else value


class Checkpoints:
    """The newest checkpoints of a run and the best one.

    Saving happens in the background. A checkpoint appears under its name only when it is complete, so
    one that was interrupted is never seen; one that was damaged later is found out when it is read.

    Args:
      folder: Folder of the checkpoints, created if needed.
      best: Metric by which one more is kept, one of `SELECTION`; of equals the earliest.
      newest: Number of the latest that are kept.
      log: Function that is called with lines for the user.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        best: str,
        newest: int = 2,
        log: Callable[[str], None] = print,
    ) -> None:
        self._log, self.best, self._folder = log, best, folder.absolute()
        self._newest = newest
        self._folder.mkdir(parents=True, exist_ok=True)
        self._put_aside_if_without_metrics()
        if jax.process_count() > 1:
            _ = self._manager  # the processes wait for each other when they open it

    @functools.cached_property
    def _manager(self) -> "ocp.CheckpointManager":
        import orbax.checkpoint as ocp
        from orbax.checkpoint import checkpoint_managers as policies

        best = self.best

        def quality(metrics: Mapping[str, float]) -> tuple[float, float]:
            # Of equals the earliest: it is saved in any run, later ones only if time has come.
            return -cost(best, metrics[best]), -metrics.get("step", 0)

        keep = policies.AnyPreservationPolicy(
            [
                policies.LatestN(self._newest),
                policies.BestN(
                    get_metric_fn=quality,
                    n=1,
                    keep_checkpoints_without_metrics=False,
                ),
            ]
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=keep, best_fn=quality, best_mode="max"
        )
        handlers = _handlers()
        return ocp.CheckpointManager(
            self._folder, options=options, item_names=tuple(handlers), item_handlers=handlers
        )

    @functools.cached_property
    def _reader(self) -> "ocp.CompositeCheckpointHandler":
        """Return what reads: the manager's own restore waits for processes that could not read, too."""
        import orbax.checkpoint as ocp

        return ocp.CompositeCheckpointHandler(**_handlers())

    @property
    def _is_open(self) -> bool:
        """Return whether something has been saved or read, or there is something to read."""
        opened = "_manager" in self.__dict__
        return opened or any(path.name.isdigit() for path in self._folder.iterdir())

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            self._manager.close()  # waits for what is being written

    def save(
        self, step: int, state: TrainState, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Save in the background; without `metrics` it cannot be the best."""
        import orbax.checkpoint as ocp

        if step in self._manager.all_steps():
            return
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            check=ocp.args.JsonSave(
                {
                    "fingerprint": _fingerprint(state),
                    "network": _fingerprint((state.params, state.model_state)),
                }
            ),
        )
        known = {self.best: metrics[self.best], "step": step} if metrics else None
        self._manager.save(step, args=items, metrics=known, force=True)

    def wait(self) -> None:
        """Wait until everything has been written."""
        if self._is_open:
            self._manager.wait_until_finished()

    def latest(self) -> int | None:
        """Return the newest step that is saved, or being saved."""
        return self._manager.latest_step() if self._is_open else None

    def restore(self, like: TrainState, at_most: float = math.inf) -> TrainState | None:
        """Return the newest checkpoint that can be read, or `None`; damaged ones are moved aside.

        Args:
          like: Shapes and shardings of the state.
          at_most: Largest step to restore.

        Raises:
          OSError, MemoryError, JaxRuntimeError: If the disk or the memory is at fault, not the files.
        """
        steps = self._manager.all_steps() if self._is_open else ()
        for step in sorted(steps, reverse=True):
            if step > at_most:
                continue
            try:
                return self._read(step, like)
            except Exception as error:  # whatever is wrong with the files, there is the one before
                if _may_pass(error):
                    raise
                self._put_aside(step, error)
            self._manager.reload()
            if not self._manager.all_steps():
                self._log("no checkpoint is left: beginning anew")
        return None

    def restore_best(self, like: TrainState) -> TrainState:
        """Return the best checkpoint by the metric `best`."""
        best = self._manager.best_step() if self._is_open else None
        if best is None or self._manager.metrics(best) is None:
            raise ValueError(f"no checkpoint in {self._folder} has the metric {self.best!r}")
        try:
            return self._read(best, like)
        except Exception as error:  # as in restore, but no other can take its place
            raise ValueError(
                f"checkpoint {best} is the best and cannot be read ({_in_short(error)}); "
                "config.checkpoint.select='last' evaluates the last one"
            ) from error

    def _read(self, step: int, like: TrainState) -> TrainState:
        """Return a checkpoint; if any process cannot read its part, all raise, in the same place."""
        import orbax.checkpoint as ocp

        items = ocp.args.Composite(
            state=ocp.args.StandardRestore(like), check=ocp.args.JsonRestore()
        )
        self.wait()  # it may be being written
        problem: Exception | None = None
        try:
            restored = self._reader.restore(self._folder / str(step), args=items)
            saved = restored.check["fingerprint"]
        except Exception as error:
            problem = error
        passing, damaged = _may_pass(problem), problem is not None
        # Before the values are compared, for which the processes send each other their parts.
        any_passing, any_damaged = any_process(passing, damaged)
        if any_passing and not passing:
            raise OSError(f"another process could not read checkpoint {step} this time")
        if any_damaged:
            raise problem or ValueError("another process could not read it")
        if _fingerprint(restored.state) != saved:
            raise ValueError("its values are not those that were saved")
        return restored.state

    def _put_aside_if_without_metrics(self) -> None:
        """Move checkpoints with damaged metrics aside: orbax fails on them when it opens a folder."""
        for path in self._folder.glob("*/metrics/metrics"):
            try:
                json.loads(path.read_bytes())
            except ValueError as error:
                self._put_aside(int(path.parts[-3]), error)

    def _put_aside(self, step: int, error: Exception) -> None:
        """Move a checkpoint aside; nothing is deleted, as it may be a good one of something else."""
        self._log(
            f"checkpoint {step} cannot be read ({_in_short(error)}) and is put aside; "
            "going back to the one before"
        )
        if is_primary():
            self._move_aside(step)
        barrier(f"checkpoint {step} put aside")

    def _move_aside(self, step: int) -> None:
        aside = self._folder.with_name(f"{self._folder.name}_unreadable")
        aside.mkdir(exist_ok=True)
        number = sum(path.name.startswith(f"{step}_") for path in aside.iterdir())
        (self._folder / str(step)).rename(aside / f"{step}_{number}")


def restore_network(
    path: pathlib.Path, params: Params, model_state: PyTree
) -> tuple[Params, PyTree]:
    """Return the parameters and the model state of one checkpoint, on the host.

    Nothing else of the state is read, and the devices it was trained on do not matter.

    Args:
      path: Folder of the checkpoint, `checkpoints/STEP`.
      params: Pytree of the parameters' shapes.
      model_state: Pytree of the model state's shapes.

    Raises:
      ValueError: If the checkpoint is missing, damaged or of another network.
    """
    import orbax.checkpoint as ocp

    if not path.is_dir():
        raise ValueError(f"{path}: there is no such checkpoint")
    like = {"params": params, "model_state": model_state}
    arguments = ocp.args.PyTreeRestore(
        item=like,
        restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like),
        partial_restore=True,
    )
    try:
        restored = ocp.PyTreeCheckpointHandler().restore(path.absolute() / "state", args=arguments)
        saved = json.loads((path / "check" / "metadata").read_text())["network"]
    except Exception as error:  # whatever is wrong with the files
        if _may_pass(error):
            raise
        raise ValueError(f"{path}: cannot be read ({_in_short(error)})") from error
    for (keys, x), shape in zip(
        jax.tree_util.tree_leaves_with_path(restored), jax.tree.leaves(like), strict=True
    ):
        found = x.shape if isinstance(x, np.ndarray) else None  # orbax leaves out what is not there
        if found != shape.shape:
            raise ValueError(
                f"{path}: of another network: {jax.tree_util.keystr(keys)} has shape {found}, "
                f"expected {shape.shape}"
            )
    network = restored["params"], restored["model_state"]
    if _fingerprint(network) != saved:
        raise ValueError(f"{path}: damaged; its values are not those that were saved")
    return network


def _handlers() -> "dict[str, ocp.CheckpointHandler]":
    import orbax.checkpoint as ocp

    return {"state": ocp.StandardCheckpointHandler(), "check": ocp.JsonCheckpointHandler()}


def _fingerprint(state: PyTree) -> int:
    """Return a number that changes with any bit of the state; on the host, nothing is compiled."""
    crc = 0
    for leaf in jax.tree.leaves(state):
        crc = zlib.crc32(np.ascontiguousarray(to_host(leaf)).reshape(-1).view(np.uint8).data, crc)
    return crc


def _may_pass(error: Exception | None) -> bool:
    """Return whether the disk or the memory is at fault, so that the same files may be read later."""
    damage = FileNotFoundError, NotADirectoryError, IsADirectoryError
    passing = OSError, MemoryError, jax.errors.JaxRuntimeError
    return isinstance(error, passing) and not isinstance(error, damage)


def _in_short(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:160]}"
