"""A data set as batches on the devices.

A set that fits is put on every device once, and a step is told which rows to take. The batches of a set
that does not are sent one by one, each process's part to its own devices; so are those of texts, each cut
to its length, so that sets of any size share the programs that were compiled for those lengths.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from calib_jax import data
from calib_jax.data import Dataset, Plan
from calib_jax.methods import Batch
from calib_jax.train import _mesh

_TOKENS = ("input_ids", "mask", "token_type_ids")


class Piece(NamedTuple):
    """A few steps' worth of batches.

    Attributes:
      arrays: inputs, `labels` and `position` of the rows to choose from.
      rows: int32 `[steps, batch]`, or `None`: the arrays are a batch.
      weights: float32 `[steps, batch]`.
      num_steps: how many of those steps to take.
    """

    arrays: dict[str, Any]
    rows: Any
    weights: Any
    num_steps: int


class Feed:
    """Batches of one data set.

    Args:
      dataset: with inputs that are arrays of numbers, or that stream.
      batch_size: of all devices together.
      mesh: the devices.
      groups: `(seed) -> positions` of each group of the set that a training step draws from, of the
        same sizes for every seed. By default one, of all.
      batch_split: how a batch is divided between several groups; see `data.split_batch`.
      epoch_of_first: an epoch is a pass over the first group, not over the largest.
      steps_per_call: most steps in one piece; what is sent batch by batch has one.
      resident_bytes: a larger set is not put on the devices.
      workers: processes that read a streaming set.
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
        self._arrays: dict[str, Any] = {}
        if self.resident:
            columns = {
                "labels": dataset.labels,
                "position": np.arange(len(dataset), dtype=np.int32),
            }
            self._arrays = _mesh.replicate(dataset.inputs | columns, mesh)

    @property
    def steps(self) -> int:
        """Training steps of an epoch."""
        return data.epoch_counts([len(group) for group in self.groups], self.sizes, self.count)[0]

    def shuffled(self, seed: int, epoch: int) -> Plan:
        """The plan of an epoch of the training with that seed."""
        return data.shuffled(
            self._groups(seed),
            self.sizes,
            seed=seed,
            epoch=epoch,
            lengths=self.lengths,
            buckets=self.buckets,
            count=self.count,
        )

    def in_order(self) -> Plan:
        return data.in_order(
            len(self.dataset), self.batch_size, lengths=self.lengths, buckets=self.buckets
        )

    def example(self) -> dict[str, Any]:
        """Inputs `[1, …]` of one example, for their shapes."""
        if self.dataset.read is not None:
            return {k: v[None] for k, v in self.dataset.read(0, None).items()}
        return {k: v[:1] for k, v in self.dataset.inputs.items()}

    def pieces(
        self, plan: Plan, start: int, stop: int, *, seed: int | None = None, epoch: int = 0
    ) -> Iterator[Piece]:
        """The plan's steps from `start` to before `stop`; a `seed` means training."""
        if not self.resident:
            yield from self._sent(plan, start, stop, seed, epoch)
            return
        most = self.steps_per_call
        for first in range(start, stop, most):
            count = min(most, stop - first)
            rows, weights = (part[first : first + count] for part in (plan.rows, plan.weights))
            if count < most:  # one shape for all pieces, one program for all of them
                rows, weights = (
                    np.resize(part, (most, self.batch_size)) for part in (rows, weights)
                )
            yield Piece(self._arrays, rows, weights, count)

    def _sent(
        self, plan: Plan, start: int, stop: int, seed: int | None, epoch: int
    ) -> Iterator[Piece]:
        dataset = self.dataset
        sharding = _mesh.split(self.mesh)
        # Where in a batch the parts of this process's devices are: not one piece on every machine.
        places = sharding.addressable_devices_indices_map((self.batch_size,)).values()
        own = np.sort(np.concatenate([np.arange(self.batch_size)[place] for place in places]))
        mine = plan.rows[:, own]
        if dataset.read is None:
            batches: Any = (
                {k: v[rows] for k, v in dataset.inputs.items()} for rows in mine[start:stop]
            )
        else:
            batches = data.stream(
                dataset, mine[:stop], seed=seed, epoch=epoch, workers=self.workers, start=start
            )
        for step, inputs in enumerate(batches, start):
            rows = mine[step]
            if plan.lengths is not None:
                length = plan.lengths[step]
                inputs = {k: x[..., :length] if k in _TOKENS else x for k, x in inputs.items()}
            columns = {"labels": dataset.labels[rows], "position": rows}
            arrays = _mesh.put(
                inputs | columns, sharding, lambda x: (self.batch_size, *x.shape[1:])
            )
            yield Piece(arrays, None, plan.weights[step : step + 1], 1)


def gather(piece: Piece, step: Any, mesh: Mesh | None) -> Batch:
    """The batch of one step of a piece, dealt out over the devices if a mesh is given; inside jit."""
    columns = dict(piece.arrays)
    if piece.rows is not None:
        columns = {key: array[piece.rows[step]] for key, array in columns.items()}
    columns["weights"] = piece.weights[step]
    if mesh is not None:
        columns = jax.lax.with_sharding_constraint(columns, _mesh.split(mesh))
    labels, position, weights = (columns.pop(key) for key in ("labels", "position", "weights"))
    if "image" in columns and columns["image"].dtype == np.uint8:
        columns["image"] = columns["image"].astype(np.float32) / 255
    return Batch(columns, labels, position, weights)


def _lengths(dataset: Dataset) -> tuple[np.ndarray | None, tuple[int, ...]]:
    mask = dataset.inputs.get("mask")
    if mask is None:
        return None, ()
    lengths = mask.sum(-1)
    while lengths.ndim > 1:  # of several choices the longest counts
        lengths = lengths.max(-1)
    return lengths, data.make_buckets(lengths, mask.shape[-1])
