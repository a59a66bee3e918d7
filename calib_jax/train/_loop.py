"""The training loop of one seed. It resumes bit for bit.

All that a step depends on is the state, the run's seed and the step's number. A checkpoint holds the
state, and the log holds every line up to it. So after any kind of end the same command continues from the
newest checkpoint, with the results that it would have had without the interruption.
"""

import time
from collections.abc import Callable, Iterator

import jax

from calib_jax._signals import Stopped
from calib_jax.train._checkpoints import Checkpoints
from calib_jax.train._distributed import LateAnyProcess, any_process
from calib_jax.train._loader import Chunk
from calib_jax.train._logging import Log, Progress
from calib_jax.train._recorder import Recorder
from calib_jax.train._state import TrainState
from calib_jax.train._trainer import Trainer


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
        any_process_late = LateAnyProcess()
        saved_at = time.monotonic()
        for chunk in remaining_chunks(trainer, seed, step):
            if trainer.is_compiled():
                state, metrics = trainer.advance(state, chunk, recorder.key)
            else:
                with progress.compiling():
                    state, metrics = jax.block_until_ready(
                        trainer.advance(state, chunk, recorder.key)
                    )
            step += int(chunk.num_steps)
            recorder.after_call(step, metrics)
            is_best = False
            if evaluation_due(trainer, step):
                state = recorder.evaluate(state, step, metrics)
                is_best = save_best and any_process(recorder.is_best())[0]
            stop, save = any_process_late(
                should_stop(), time.monotonic() - saved_at >= save_seconds
            )
            if stop or save or is_best or step == trainer.total_steps:
                checkpoints.wait()
                recorder.save(state, step)
                any_process_late.reset()
                saved_at = time.monotonic()
            if stop:
                checkpoints.wait()
                raise Stopped(f"stopped at step {step} of {trainer.total_steps}; state saved")
    checkpoints.wait()
    return state


def remaining_chunks(trainer: Trainer, seed: int, step: int) -> Iterator[Chunk]:
    """Yield the batches of a training from `step` on; no chunk crosses an epoch or an evaluation."""
    loader = trainer.train
    while step < trainer.total_steps:
        epoch, first = divmod(step, loader.steps)
        to_evaluation = trainer.evaluate_every - step % trainer.evaluate_every
        last = min(loader.steps, first + to_evaluation)
        plan = loader.shuffled(seed, epoch)
        yield from loader.chunks(plan, first, last, seed=seed, epoch=epoch)
        step += last - first


def evaluation_due(trainer: Trainer, step: int) -> bool:
    """Return whether the validation set is evaluated after this step."""
    return step % trainer.evaluate_every == 0 or step == trainer.total_steps
