"""The training loop of one seed, and what is read, logged and saved of it. It resumes bit for bit.

All that a step depends on is the state, the run's seed and the step's number. A checkpoint holds the
state, and the log holds every line up to it. So after any kind of end the same command continues from the
newest checkpoint, with the results that it would have had without the interruption. Metrics are fetched
one call late, so that the device always has work.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from calib_jax._signals import Stopped
from calib_jax.train._checkpoints import Checkpoints, cost
from calib_jax.train._distributed import LateAnyProcess, any_process
from calib_jax.train._loader import Chunk, Pace
from calib_jax.train._logging import Log, Progress, Row
from calib_jax.train._state import TrainMetrics, TrainState
from calib_jax.train._trainer import Trainer

_AFTER_EPOCH = 2  # purpose that a step's key is folded with, next to those of the step itself
_FETCH_SECONDS = 0.05  # a small network takes many steps in that time; nobody needs to see each


class DivergedError(ValueError):
    """A loss or gradient was not finite."""


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
    """Train one seed, from the newest checkpoint if there is one.

    Args:
      trainer: Programs and data of the training.
      seed: Seed of initialization, order and noise.
      checkpoints: Checkpoints of the run.
      log: Log of the run.
      title: Title for messages.
      save_seconds: Least number of seconds between checkpoints.
      save_best: Whether to save also whenever the checkpoints' metric is at its best.
      should_stop: Function that is called after every call of the program; once it returns true, the
        state is saved and `Stopped` raised (with several processes, after the next call).

    Returns:
      The state after the last step.
    """
    state = checkpoints.restore(trainer.abstract_state())
    if state is None:
        state = trainer.init(seed)
    step = int(state.step)
    log.truncate(step)
    with Progress(title, trainer.total_steps, step, trainer.train.batch_size) as progress:
        recorder = Recorder(trainer, seed, checkpoints, log, progress)
        timer = SaveTimer(save_seconds, should_stop)
        pace = trainer.pace()
        for chunk in remaining_chunks(trainer, seed, step, pace):
            began = time.monotonic()
            if trainer.is_compiled():
                state, metrics = trainer.advance(state, chunk, recorder.key)
            else:
                with progress.compiling():
                    state, metrics = jax.block_until_ready(
                        trainer.advance(state, chunk, recorder.key)
                    )
            step += int(chunk.num_steps)
            recorder.after_call(step, metrics)
            pace.update(time.monotonic() - began)
            is_best = False
            if evaluation_due(trainer, step):
                state = recorder.evaluate(state, step, metrics)
                is_best = save_best and any_process(recorder.is_best())[0]
            save, stop = timer.due(is_best or step == trainer.total_steps)
            if save:
                checkpoints.wait()
                recorder.save(state, step)
                timer.reset()
            if stop:
                checkpoints.wait()
                raise Stopped(f"stopped at step {step} of {trainer.total_steps}; state saved")
    checkpoints.wait()
    return state


def remaining_chunks(trainer: Trainer, seed: int, step: int, pace: Pace) -> Iterator[Chunk]:
    """Yield the batches of a training from `step` on; no chunk crosses an epoch or an evaluation."""
    loader = trainer.train
    while step < trainer.total_steps:
        epoch, first = divmod(step, loader.steps)
        to_evaluation = trainer.evaluate_every - step % trainer.evaluate_every
        last = min(loader.steps, first + to_evaluation)
        plan = loader.shuffled(seed, epoch)
        yield from loader.chunks(plan, first, last, seed=seed, epoch=epoch, pace=pace)
        step += last - first


def evaluation_due(trainer: Trainer, step: int) -> bool:
    """Return whether the validation set is evaluated after this step."""
    return step % trainer.evaluate_every == 0 or step == trainer.total_steps


class SaveTimer:
    """When to save and when to stop: the same answer in all processes.

    Args:
      seconds: Least number of seconds between saves.
      should_stop: Function that returns whether to save and stop.
    """

    def __init__(self, seconds: float, should_stop: Callable[[], bool]) -> None:
        self._seconds, self._should_stop = seconds, should_stop
        self._any_process, self._saved_at = LateAnyProcess(), time.monotonic()

    def due(self, now: bool) -> tuple[bool, bool]:
        """Return whether to save, which `now` asks for in any case, and whether to stop then."""
        is_time = time.monotonic() - self._saved_at >= self._seconds
        stop, save = self._any_process(self._should_stop(), is_time)
        return stop or save or now, stop

    def reset(self) -> None:
        """Count from now on, as a save has been started."""
        self._any_process.reset()
        self._saved_at = time.monotonic()


class Recorder:
    """Metrics, log lines and checkpoints of one seed.

    Args:
      trainer: Programs of the training.
      seed: Seed of the training.
      checkpoints: Checkpoints of the seed.
      log: Log of the seed.
      progress: Progress shown to the user.
      shown: Whether this seed's metrics are shown; of several seeds one is enough.
    """

    def __init__(
        self,
        trainer: Trainer,
        seed: int,
        checkpoints: Checkpoints,
        log: Log,
        progress: Progress,
        *,
        shown: bool = True,
    ) -> None:
        self.trainer, self.key = trainer, jax.random.key(seed)
        self.checkpoints, self.log, self.progress, self.shown = checkpoints, log, progress, shown
        self._fetched_at = time.monotonic()
        rows = log.rows()
        self._lowest_cost = min(map(self._cost, rows), default=math.inf)
        # A resumed run has taken the time of all its parts.
        self._began = self._fetched_at - (rows[-1]["perf/seconds"] if rows else 0.0)
        self._pending_metrics: tuple[int, TrainMetrics] | None = None
        self._pending_row: tuple[TrainMetrics, Row] | None = None
        self._last_row: Row | None = None

    def after_call(self, step: int, metrics: TrainMetrics) -> None:
        """Fetch the metrics of the call before the one that has just been dispatched."""
        previous, self._pending_metrics = self._pending_metrics, (step, metrics)
        if previous is None:
            return
        previous[1].failed.block_until_ready()  # never more than one call ahead
        if time.monotonic() - self._fetched_at >= _FETCH_SECONDS:
            self._fetch_metrics(*previous)

    def evaluate(self, state: TrainState, step: int, metrics: TrainMetrics) -> TrainState:
        """Evaluate the validation set, update the method's state by it, and reset the metrics."""
        trainer, method = self.trainer, self.trainer.method
        evaluator = trainer.evaluator(state)
        key = jax.random.fold_in(jax.random.fold_in(self.key, step), _AFTER_EPOCH)
        method_state = method.after_epoch(state.method_state, evaluator, key)
        self._write_row()
        logits, labels = evaluator.validation()
        # Copies: what is reported may be part of the state, whose memory the next step reuses.
        reported = jax.tree.map(jnp.copy, method.report(method_state, logits, labels))
        row = {
            "step": step,
            "epoch": step / trainer.train.steps,
            "train/loss": metrics.loss / metrics.weight,
            "train/accuracy": metrics.correct / metrics.weight,
            **_prefixed("val", trainer.validation_metrics(logits, labels)),
            **_prefixed("test", self._test_metrics(state)),
            **_prefixed("method", reported),
        }
        if evaluator.seconds:
            row["perf/method_seconds"] = round(evaluator.seconds, 3)
        self._pending_row = metrics, row
        return trainer.after_evaluation(state, method_state)

    def is_best(self) -> bool:
        """Return whether no evaluation before was as good as the last one."""
        before = self._lowest_cost
        self._fetch_pending()
        return self._lowest_cost < before

    def save(self, state: TrainState, step: int) -> None:
        """Save the state, after all metrics that led to it are known to be finite and are logged."""
        self._fetch_pending()
        row = self._last_row
        at_evaluation = row is not None and row["step"] == step
        self.checkpoints.save(step, state, row if at_evaluation else None)

    def _test_metrics(self, state: TrainState) -> Mapping[str, jax.Array]:
        """Return metrics for the log only: nothing is selected by them."""
        test = self.trainer.test
        if test is None:
            return {}
        logits = self.trainer.predict(state, test)
        return self.trainer.validation_metrics(logits, test.dataset.labels)

    def _fetch_pending(self) -> None:
        if self._pending_metrics is not None:
            self._fetch_metrics(*self._pending_metrics)
            self._pending_metrics = None
        self._write_row()

    def _fetch_metrics(self, step: int, metrics: TrainMetrics) -> None:
        self._fetched_at = time.monotonic()
        metrics = jax.device_get(metrics)
        self._check(metrics)
        self._write_row()
        self._show(step, loss=metrics.loss / metrics.weight)

    def _check(self, metrics: TrainMetrics) -> None:
        if metrics.failed >= 0:
            good = self.checkpoints.latest()
            where = "no checkpoint yet" if good is None else f"last good checkpoint: step {good}"
            raise DivergedError(
                f"the {'loss' if metrics.loss_failed else 'gradient'} was not finite at step "
                f"{metrics.failed} ({where}); try a smaller learning rate or clipping "
                "(config.optimizer.clip_norm)"
            )

    def _cost(self, row: Row) -> float:
        return cost(self.checkpoints.best, row[self.checkpoints.best])

    def _write_row(self) -> None:
        """Append the line of the last evaluation, if it is not written yet."""
        if self._pending_row is None:
            return
        metrics, values = self._pending_row
        self._check(jax.device_get(metrics))
        row = {key: np.asarray(value).tolist() for key, value in values.items()}
        self._pending_row, self._last_row = None, row
        self._lowest_cost = min(self._lowest_cost, self._cost(row))
        row["perf/seconds"] = round(time.monotonic() - self._began, 3)
        row["perf/examples_per_second"] = round(self.progress.rate(), 1)
        self.log.append(row)
        facts = {"loss": "train/loss", "val acc": "val/accuracy", "val ECE": "val/ece_mass"}
        self._show(row["step"], **{name: row[key] for name, key in facts.items()})

    def _show(self, step: int, **facts: float) -> None:
        if self.shown:
            self.progress.update(step, **facts)


def _prefixed(prefix: str, values: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    return {f"{prefix}/{key}": value for key, value in values.items()}
