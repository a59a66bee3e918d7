"""The loop: train, evaluate, let the method learn from it, log, save. It resumes bit for bit.

All that a step depends on is the state, the run's seed and the step's number. A checkpoint holds the
state, and the log holds every line up to it. So after any kind of end the same command goes on from the
newest checkpoint and gives what would have been.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.train._checkpoints import Checkpoints
from calib_jax.train._feed import Piece
from calib_jax.train._log import Log
from calib_jax.train._processes import together
from calib_jax.train._progress import Progress
from calib_jax.train._step import Sums, TrainState
from calib_jax.train._trainer import Trainer

_AFTER_EPOCH = 2  # what a step's key is used for, next to what the step itself does with it
_LOOK_SECONDS = 0.05  # a small network takes many steps in that time; no eye needs to see each


class DivergedError(ValueError):
    """A loss or gradient was not finite."""


class Stopped(Exception):  # noqa: N818 - it is no error
    """The run was asked to stop, and its state is saved."""


def fit(
    trainer: Trainer,
    seed: int,
    checkpoints: Checkpoints,
    log: Log,
    *,
    title: str = "train",
    save_seconds: float = 60.0,
    save_best: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Trains to the end, from the newest checkpoint if there is one.

    Args:
      trainer: what to train, on what.
      seed: of initialisation, order and noise.
      checkpoints: of this run.
      log: of this run.
      title: for messages.
      save_seconds: at least so long between checkpoints.
      save_best: also save whenever the checkpoints' metric is at its best.
      should_stop: asked after every call; if true the state is saved and `Stopped` raised.

    Returns:
      The state after the last step.
    """
    restored = checkpoints.restore(trainer.abstract_state())
    state = trainer.init(seed) if restored is None else restored
    step = int(state.step)
    log.cut(step)
    progress = Progress(title, trainer.total_steps, step, trainer.train.batch_size)
    if 0 < step < trainer.total_steps:
        progress.say(f"resumed at step {step} of {trainer.total_steps}")
    run = _Run(trainer, seed, checkpoints, log, progress, save_seconds, save_best)
    try:
        return run.to_the_end(state, step, should_stop)
    finally:
        progress.close()


