"""A data set as batches on the devices.

A set that fits is replicated to all devices once, and a step is told which rows to take. The batches of a
larger set are sent one by one, each process's rows to its own devices; so are those of texts, each cut to
its length, so that sets of any size share the programs that were compiled for those lengths.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from calib_jax import _cpu, data
from calib_jax.data import BatchPlan, Dataset
from calib_jax.methods import Batch, PyTree
from calib_jax.train import _distributed

_TOKENS = ("input_ids", "mask", "token_type_ids")


class Chunk(NamedTuple):
    """The batches of a few steps, a pytree of arrays (or of their axes, shapes or shardings).

    Attributes:
      arrays: Inputs, `labels` and `position` of the rows to choose from.
      rows: int32 `[steps, batch]`, or `None`: the arrays are one batch.
      weights: float32 `[steps, batch]`.
      num_steps: Number of those steps to take, int32.
    """

    arrays: PyTree
    rows: PyTree
    weights: PyTree
    num_steps: PyTree


class Pace:
    """The number of steps in the next call of a training program, up to `most`.

    On the CPU of one process a call takes about half a second, because a run that is to stop, or to save,
    does so after a call. The program is the same for any number of steps, and so are the results.
    Elsewhere it is always `most`: a step takes little time, and processes have to agree.

    Args:
      most: Largest number of steps.
      adapts: Whether there may be fewer.
    """

    def __init__(self, most: int, adapts: bool = True) -> None:
        self._most = most
        self._adapts = adapts and _cpu.is_cpu() and jax.process_count() == 1
        self.steps = 1 if self._adapts else most

    def update(self, seconds: float) -> None:
        """Take note of the seconds that a call took."""
        if self._adapts and seconds < 0.25:
            self.steps = min(2 * self.steps, self._most)
        elif self._adapts and seconds > 1:
            self.steps = max(self.steps // 2, 1)


class Loader:
    """Batches of one data set.

    Args:
      dataset: Data set with inputs that are arrays of numbers, or that are streamed.
      batch_size: Batch size over all devices.
      mesh: Devices.
      groups: Function `(seed) -> positions` of each group of the set that a training step draws from,
        with the same sizes for every seed. By default one group of all examples.
      batch_split: How a batch is divided between several groups; see `data.split_batch`.
      epoch_of_first: Whether an epoch is a pass over the first group instead of the largest.
      steps_per_call: Largest number of steps in a chunk; batches that are sent one by one have one.
      resident_bytes: Size above which a set is not put on the devices.
      workers: Number of processes that read a streaming set.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        mesh: Mesh,
        *,
        groups: Callable[[int], Sequence[np.ndarray]] = lambda seed: (),
        batch_split: str = "each",
        epoch_of_first: bool = False,
        steps_per_call: int = 1,
        resident_bytes: float = 4e9,
        workers: int = 0,
    ) -> None:
        self.dataset, self.mesh, self.workers = dataset, mesh, workers
        everything = (np.arange(len(dataset)),)
        self._groups = lambda seed: groups(seed) or everything
        self.groups = self._groups(0)
        self.count = len(self.groups[0]) if epoch_of_first else 0
        self.sizes = data.split_batch(batch_size, len(self.groups), batch_split)
        self.batch_size = sum(self.sizes)
        size = sum(array.nbytes for array in dataset.inputs.values())
        self.lengths, self.buckets = _lengths(dataset)
        fits = dataset.read is None and size <= resident_bytes
        self.resident = fits and self.lengths is None
        self.steps_per_call = steps_per_call if self.resident else 1

    @functools.cached_property
    def _arrays(self) -> dict[str, jax.Array]:
        """Put the whole set on every device, when it is first used."""
        position = np.arange(len(self.dataset), dtype=np.int32)
        columns = {"labels": self.dataset.labels, "position": position}
        return _distributed.replicate(self.dataset.inputs | columns, self.mesh)

    @property
    def steps(self) -> int:
        """Number of training steps of an epoch."""
        return data.epoch_counts([len(group) for group in self.groups], self.sizes, self.count)[0]

    def shuffled(self, seed: int, epoch: int) -> BatchPlan:
        """Return the plan of a training epoch."""
        return data.shuffled(
            self._groups(seed),
            self.sizes,
            seed=seed,
            epoch=epoch,
            lengths=self.lengths,
            buckets=self.buckets,
            count=self.count,
        )

    def in_order(self) -> BatchPlan:
        """Return the plan of an evaluation: every example once."""
        return data.in_order(
            len(self.dataset), self.batch_size, lengths=self.lengths, buckets=self.buckets
        )

    def example(self) -> dict[str, np.ndarray]:
        """Return inputs `[1, …]` of one example, for their shapes."""
        if self.dataset.read is not None:
            return {k: v[None] for k, v in self.dataset.read(0, None).items()}
        return {k: v[:1] for k, v in self.dataset.inputs.items()}

    def chunks(
        self,
        plan: BatchPlan,
        start: int,
        stop: int,
        *,
        seed: int | None = None,
        epoch: int = 0,
        pace: Pace | None = None,
    ) -> Iterator[Chunk]:
        """Yield the plan's steps from `start` to before `stop`; a `seed` means training."""
        if not self.resident:
            yield from self._streamed(plan, start, stop, seed, epoch)
            return
        most, first = self.steps_per_call, start
        while first < stop:
            count = min(pace.steps if pace else most, stop - first)
            rows, weights = (x[first : first + count] for x in (plan.rows, plan.weights))
            if count < most:  # one shape for all chunks, one program for all of them
                rows, weights = (np.resize(x, (most, self.batch_size)) for x in (rows, weights))
            first += count
            yield Chunk(self._arrays, rows, weights, np.int32(count))

    def _streamed(
        self, plan: BatchPlan, start: int, stop: int, seed: int | None, epoch: int
    ) -> Iterator[Chunk]:
        dataset = self.dataset
        sharding = _distributed.sharded(self.mesh)
        # The rows of a batch that belong to this process's devices: on some machines not contiguous.
        slices = sharding.addressable_devices_indices_map((self.batch_size,)).values()
        columns = np.sort(np.concatenate([np.arange(self.batch_size)[index] for index in slices]))
        local_rows = plan.rows[:, columns]
        if dataset.read is None:
            batches: Iterable[dict[str, np.ndarray]] = (
                {k: v[rows] for k, v in dataset.inputs.items()} for rows in local_rows[start:stop]
            )
        else:
            batches = data.stream(
                dataset,
                local_rows[:stop],
                seed=seed,
                epoch=epoch,
                workers=self.workers,
                start=start,
            )
        for step, inputs in enumerate(batches, start):
            rows = local_rows[step]
            if plan.lengths is not None:
                length = plan.lengths[step]
                inputs = {k: x[..., :length] if k in _TOKENS else x for k, x in inputs.items()}
            arrays = _distributed.put(
                inputs | {"labels": dataset.labels[rows], "position": rows},
                sharding,
                lambda x: (self.batch_size, *x.shape[1:]),
            )
            yield Chunk(arrays, None, plan.weights[step : step + 1], np.int32(1))


