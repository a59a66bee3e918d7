"""Training of several seeds in one program: vmapped over stacked states, batches and keys."""

import functools
import math
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from calib_jax._signals import Stopped
from calib_jax.methods import PyTree
from calib_jax.train import _distributed
from calib_jax.train._checkpoints import Checkpoints
from calib_jax.train._distributed import any_process
from calib_jax.train._evaluator import num_compiled
from calib_jax.train._loader import Chunk
from calib_jax.train._logging import Log, Progress
from calib_jax.train._loop import Recorder, SaveTimer, evaluation_due, remaining_chunks
from calib_jax.train._state import TrainMetrics, TrainState
from calib_jax.train._trainer import Trainer


def fit_seeds(
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
    """Train several seeds in one program, from the newest step that all have saved; see `fit`.

    Args:
      trainers: Trainer of each seed: the same one, or trainers that differ in their artifacts only.
      seeds: Seeds of initialization, order and noise.
      checkpoints: Checkpoints of each seed.
      logs: Log of each seed.
      title: Title for messages.
      save_seconds: Least number of seconds between checkpoints.
      save_best: Whether to save also whenever the metric of one of the seeds is at its best.
      should_stop: Function that is called after every call of the program.

    Returns:
      The state of each seed after the last step.
    """
    program = VmappedSeeds(trainers)
    states = _restore_or_init(trainers, seeds, checkpoints)
    trainer, step = trainers[0], int(states[0].step)
    for log in logs:
        log.truncate(step)
    examples = trainer.train.batch_size * len(seeds)
    with Progress(title, trainer.total_steps, step, examples) as progress:
        recorders = [
            Recorder(*each, progress, shown=i == 0)
            for i, each in enumerate(zip(trainers, seeds, checkpoints, logs, strict=True))
        ]
        stacked = program.stack(states)
        keys = program.stack([recorder.key for recorder in recorders])
        timer = SaveTimer(save_seconds, should_stop)
        pace = trainer.pace()
        sources = [remaining_chunks(t, s, step, pace) for t, s in zip(trainers, seeds, strict=True)]
        for chunks in zip(*sources, strict=True):
            began = time.monotonic()
            if program.is_compiled():
                stacked, metrics = program.advance(stacked, chunks, keys)
            else:
                with progress.compiling():
                    stacked, metrics = jax.block_until_ready(program.advance(stacked, chunks, keys))
            step += int(chunks[0].num_steps)
            for recorder, of_seed in zip(recorders, metrics, strict=True):
                recorder.after_call(step, of_seed)
            pace.update(time.monotonic() - began)
            is_best = False
            if evaluation_due(trainer, step):
                each = zip(recorders, program.unstack(stacked), metrics, strict=True)
                stacked = program.stack([r.evaluate(state, step, m) for r, state, m in each])
                is_best = save_best and any_process(any([r.is_best() for r in recorders]))[0]
            save, stop = timer.due(is_best or step == trainer.total_steps)
            if save:
                states = _save(recorders, program.unstack(stacked), step)
                timer.reset()
            if stop:
                _wait(checkpoints)
                raise Stopped(f"stopped at step {step} of {trainer.total_steps}; state saved")
    _wait(checkpoints)
    return states


class VmappedSeeds:
    """The steps of several seeds by vmap over states, batches and keys.

    The seeds are sharded over the devices if the number of devices divides theirs, and no device then
    communicates with another; else every batch is sharded, as it is for one seed.

    Args:
      trainers: Trainer of each seed.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        check_seeds(trainers)
        first, count = trainers[0], len(trainers)
        shard_seeds = count % first.mesh.size == 0
        replicated = _distributed.replicated(first.mesh)
        sharding = _distributed.sharded(first.mesh) if shard_seeds else replicated
        steps = jax.vmap(
            functools.partial(first.steps, shard=not shard_seeds),
            in_axes=(0, Chunk(arrays=None, rows=0, weights=0, num_steps=None), 0),
        )
        if shard_seeds:  # explicitly: the partitioner need not find out that nothing is to be sent
            seed_spec, all_spec = PartitionSpec("data"), PartitionSpec()
            chunk_spec = Chunk(all_spec, seed_spec, seed_spec, all_spec)
            steps = jax.shard_map(
                steps,
                mesh=first.mesh,
                in_specs=(seed_spec, chunk_spec, seed_spec),
                out_specs=seed_spec,
                check_vma=False,
            )

        def unstack(stacked: PyTree) -> list[PyTree]:
            return [jax.tree.map(lambda x, i=i: x[i], stacked) for i in range(count)]

        def advance(
            stacked: TrainState, chunk: Chunk, keys: jax.Array
        ) -> tuple[TrainState, list[TrainMetrics]]:
            stacked, metrics = steps(stacked, chunk, keys)
            return stacked, unstack(metrics)

        self._stack = jax.jit(
            lambda trees: jax.tree.map(lambda *x: jnp.stack(x), *trees), out_shardings=sharding
        )
        self._unstack = jax.jit(unstack, out_shardings=replicated)
        self._advance = jax.jit(advance, donate_argnums=0, out_shardings=(sharding, replicated))

    def stack(self, trees: Sequence[PyTree]) -> PyTree:
        """Return one pytree of arrays `[seeds, …]`: of the states, or of the keys."""
        return self._stack(list(trees))

    def unstack(self, stacked: TrainState) -> list[TrainState]:
        """Return copies of the states that were stacked."""
        return self._unstack(stacked)

    def advance(
        self, stacked: TrainState, chunks: Sequence[Chunk], keys: jax.Array
    ) -> tuple[TrainState, list[TrainMetrics]]:
        """Take the steps of each seed's chunk; see `Trainer.advance`. The keys are stacked, too."""
        rows, weights = (
            np.stack([getattr(chunk, name) for chunk in chunks]) for name in ("rows", "weights")
        )
        return self._advance(stacked, chunks[0]._replace(rows=rows, weights=weights), keys)

    def is_compiled(self) -> bool:
        """Return whether the training step has been compiled."""
        return num_compiled(self._advance) > 0


def check_seeds(trainers: Sequence[Trainer]) -> None:
    """Raise if the shapes of seeds differ, so that they cannot be one program."""
    first = trainers[0]
    reason = ""
    if first.train.lengths is not None:
        reason = "texts are batched by length, and the seeds' batches differ in theirs"
    elif not first.train.resident:
        reason = f"{first.train.dataset.name} is too large to be on the devices"
    elif first.setup.sharding != "replicated":
        reason = f"sharding={first.setup.sharding!r} shards the parameters of one seed"
    elif any(_shapes(trainer) != _shapes(first) for trainer in trainers):
        reason = "the seeds have states or groups of examples of different sizes"
    if reason:
        raise ValueError(f"seeds_in_parallel=True: {reason}; expected False here")


def _shapes(trainer: Trainer) -> tuple[int, int, list[tuple[tuple[int, ...], np.dtype]]]:
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(trainer.abstract_state())]
    return trainer.train.steps, trainer.train.batch_size, shapes


def _restore_or_init(
    trainers: Sequence[Trainer], seeds: Sequence[int], checkpoints: Sequence[Checkpoints]
) -> list[TrainState]:
    """Return the states of the newest step that all seeds have saved, or those before the first."""
    newest = math.inf
    while True:
        restored = [
            saved.restore(trainer.abstract_state(), newest)
            for trainer, saved in zip(trainers, checkpoints, strict=True)
        ]
        states = [state for state in restored if state is not None]
        if len(states) < len(restored):
            return [trainer.init(seed) for trainer, seed in zip(trainers, seeds, strict=True)]
        steps = {int(state.step) for state in states}
        if len(steps) == 1:
            return states
        newest = min(steps)


def _save(recorders: Sequence[Recorder], states: list[TrainState], step: int) -> list[TrainState]:
    """Save all seeds after their last saves are complete: they always have a step in common."""
    _wait([recorder.checkpoints for recorder in recorders])
    for recorder, state in zip(recorders, states, strict=True):
        recorder.save(state, step)
        if jax.process_count() > 1:
            recorder.checkpoints.wait()  # processes that save several at once wait for each other
    return states


def _wait(checkpoints: Sequence[Checkpoints]) -> None:
    for saved in checkpoints:
        saved.wait()