class _Run:
    """One run. Results are read one call late, so that the device always has the next thing to do."""

    def __init__(
        self,
        trainer: Trainer,
        seed: int,
        checkpoints: Checkpoints,
        log: Log,
        progress: Progress,
        save_seconds: float,
        save_best: bool,
    ) -> None:
        self.trainer, self.seed, self.key = trainer, seed, jax.random.key(seed)
        self.checkpoints, self.log, self.progress = checkpoints, log, progress
        self.save_seconds, self.save_best = save_seconds, save_best
        self.saved = self.looked = time.monotonic()
        rows = log.rows()
        self.best = min((row[checkpoints.best] for row in rows), default=math.inf)
        # A run that was resumed has taken the time of all its parts.
        self.began = self.saved - (rows[-1]["perf/seconds"] if rows else 0.0)
        self.labels = jax.device_put(trainer.val.dataset.labels)
        self.unread: tuple[int, Sums] | None = None
        self.unwritten: tuple[Sums, dict[str, Any]] | None = None
        self.row: dict[str, Any] | None = None  # the last line written

    def to_the_end(
        self, state: TrainState, step: int, should_stop: Callable[[], bool]
    ) -> TrainState:
        trainer = self.trainer
        while step < trainer.total_steps:
            epoch, first = divmod(step, trainer.train.steps)
            plan = trainer.train.shuffled(self.seed, epoch)
            to_evaluation = trainer.evaluate_every - step % trainer.evaluate_every
            last = min(trainer.train.steps, first + to_evaluation)
            for piece in trainer.train.pieces(plan, first, last, seed=self.seed, epoch=epoch):
                state, sums = self._advance(state, piece)
                step += piece.num_steps
                self._read(step, sums)
                if step % trainer.evaluate_every == 0 or step == trainer.total_steps:
                    state = self._evaluate(state, step, sums)
                due = time.monotonic() - self.saved >= self.save_seconds
                stop, due = together(should_stop(), due)
                if stop:
                    self._save(state, step)
                    self.checkpoints.wait()
                    raise Stopped(f"stopped at step {step} of {trainer.total_steps}; state saved")
                if due:
                    self._save(state, step)
        self._save(state, step)
        self.checkpoints.wait()
        return state

    def _advance(self, state: TrainState, piece: Piece) -> tuple[TrainState, Sums]:
        if self.trainer.compilations()["train"]:
            return self.trainer.advance(state, piece, self.key)
        self.progress.say("compiling the training step ...")
        start = time.monotonic()
        result = jax.block_until_ready(self.trainer.advance(state, piece, self.key))
        self.progress.say(f"first step after {time.monotonic() - start:.1f} s")
        return result

    def _read(self, step: int, sums: Sums) -> None:
        """Looks at the call before the one that has just been sent off."""
        before, self.unread = self.unread, (step, sums)
        if before is None:
            return
        before[1].failed.block_until_ready()  # never more than one call ahead
        if time.monotonic() - self.looked >= _LOOK_SECONDS:
            self._look_at(*before)

    def _look_at(self, step: int, sums: Sums) -> None:
        self.looked = time.monotonic()
        sums = jax.device_get(sums)
        self._check(sums)
        self._write()
        self.progress.update(step, loss=sums.loss / sums.weight)

    def _check(self, sums: Sums) -> None:
        if sums.failed >= 0:
            good = self.checkpoints.latest()
            where = "no checkpoint yet" if good is None else f"last good checkpoint: step {good}"
            raise DivergedError(
                f"the {'loss' if sums.loss_failed else 'gradient'} was not finite at step "
                f"{sums.failed} ({where}); try a smaller learning rate or clipping "
                "(config.optimizer.clip_norm)"
            )

    def _evaluate(self, state: TrainState, step: int, sums: Sums) -> TrainState:
        """Judges the validation set, lets the method learn from it, and begins new sums."""
        trainer, method = self.trainer, self.trainer.method
        logits = trainer.predict(state, trainer.val)

        spent = {}

        def evaluate(
            transform: Any = None, *, measure: Any = None, arguments: Any = None, limit: int = 0
        ) -> Any:
            if measure is not None:
                start = time.monotonic()
                feed = trainer.measuring.part(trainer.val, limit)
                sums = jax.block_until_ready(
                    trainer.measuring(state.params, state.network, feed, measure, arguments)
                )
                spent["perf/method_seconds"] = round(time.monotonic() - start, 3)
                return sums
            if transform is None:
                return logits, self.labels
            return trainer.predict(state, trainer.val, transform), self.labels

        key = jax.random.fold_in(jax.random.fold_in(self.key, step), _AFTER_EPOCH)
        method_state = method.after_epoch(state.method, evaluate, key)
        self._write()
        # Copies: what is reported may be part of the state, whose memory the next step takes over.
        reported = jax.tree.map(jnp.copy, method.report(method_state, logits, self.labels))
        self.unwritten = (
            sums,
            {
                "step": step,
                "epoch": step / trainer.train.steps,
                "train/loss": sums.loss / sums.weight,
                "train/accuracy": sums.correct / sums.weight,
                **_under("val", trainer.judge(logits, self.labels)),
                **_under("method", reported),
                **spent,
            },
        )
        state = trainer.after_evaluation(state, method_state)
        if self.save_best:
            before = self.best
            self._finish_reading()
            if together(self.best < before)[0]:
                self._save(state, step)
        return state

    def _write(self) -> None:
        """Appends the line of the last evaluation, if it is still to be written."""
        if self.unwritten is None:
            return
        sums, values = self.unwritten
        self._check(jax.device_get(sums))
        row = {key: np.asarray(value).tolist() for key, value in values.items()}
        self.unwritten, self.row = None, row
        self.best = min(self.best, row[self.checkpoints.best])
        row["perf/seconds"] = round(time.monotonic() - self.began, 3)
        row["perf/examples_per_second"] = round(self.progress.rate(), 1)
        self.log.append(row)
        facts = {"loss": "train/loss", "val acc": "val/accuracy", "val ECE": "val/ece_mass"}
        self.progress.update(row["step"], **{name: row[key] for name, key in facts.items()})

    def _finish_reading(self) -> None:
        if self.unread is not None:
            self._look_at(*self.unread)
            self.unread = None
        self._write()

    def _save(self, state: TrainState, step: int) -> None:
        """Saves, after all that led to this state has been found good and is in the log."""
        self._finish_reading()
        here = self.row if self.row is not None and self.row["step"] == step else None
        self.checkpoints.save(step, state, here)
        self.saved = time.monotonic()


def _under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{key}": value for key, value in values.items()}
