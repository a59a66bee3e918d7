"""Checkpoints: the only module that knows orbax."""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from calib_jax.train._step import TrainState


class Checkpoints:
    """The newest checkpoints of a run and the best one.

    Saving happens in the background. A checkpoint appears under its name only when it is complete, so
    one that was interrupted is never seen; one that was damaged later is found out when it is read.

    Args:
      folder: where they are; made if need be.
      best: the metric by which one more is kept, e.g. `'val/ece_mass'`; smaller is better.
      newest: how many of the latest are kept.
      say: called with a line for the user.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        best: str,
        newest: int = 2,
        say: Callable[[str], None] = print,
    ) -> None:
        self._say, self.best, self._folder = say, best, folder.absolute()
        keep = policies.AnyPreservationPolicy(
            [
                policies.LatestN(newest),
                policies.BestN(
                    get_metric_fn=lambda metrics: -metrics[best],
                    n=1,
                    keep_checkpoints_without_metrics=False,
                ),
            ]
        )
        options = ocp.CheckpointManagerOptions(preservation_policy=keep)
        self._manager = ocp.CheckpointManager(self._folder, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()  # waits for what is being written

    def save(
        self, step: int, state: TrainState, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Saves in the background; without `metrics` it cannot be the best."""
        if step in self._manager.all_steps():
            return
        known = {self.best: metrics[self.best]} if metrics else None
        self._manager.save(step, args=ocp.args.StandardSave(state), metrics=known, force=True)

    def wait(self) -> None:
        self._manager.wait_until_finished()

    def latest(self) -> int | None:
        """The newest step that is saved, or being saved."""
        return self._manager.latest_step()

    def restore(self, like: TrainState) -> TrainState | None:
        """The newest checkpoint that can be read, or `None`. Those that cannot are removed."""
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                return self._read(step, like)
            # Whatever is wrong with the files, the one before is the way to go on.
            except Exception as error:
                reason = str(error).strip().splitlines()[:1] or [""]
                self._say(
                    f"checkpoint {step} cannot be read ({type(error).__name__}: {reason[0][:160]}); "
                    "going back to the one before"
                )
                self._manager.delete(step)
        return None

    def restore_best(self, like: TrainState) -> TrainState:
        """The best checkpoint by the named metric."""
        best = self._manager.best_step()
        if best is None:
            raise ValueError(f"no checkpoint in {self._folder} has the metric {self.best!r}")
        return self._read(best, like)

    def _read(self, step: int, like: TrainState) -> Any:
        return self._manager.restore(step, args=ocp.args.StandardRestore(like))
