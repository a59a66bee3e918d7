"""Several seeds in one program: their states side by side, a step of all of them at once."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from calib_jax.train import _mesh
from calib_jax.train._feed import Piece
from calib_jax.train._step import Sums, TrainState
from calib_jax.train._trainer import Trainer


class Alone:
    """The steps of one seed; what `Abreast` is for several."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def join(self, trees: Sequence[Any]) -> Any:
        return trees[0]

    def part(self, joined: Any) -> list[TrainState]:
        return [joined]

    def advance(
        self, joined: Any, pieces: Sequence[Piece], keys: jax.Array
    ) -> tuple[Any, list[Sums]]:
        state, sums = self.trainer.advance(joined, pieces[0], keys)
        return state, [sums]

    def is_compiled(self) -> bool:
        return self.trainer.compilations()["train"] > 0


class Abreast:
    """The steps of several seeds by vmap over states, batches and keys.

    The seeds are dealt out over the devices, where their number is a multiple of the devices' and no
    device then needs to hear of another; else every batch is, as it is for one seed.

    Args:
      trainers: of each seed, the same one or such that differ in what was handed to them.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        first, number = trainers[0], len(trainers)
        _check(trainers)
        dealt = number % first.mesh.size == 0
        everywhere = _mesh.replicated(first.mesh)
        place = _mesh.split(first.mesh) if dealt else everywhere
        steps = jax.vmap(
            functools.partial(first.steps, split=not dealt),
            in_axes=(0, None, 0, 0, None, 0),
        )
        if dealt:  # by hand: nobody has to find out that nothing is to be sent
            own, all_ = PartitionSpec("data"), PartitionSpec()
            steps = jax.shard_map(
                steps,
                mesh=first.mesh,
                in_specs=(own, all_, own, own, all_, own),
                out_specs=own,
                check_vma=False,
            )

        def one_of(joined: Any, i: int) -> Any:
            return jax.tree.map(lambda x: x[i], joined)

        def advance(joined: TrainState, *rest: Any) -> tuple[TrainState, list[Sums]]:
            joined, sums = steps(joined, *rest)
            return joined, [one_of(sums, i) for i in range(number)]

        self._join = jax.jit(
            lambda trees: jax.tree.map(lambda *x: jnp.stack(x), *trees), out_shardings=place
        )
        self._part = jax.jit(
            lambda joined: [one_of(joined, i) for i in range(number)], out_shardings=everywhere
        )
        self._advance = jax.jit(advance, donate_argnums=0, out_shardings=(place, everywhere))

    def join(self, trees: Sequence[Any]) -> Any:
        """One tree with the arrays of all, `[seeds, …]`: of their states, or of their keys."""
        return self._join(list(trees))

    def part(self, joined: Any) -> list[TrainState]:
        """The states that were joined, in memory of their own."""
        return self._part(joined)

    def advance(
        self, joined: Any, pieces: Sequence[Piece], keys: jax.Array
    ) -> tuple[Any, list[Sums]]:
        """Takes the steps of each seed's piece; see `Trainer.advance`. The keys are joined, too."""
        rows, weights = (
            np.stack([getattr(p, name) for p in pieces]) for name in ("rows", "weights")
        )
        count = np.int32(pieces[0].num_steps)
        return self._advance(joined, pieces[0].arrays, rows, weights, count, keys)

    def is_compiled(self) -> bool:
        compiled: Any = self._advance
        return compiled._cache_size() > 0


def _check(trainers: Sequence[Trainer]) -> None:
    """What has other shapes for every seed cannot be one program for all of them."""
    first = trainers[0]
    reason = ""
    if first.train.lengths is not None:
        reason = "texts are batched by length, and the seeds' batches differ in theirs"
    elif not first.train.resident:
        reason = f"{first.train.dataset.name} is too large to be on the devices"
    elif first.setup.sharding != "replicated":
        reason = f"sharding={first.setup.sharding!r} deals out the parameters of one seed"
    elif any(_shapes(t) != _shapes(first) for t in trainers):
        reason = "the seeds have states or groups of examples of different sizes"
    if reason:
        raise ValueError(f"seeds_in_parallel=True: {reason}; expected False here")


def _shapes(trainer: Trainer) -> Any:
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(trainer.abstract_state())]
    return trainer.train.steps, trainer.train.batch_size, shapes
