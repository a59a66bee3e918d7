"""What a method may ask about the network on the validation set."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from calib_jax import _cpu
from calib_jax.methods import Measure, Params, PyTree
from calib_jax.train import _distributed
from calib_jax.train._loader import Chunk, Loader, gather
from calib_jax.train._network import Network
from calib_jax.train._state import TrainState


def num_compiled(program: Callable[..., PyTree]) -> int:
    """Return how often a jitted function has been compiled."""
    return program._cache_size()  # type: ignore[attr-defined]


class BucketEvaluator:
    """Sums over a data set for many buckets, with one program for all of them.

    On accelerators a call is a scan over the buckets for one batch, which is then read only once. On the
    CPU, where a convolution of a network that is not ours may be slow in a loop, a call is one bucket.
    """

    def __init__(self, network: Network, mesh: Mesh) -> None:
        self.network, self.mesh = network, mesh
        self.loops = not _cpu.is_cpu()
        replicated = _distributed.replicated(mesh)
        self._one = jax.jit(self._sums, static_argnames="measure", out_shardings=replicated)
        self._all = jax.jit(self._all_sums, static_argnames="measure", out_shardings=replicated)
        self._add = jax.jit(lambda a, b: jax.tree.map(jnp.add, a, b))
        self._subsets: dict[tuple[int, int], Loader] = {}

    def __call__(self, state: TrainState, loader: Loader, measure: Measure, args: PyTree) -> PyTree:
        """Return the sums of `measure` over all batches, a pytree of arrays `[buckets, …]`.

        Args:
          state: State with the parameters to evaluate.
          loader: Batches of the data set.
          measure: Function that is the same object in every call, or it is compiled again.
          args: Pytree of arrays `[buckets, …]`, the last argument of `measure` for each bucket.
        """
        count = jax.tree.leaves(args)[0].shape[0]
        each = [jax.tree.map(lambda x, i=i: x[i], args) for i in range(count)]
        total: PyTree = None
        plan = loader.in_order()
        for chunk in loader.chunks(plan, 0, len(plan.rows)):
            given = state.params, state.model_state, chunk
            sums: PyTree = (
                self._all(*given, args, measure)
                if self.loops
                else [self._one(*given, arg, measure) for arg in each]
            )
            total = sums if total is None else self._add(total, sums)
            jax.block_until_ready(total)  # no queue of everything that is to be done
        return total if self.loops else jax.tree.map(lambda *x: jnp.stack(x), *total)

    def subset(self, loader: Loader, limit: int) -> Loader:
        """Return a loader of `limit` examples at equal distances in the set; 0 for all."""
        dataset = loader.dataset
        if not 0 < limit < len(dataset):
            return loader
        key = id(loader), limit
        if key not in self._subsets:
            rows = np.arange(limit) * len(dataset) // limit
            # As few batches as before, and none larger than necessary: padding costs as much as rows.
            batches = -(-limit // loader.batch_size)
            size = -(-limit // (batches * self.mesh.size)) * self.mesh.size
            self._subsets[key] = Loader(dataset.take(rows), size, self.mesh, workers=loader.workers)
        return self._subsets[key]

    def compilations(self) -> int:
        """Return the number of programs compiled so far."""
        return num_compiled(self._one) + num_compiled(self._all)

    def _sums(
        self, params: Params, model_state: PyTree, chunk: Chunk, arg: PyTree, measure: Measure
    ) -> PyTree:
        batch = gather(chunk, 0, self.mesh)
        return measure(self.network.bind(model_state), params, batch, arg)

    def _all_sums(
        self, params: Params, model_state: PyTree, chunk: Chunk, args: PyTree, measure: Measure
    ) -> PyTree:
        return jax.lax.map(lambda arg: self._sums(params, model_state, chunk, arg, measure), args)


class Evaluator:
    """The validation set seen by one state of the network; see `methods.Evaluator`.

    Attributes:
      seconds: Time spent on buckets; 0 if none was asked for.
    """

    def __init__(
        self,
        state: TrainState,
        loader: Loader,
        buckets: BucketEvaluator,
        logits: jax.Array,
        labels: jax.Array,
    ) -> None:
        self._state, self._loader, self._buckets = state, loader, buckets
        self._validation = logits, labels
        self.seconds = 0.0

    def validation(self) -> tuple[jax.Array, jax.Array]:
        """Return logits `[n, num_classes]` and labels `[n]`."""
        return self._validation

    def per_bucket(self, measure: Measure, args: PyTree, limit: int = 0) -> PyTree:
        """Return sums of `measure` over `limit` examples (0 for all), for each of the stacked `args`."""
        start = time.monotonic()
        loader = self._buckets.subset(self._loader, limit)
        sums = jax.block_until_ready(self._buckets(self._state, loader, measure, args))
        self.seconds += time.monotonic() - start
        return sums
