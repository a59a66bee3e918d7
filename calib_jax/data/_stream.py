"""Batches of a set that is too large for memory, read ahead of the device."""

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from calib_jax.data._dataset import Dataset

_THREADS = 4  # and as many batches read ahead: a batch of images takes much memory
_WORKER_BUFFER = 2


def stream(
    dataset: Dataset,
    plan: np.ndarray,
    *,
    seed: int | None,
    epoch: int = 0,
    workers: int = 0,
    start: int = 0,
) -> Iterator[dict[str, np.ndarray]]:
    """Reads batches in the background.

    What is drawn for an example depends on `(seed, epoch, id)` alone: not on its batch, nor on who
    reads it. So a stream from `start` is the rest of the stream from 0, bit for bit, and so it is
    with any number of workers.

    Args:
      dataset: one that streams; of others the rows are gathered.
      plan: int32 `[steps, batch]`, the positions of each batch.
      seed: of the random crops; `None` reads as in evaluation.
      epoch: changes what is drawn.
      workers: processes that read; 0 reads with threads of this one. As with all processes of
        Python, a script that starts them needs its `if __name__ == "__main__":`.
      start: the first batch to give, of `plan`.

    Returns:
      An iterator over the inputs of each batch, `[batch, …]`.
    """
    plan = np.asarray(plan)
    if plan.ndim != 2:
        raise ValueError(f"plan of shape {plan.shape}: expected [steps, batch]")
    if not 0 <= start <= len(plan):
        raise ValueError(f"start={start}: expected 0 to {len(plan)}, the number of batches")
    return _batches(_ReadBatch(dataset, seed, epoch), plan[start:], workers)


@dataclasses.dataclass(frozen=True, eq=False)
class _ReadBatch:
    """Positions to inputs; sent to the workers."""

    dataset: Dataset
    seed: int | None
    epoch: int

    def __call__(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        if self.dataset.read is None:
            return {key: rows[positions] for key, rows in self.dataset.inputs.items()}
        examples = [self.dataset.read(int(p), self._rng(p)) for p in positions]
        return {key: np.stack([e[key] for e in examples]) for key in examples[0]}

    def _rng(self, position: int) -> np.random.Generator | None:
        if self.seed is None:
            return None
        return np.random.default_rng((self.seed, self.epoch, int(self.dataset.ids[position])))


def _batches(read: _ReadBatch, plan: np.ndarray, workers: int) -> Iterator[dict[str, np.ndarray]]:
    import grain
    from absl import flags

    if not len(plan):
        return
    ahead = grain.ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_THREADS)
    if workers:  # each works off its own queue, one batch at a time
        ahead = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    batches = grain.MapDataset.source(plan).map(read).to_iter_dataset(ahead)
    if workers:
        if (
            not flags.FLAGS.is_parsed()
        ):  # grain asks for its own, also where no command line was read
            flags.FLAGS.mark_as_parsed()
        options = grain.MultiprocessingOptions(workers, per_worker_buffer_size=_WORKER_BUFFER)
        batches = batches.mp_prefetch(options)
    # Closed also when the caller stops early: the processes would outlive it.
    with contextlib.closing(iter(batches)) as iterator:
        for batch in iterator:
            # Workers hand over shared memory, which has to be gone before the interpreter is: copied.
            yield {key: np.array(rows) for key, rows in batch.items()} if workers else batch