def zero_example(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return inputs `[1, …]` of zeros, as a network is given them.

    Args:
      dataset: Data set with the inputs.
    """
    if dataset.read is not None:
        inputs = {name: x[None] for name, x in dataset.read(0, None).items()}
    else:
        inputs = {name: rows[:1] for name, rows in dataset.inputs.items()}
    # Images reach the network as numbers in [0, 1], whatever they are stored as.
    dtypes = {k: np.float32 if k == "image" else x.dtype for k, x in inputs.items()}
    return {name: np.zeros(x.shape, dtypes[name]) for name, x in inputs.items()}


def gather(chunk: Chunk, step: int | jax.Array, mesh: Mesh | None) -> Batch:
    """Return the batch of one step of a chunk, sharded over the mesh if one is given; inside jit."""
    columns = dict(chunk.arrays)
    if chunk.rows is not None:
        columns = {key: array[chunk.rows[step]] for key, array in columns.items()}
    columns["weights"] = chunk.weights[step]
    if mesh is not None:
        columns = jax.lax.with_sharding_constraint(columns, _distributed.sharded(mesh))
    labels, position, weights = (columns.pop(key) for key in ("labels", "position", "weights"))
    return Batch(scale_images(columns), labels, position, weights)


def scale_images(inputs: dict[str, PyTree]) -> dict[str, PyTree]:
    """Return inputs in which stored pixels, uint8, are numbers in [0, 1]; inside jit."""
    if "image" in inputs and inputs["image"].dtype == np.uint8:
        return inputs | {"image": inputs["image"].astype(np.float32) / 255}
    return inputs


def _lengths(dataset: Dataset) -> tuple[np.ndarray | None, tuple[int, ...]]:
    mask = dataset.inputs.get("mask")
    if mask is None:
        return None, ()
    lengths = mask.sum(-1)
    while lengths.ndim > 1:  # of several choices the longest counts
        lengths = lengths.max(-1)
    return lengths, data.make_buckets(lengths, mask.shape[-1])
