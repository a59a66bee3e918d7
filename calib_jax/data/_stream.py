"""Batches of a set that is too large for memory, prefetched in the background."""

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from calib_jax.data._dataset import Dataset

_THREADS = 4  # and the number of prefetched batches: a batch of images is large
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
    """Read batches in the background.

    The random crop of an example depends only on `(seed, epoch, id)`, not on its batch or worker. So a
    stream from `start` equals the rest of the stream from 0 bit for bit, with any number of workers.

    Args:
      dataset: Streamed set; the rows of other sets are gathered.
      plan: Positions of each batch, int32 `[steps, batch]`.
      seed: Seed of the random crops; `None` reads as in evaluation.
      epoch: Epoch, from 0.
      workers: Number of reading processes; 0 uses threads. A script that starts processes needs
        `if __name__ == "__main__":`.
      start: Index of the first batch in `plan`.

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
    """Map positions to inputs; pickled for the workers."""

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
    if workers:  # each has a separate queue, one batch at a time
        ahead = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    batches = grain.MapDataset.source(plan).map(read).to_iter_dataset(ahead)
    if workers:
        if not flags.FLAGS.is_parsed():  # grain reads its flags even if no command line was parsed
            flags.FLAGS.mark_as_parsed()
        options = grain.MultiprocessingOptions(workers, per_worker_buffer_size=_WORKER_BUFFER)
        batches = batches.mp_prefetch(options)
    # Closed even if the caller stops early: the processes would outlive it.
    with contextlib.closing(iter(batches)) as iterator:
        for batch in iterator:
            # Workers use shared memory, which must be released before the interpreter exits: copied.
            yield {key: np.array(rows) for key, rows in batch.items()} if workers else batch
