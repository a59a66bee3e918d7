"""Sums over a data set for many settings at once: what AutoLabel asks of every bucket."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from calib_jax.data import Dataset
from calib_jax.train import _mesh
from calib_jax.train._feed import Feed, Piece, gather
from calib_jax.train._network import Network

# `(apply, params, batch, argument) -> tree of sums over the rows that count`
Measure = Callable[..., Any]


class Measuring:
    """One program for all settings and batches.

    On accelerators a call is a scan over the settings for one batch, which so is read only once. XLA's
    CPU backend runs convolutions in a loop an order of magnitude slower: there a call is one setting.
    """

    def __init__(self, network: Network, mesh: Mesh) -> None:
        self.network, self.mesh = network, mesh
        self.loops = jax.default_backend() != "cpu"
        everywhere = _mesh.replicated(mesh)
        self._one = jax.jit(self._sums, static_argnames="measure", out_shardings=everywhere)
        self._all = jax.jit(self._all_sums, static_argnames="measure", out_shardings=everywhere)
        self._add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b))
        self._feeds: dict[tuple[int, int], Feed] = {}

    def __call__(
        self, params: Any, collections: Any, feed: Feed, measure: Measure, arguments: Any
    ) -> Any:
        """Sums of `measure` over all batches.

        Args:
          params: of the network.
          collections: of the network.
          feed: of the data set.
          measure: the same function in every call, or it is compiled again.
          arguments: a tree of arrays `[settings, …]`.

        Returns:
          The sums, a tree of arrays `[settings, …]`.
        """
        number = jax.tree.leaves(arguments)[0].shape[0]
        single = [jax.tree.map(lambda x, i=i: x[i], arguments) for i in range(number)]
        total: Any = None
        plan = feed.in_order()
        for piece in feed.pieces(plan, 0, len(plan.rows)):
            given = params, collections, piece.arrays, piece.rows, piece.weights
            sums: Any
            if self.loops:
                sums = self._all(*given, arguments, measure)
            else:
                sums = [self._one(*given, argument, measure) for argument in single]
            total = sums if total is None else self._add(total, sums)
            jax.block_until_ready(total)  # no queue of everything there is to do
        return total if self.loops else jax.tree.map(lambda *x: jnp.stack(x), *total)

    def part(self, feed: Feed, number: int) -> Feed:
        """A feed of so many examples, spread evenly over those of another; 0 for all."""
        dataset: Dataset = feed.dataset
        if not 0 < number < len(dataset):
            return feed
        key = id(feed), number
        if key not in self._feeds:
            rows = np.arange(number) * len(dataset) // number
            # As many batches as it takes, and none larger than it must be: padding costs as much.
            batches = -(-number // feed.batch_size)
            size = -(-number // (batches * self.mesh.size)) * self.mesh.size
            self._feeds[key] = Feed(dataset.take(rows), size, self.mesh, workers=feed.workers)
        return self._feeds[key]

    def compilations(self) -> int:
        functions: tuple[Any, ...] = (self._one, self._all)
        return sum(function._cache_size() for function in functions)

    def _sums(
        self,
        params: Any,
        collections: Any,
        arrays: dict[str, jax.Array],
        rows: jax.Array | None,
        weights: jax.Array,
        argument: Any,
        measure: Measure,
    ) -> Any:
        batch = gather(Piece(arrays, rows, weights, 0), 0, self.mesh)
        return measure(self.network.bind(collections), params, batch, argument)

    def _all_sums(
        self,
        params: Any,
        collections: Any,
        arrays: dict[str, jax.Array],
        rows: jax.Array | None,
        weights: jax.Array,
        arguments: Any,
        measure: Measure,
    ) -> Any:
        given = params, collections, arrays, rows, weights
        return jax.lax.map(lambda one: self._sums(*given, one, measure), arguments)
