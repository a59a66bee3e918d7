"""The loop: train, evaluate, let the method learn from it, log, save. It resumes bit for bit.

All that a step depends on is the state, the run's seed and the step's number. A checkpoint holds the
state, and the log holds every line up to it. So after any kind of end the same command goes on from the
newest checkpoint and gives what would have been.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax.train._abreast import Abreast, Alone
from calib_jax.train._checkpoints import Checkpoints, cost
from calib_jax.train._feed import Piece
from calib_jax.train._log import Log
from calib_jax.train._processes import Agreement, together
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
    trainers: Sequence[Trainer],
    seeds: Sequence[int],
    checkpoints: Sequence[Checkpoints],
    logs: Sequence[Log],
    *,
    title: str = "train",
    save_seconds: float = 60.0,
    save_best: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[TrainState]:
    """Trains to the end, from the newest checkpoint if there is one; several seeds in one program.

    Args:
      trainers: what to train, on what; one for each seed, which may be the same.
      seeds: of initialisation, order and noise.
      checkpoints: of each seed.
      logs: of each seed.
      title: for messages.
      save_seconds: at least so long between checkpoints.
      save_best: also save whenever the checkpoints' metric is at its best.
      should_stop: asked after every call; once true the state is saved and `Stopped` raised, by
        several processes after the call that follows.

    Returns:
      The state of each seed after the last step.
    """
    trainer = trainers[0]
    program = Alone(trainer) if len(seeds) == 1 else Abreast(trainers)
    states = _restore(trainers, checkpoints)
    if states is None:
        states = [t.init(seed) for t, seed in zip(trainers, seeds, strict=True)]
    step = int(states[0].step)
    for log in logs:
        log.cut(step)
    examples = trainer.train.batch_size * len(seeds)
    progress = Progress(title, trainer.total_steps, step, examples)
    if 0 < step < trainer.total_steps:
        progress.say(f"resumed at step {step} of {trainer.total_steps}")
    runs = [
        _Run(*each, progress, shown=i == 0)
        for i, each in enumerate(zip(trainers, seeds, checkpoints, logs, strict=True))
    ]
    try:
        loop = _Loop(program, runs, progress, save_seconds, save_best)
        return loop.to_the_end(program.join(states), step, should_stop)
    finally:
        progress.close()


def _restore(
    trainers: Sequence[Trainer], checkpoints: Sequence[Checkpoints]
) -> list[TrainState] | None:
    """The states of the newest step that all seeds have saved."""
    newest = math.inf
    while True:
        found = [
            saved.restore(trainer.abstract_state(), newest)
            for trainer, saved in zip(trainers, checkpoints, strict=True)
        ]
        states = [state for state in found if state is not None]
        if len(states) < len(found):
            return None
        steps = {int(state.step) for state in states}
        if len(steps) == 1:
            return states
        newest = min(steps)


class _Loop:
    """All seeds from step to step. Results are read one call late: the device always has work."""

    def __init__(
        self,
        program: Alone | Abreast,
        runs: Sequence["_Run"],
        progress: Progress,
        save_seconds: float,
        save_best: bool,
    ) -> None:
        self.program, self.runs, self.progress = program, runs, progress
        self.save_seconds, self.save_best = save_seconds, save_best
        self.keys = program.join([run.key for run in runs])
        self.saved = time.monotonic()
        self.agreed = Agreement()

    def to_the_end(
        self, joined: Any, step: int, should_stop: Callable[[], bool]
    ) -> list[TrainState]:
        trainer = self.runs[0].trainer
        while step < trainer.total_steps:
            epoch, first = divmod(step, trainer.train.steps)
            to_evaluation = trainer.evaluate_every - step % trainer.evaluate_every
            last = min(trainer.train.steps, first + to_evaluation)
            for pieces in zip(*(run.pieces(epoch, first, last) for run in self.runs), strict=True):
                joined, sums = self._advance(joined, pieces)
                step += pieces[0].num_steps
                for run, own in zip(self.runs, sums, strict=True):
                    run.read(step, own)
                if step % trainer.evaluate_every == 0 or step == trainer.total_steps:
                    joined = self._evaluate(joined, step, sums)
                due = time.monotonic() - self.saved >= self.save_seconds
                stop, due = self.agreed(should_stop(), due)
                if stop:
                    self._save(joined, step)
                    self._wait()
                    raise Stopped(f"stopped at step {step} of {trainer.total_steps}; state saved")
                if due:
                    self._save(joined, step)
        states = self._save(joined, step)
        self._wait()
        return states

    def _advance(self, joined: Any, pieces: Sequence[Piece]) -> tuple[Any, list[Sums]]:
        if self.program.is_compiled():
            return self.program.advance(joined, pieces, self.keys)
        self.progress.say("compiling the training step ...")
        start = time.monotonic()
        result = jax.block_until_ready(self.program.advance(joined, pieces, self.keys))
        self.progress.say(f"first step after {time.monotonic() - start:.1f} s")
        return result

    def _evaluate(self, joined: Any, step: int, sums: Sequence[Sums]) -> Any:
        each = zip(self.runs, self.program.part(joined), sums, strict=True)
        joined = self.program.join([run.evaluate(state, step, own) for run, state, own in each])
        if self.save_best and together(any([run.is_best() for run in self.runs]))[0]:
            self._save(joined, step)
        return joined

    def _save(self, joined: Any, step: int) -> list[TrainState]:
        """Saves all seeds, after what they saved before is written: they always have a step in common."""
        self._wait()
        states = self.program.part(joined)
        for run, state in zip(self.runs, states, strict=True):
            run.save(state, step)
            if jax.process_count() > 1 and len(self.runs) > 1:
                run.checkpoints.wait()  # processes that save several at once wait for each other's
        self.saved = time.monotonic()
        self.agreed.forget()
        return states

    def _wait(self) -> None:
        for run in self.runs:
            run.checkpoints.wait()


class _Run:
    """What concerns one seed."""

    def __init__(
        self,
        trainer: Trainer,
        seed: int,
        checkpoints: Checkpoints,
        log: Log,
        progress: Progress,
        *,
        shown: bool,
    ) -> None:
        self.trainer, self.seed, self.key = trainer, seed, jax.random.key(seed)
        self.checkpoints, self.log, self.progress = checkpoints, log, progress
        self.shown = shown  # one of several seeds is enough to look at
        self.looked = time.monotonic()
        rows = log.rows()
        self.lowest_cost = min(map(self._cost, rows), default=math.inf)
        # A run that was resumed has taken the time of all its parts.
        self.began = self.looked - (rows[-1]["perf/seconds"] if rows else 0.0)
        self.labels = jax.device_put(trainer.val.dataset.labels)
        self.unread: tuple[int, Sums] | None = None
        self.unwritten: tuple[Sums, dict[str, Any]] | None = None
        self.row: dict[str, Any] | None = None  # the last line written

    def pieces(self, epoch: int, first: int, last: int) -> Iterator[Piece]:
        """The batches of an epoch from step `first` to before `last`."""
        feed = self.trainer.train
        plan = feed.shuffled(self.seed, epoch)
        return feed.pieces(plan, first, last, seed=self.seed, epoch=epoch)

    def read(self, step: int, sums: Sums) -> None:
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
        self._show(step, loss=sums.loss / sums.weight)

    def _check(self, sums: Sums) -> None:
        if sums.failed >= 0:
            good = self.checkpoints.latest()
            where = "no checkpoint yet" if good is None else f"last good checkpoint: step {good}"
            raise DivergedError(
                f"the {'loss' if sums.loss_failed else 'gradient'} was not finite at step "
                f"{sums.failed} ({where}); try a smaller learning rate or clipping "
                "(config.optimizer.clip_norm)"
            )

    def evaluate(self, state: TrainState, step: int, sums: Sums) -> TrainState:
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
                **_under("test", self._test_metrics(state)),
                **_under("method", reported),
                **spent,
            },
        )
        return trainer.after_evaluation(state, method_state)

    def _test_metrics(self, state: TrainState) -> dict[str, Any]:
        """For the log alone: what is saved, selected and reported to the method is of validation."""
        test = self.trainer.test
        if test is None:
            return {}
        return self.trainer.judge(self.trainer.predict(state, test), test.dataset.labels)

    def is_best(self) -> bool:
        """Whether no evaluation before was as good as the last."""
        before = self.lowest_cost
        self._finish_reading()
        return self.lowest_cost < before

    def _cost(self, row: dict[str, Any]) -> float:
        return cost(self.checkpoints.best, row[self.checkpoints.best])

    def _write(self) -> None:
        """Appends the line of the last evaluation, if it is still to be written."""
        if self.unwritten is None:
            return
        sums, values = self.unwritten
        self._check(jax.device_get(sums))
        row = {key: np.asarray(value).tolist() for key, value in values.items()}
        self.unwritten, self.row = None, row
        self.lowest_cost = min(self.lowest_cost, self._cost(row))
        row["perf/seconds"] = round(time.monotonic() - self.began, 3)
        row["perf/examples_per_second"] = round(self.progress.rate(), 1)
        self.log.append(row)
        facts = {"loss": "train/loss", "val acc": "val/accuracy", "val ECE": "val/ece_mass"}
        self._show(row["step"], **{name: row[key] for name, key in facts.items()})

    def _show(self, step: int, **facts: float) -> None:
        if self.shown:
            self.progress.update(step, **facts)

    def _finish_reading(self) -> None:
        if self.unread is not None:
            self._look_at(*self.unread)
            self.unread = None
        self._write()

    def save(self, state: TrainState, step: int) -> None:
        """Saves, after all that led to this state has been found good and is in the log."""
        self._finish_reading()
        here = self.row if self.row is not None and self.row["step"] == step else None
        self.checkpoints.save(step, state, here)


def _under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{key}": value for key, value in values.items()}
