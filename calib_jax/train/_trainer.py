"""Everything compiled: one program per thing to do, shared by all seeds of an experiment."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax import metrics
from calib_jax.data import Dataset
from calib_jax.methods import Info, Method
from calib_jax.train import _mesh
from calib_jax.train._feed import Feed, Piece, gather
from calib_jax.train._measure import Measuring
from calib_jax.train._network import Network
from calib_jax.train._step import Augment, Sums, TrainState, init_state, make_train_step, no_sums

Transform = Callable[[dict[str, jax.Array]], dict[str, jax.Array]]

# XLA's CPU backend runs convolutions inside a loop an order of magnitude slower than outside, and
# a step takes much longer than its dispatch: there, a call is a step.
_STEPS_PER_CALL = {"cpu": 1}


class Setup(NamedTuple):
    """How to train; see `make_train_step` for what is not explained here.

    Attributes:
      batch_size: of all devices together; how it is divided between groups of examples, if a method
        has several, is the method's `batch_split`.
      epochs: of the run.
      eval_batch_size: for evaluation; 0 for `batch_size`.
      evaluate_every: steps between validation passes (and the method's updates); 0 for one epoch.
      steps_per_call: training steps in one compiled loop; 0 for what suits the backend.
      workers: processes that read a streaming set.
      sharding: `'replicated'`: every device has the whole state; `'fsdp'`: parameters, optimiser state
        and what a method keeps of each example are dealt out over the devices, where sizes allow.
    """

    batch_size: int
    epochs: int
    eval_batch_size: int = 0
    evaluate_every: int = 0
    steps_per_call: int = 0
    workers: int = 0
    accumulate: int = 1
    sum_loss: bool = False
    sharding: str = "replicated"


class Trainer:
    """The compiled functions of one (network, method, data) and the data on its devices."""

    def __init__(
        self,
        network: Network,
        method: Method,
        make_optimizer: Callable[[int, int], optax.GradientTransformation],
        train: Dataset,
        val: Dataset,
        setup: Setup,
        augment: Augment | None = None,
        handed: Mapping[str, np.ndarray] = MappingProxyType({}),
        test: Dataset | None = None,
    ) -> None:
        """Build the programs; nothing is compiled yet.

        Args:
          network: to be trained.
          method: to train it with.
          make_optimizer: `(steps of an epoch, steps of the run) -> optimizer`.
          train: examples to learn from.
          val: examples that steer the method and that a checkpoint is selected by.
          setup: how to train.
          augment: of the training inputs.
          handed: see `Info`.
          test: examples whose metrics are logged beside those of `val`, and used for nothing else.
        """
        self.mesh = _mesh.make_mesh()
        self.eval_batch_size = setup.eval_batch_size or setup.batch_size
        _mesh.check_batch_size("batch_size", setup.batch_size, self.mesh, setup.accumulate)
        _mesh.check_batch_size("eval_batch_size", self.eval_batch_size, self.mesh)
        self.network, self.method, self.setup = network, method, setup
        self.info = Info(len(train), train.num_classes, handed)
        steps_per_call = setup.steps_per_call or _STEPS_PER_CALL.get(jax.default_backend(), 50)
        self.train = Feed(
            train,
            setup.batch_size,
            self.mesh,
            groups=lambda seed: method.groups(self.info._replace(seed=seed)),
            batch_split=method.batch_split,
            epoch_of_first=method.epoch_of_first,
            steps_per_call=steps_per_call,
            workers=setup.workers,
        )
        _check_sizes(self.train.sizes, setup)
        self.val = self.feed(val)
        self.test = None if test is None else self.feed(test)
        self.total_steps = setup.epochs * self.train.steps
        self.info = self.info._replace(total_steps=self.total_steps)
        self.evaluate_every = setup.evaluate_every or self.train.steps
        self.optimizer = make_optimizer(self.train.steps, self.total_steps)
        self._train_step = make_train_step(
            network,
            method,
            self.optimizer,
            augment=augment,
            accumulate=setup.accumulate,
            sum_loss=setup.sum_loss,
        )
        everywhere = _mesh.replicated(self.mesh)
        place = self.placement = self._placement()
        of_one = self.evaluated(place.params), everywhere
        self._init = jax.jit(network.init, out_shardings=of_one)
        self._start = jax.jit(self._make_state, static_argnames="seed", out_shardings=place)
        self._run = jax.jit(
            self.steps,
            donate_argnums=0,
            out_shardings=(place, everywhere),
        )
        self._settle = jax.jit(lambda *x: x, out_shardings=(place.method, everywhere))
        self._logits = jax.jit(self._predict, static_argnames="transform", out_shardings=everywhere)
        self.measuring = Measuring(network, self.mesh)
        self.judge = jax.jit(_validation_metrics)

    def feed(self, dataset: Dataset) -> Feed:
        """Batches of a data set for `predict`."""
        return Feed(dataset, self.eval_batch_size, self.mesh, workers=self.setup.workers)

    def init(self, seed: int) -> TrainState:
        """The state before the first step."""
        given, count = self.network.collections, self.method.networks
        if self.network.pretrained is not None:
            made: list[Any] = [(self.network.pretrained(seed + n), {}) for n in range(count)]
        else:
            key = jax.random.key(seed)
            keys = [jax.random.fold_in(key, n) if n else key for n in range(count)]
            made = [self._init(key, self._example()) for key in keys]
        params = self._together([params for params, _ in made])
        return self._start(params, {**made[0][1], **given}, seed=seed)

    def evaluated(self, params: Any) -> Any:
        """Of all that is trained, the parameters of the network that is evaluated."""
        return params if self.method.networks == 1 else params[0]

    def _together(self, params: Sequence[Any]) -> Any:
        return params[0] if self.method.networks == 1 else tuple(params)

    def abstract_state(self) -> TrainState:
        """Shapes and placement of the state, to restore a checkpoint into."""
        return jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            self._shapes,
            self.placement,
        )

    def advance(self, state: TrainState, piece: Piece, key: jax.Array) -> tuple[TrainState, Sums]:
        """Takes the steps of a piece; the sums a second time, to be read when the state is gone."""
        return self._run(state, *_arguments(piece), key)

    def predict(
        self, state: TrainState, feed: Feed, transform: Transform | None = None
    ) -> jax.Array:
        """Logits `[n, num_classes]` of a whole set, in its order."""
        plan = feed.in_order()
        parts = [
            self._logits(state.params, state.network, *_arguments(piece), transform)
            for piece in feed.pieces(plan, 0, len(plan.rows))
        ]
        n = len(feed.dataset)
        logits = jnp.concatenate(parts)[:n]
        if plan.lengths is None:
            return logits
        return logits[np.argsort(plan.rows.ravel()[:n], kind="stable")]

    def dealt(self, tree: Any) -> Any:
        """A tree of arrays `[eval_batch_size, …]`, rows dealt out over the devices; inside jit."""
        return jax.lax.with_sharding_constraint(tree, _mesh.split(self.mesh))

    def after_evaluation(self, state: TrainState, method_state: Any) -> TrainState:
        """The state with what its method has become, and with new sums (a failure stays known)."""
        new = no_sums()._replace(failed=state.sums.failed, loss_failed=state.sums.loss_failed)
        method_state, sums = self._settle(method_state, new)
        return state._replace(method=method_state, sums=sums)

    def memory(self) -> tuple[int, int]:
        """Bytes of the state, and of what a step keeps for its gradient, over all devices.

        Nothing is compiled: the second is what the backward pass of one part of a batch needs of the
        forward pass, before the compiler saves some of it.
        """
        state = self.abstract_state()
        plan = self.train.in_order()
        last = len(plan.rows) - 1  # of texts the longest
        piece = next(self.train.pieces(plan, last, last + 1))

        def backward(state: TrainState, arrays: Any) -> Any:
            batch = gather(piece._replace(arrays=arrays), 0, self.mesh)
            batch = jax.tree.map(lambda x: x[: -(-x.shape[0] // self.setup.accumulate)], batch)
            network = self.network.bind(state.network)

            def loss(params: Any) -> jax.Array:
                return self.method.loss(network, params, state.method, batch, jax.random.key(0))[0]

            return jax.vjp(loss, state.params)[1]

        return _num_bytes(state), _num_bytes(jax.eval_shape(backward, state, piece.arrays))

    def compilations(self) -> dict[str, int]:
        """How many programs each function has been compiled to; a text set has one per length."""
        functions: dict[str, Any] = {"train": self._run, "predict": self._logits}
        return {name: function._cache_size() for name, function in functions.items()}

    def _make_state(self, params: Any, collections: Any, seed: int = 0) -> TrainState:
        info = self.info._replace(seed=seed)
        return init_state(self.method, self.optimizer, info, params, collections)

    @functools.cached_property
    def _shapes(self) -> TrainState:
        params, collections = jax.eval_shape(self.network.init, jax.random.key(0), self._example())
        every = self._together([params] * self.method.networks)
        return jax.eval_shape(self._make_state, every, collections)

    def _placement(self) -> TrainState:
        """Where every array of the state lives."""
        shapes = self._shapes
        everywhere = _mesh.replicated(self.mesh)
        place = jax.tree.map(lambda _: everywhere, shapes)
        if self.setup.sharding == "replicated":
            return place
        if self.setup.sharding != "fsdp":
            raise ValueError(f"sharding={self.setup.sharding!r}: expected replicated or fsdp")
        return place._replace(
            params=_mesh.spread(shapes.params, self.mesh),
            optimizer=_mesh.spread(shapes.optimizer, self.mesh),
            method=_mesh.spread(shapes.method, self.mesh, rows=self.info.num_examples),
        )

    def _example(self) -> dict[str, Any]:
        """One example that is all zeros, as the network is given it."""
        inputs = self.train.example().items()
        # Images reach the network as numbers in [0, 1], whatever they are stored as.
        kind = {"image": np.float32}
        return {k: np.zeros(v.shape, kind.get(k, v.dtype)) for k, v in inputs}

    def steps(
        self,
        state: TrainState,
        arrays: dict[str, jax.Array],
        rows: jax.Array | None,
        weights: jax.Array,
        num_steps: jax.Array,
        key: jax.Array,
        split: bool = True,
    ) -> tuple[TrainState, Sums]:
        """The pure function behind `advance`; without `split` a batch is not dealt out."""
        piece = Piece(arrays, rows, weights, 0)
        mesh = self.mesh if split else None

        def one(step: Any, state: TrainState) -> TrainState:
            return self._train_step(state, gather(piece, step, mesh), key)

        alone = weights.shape[0] == 1
        state = one(0, state) if alone else jax.lax.fori_loop(0, num_steps, one, state)
        return state, state.sums

    def _predict(
        self,
        params: Any,
        collections: Any,
        arrays: dict[str, jax.Array],
        rows: jax.Array | None,
        weights: jax.Array,
        num_steps: jax.Array,
        transform: Transform | None,
    ) -> jax.Array:
        inputs = gather(Piece(arrays, rows, weights, 0), 0, self.mesh).inputs
        if transform is not None:
            inputs = transform(inputs)
        return self.network.bind(collections)(self.evaluated(params), inputs)[0]


def _check_sizes(sizes: Sequence[int], setup: Setup) -> None:
    """Every accumulated part of a batch must have the same share of each group."""
    if len(sizes) > 1 and any(size % setup.accumulate for size in sizes):
        raise ValueError(
            f"batch_size={setup.batch_size}: expected a multiple of {len(sizes) * setup.accumulate} "
            f"({len(sizes)} groups x {setup.accumulate} accumulated parts)"
        )


def _num_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _arguments(piece: Piece) -> tuple[Any, ...]:
    return piece.arrays, piece.rows, piece.weights, np.int32(piece.num_steps)


def _validation_metrics(logits: jax.Array, labels: jax.Array) -> dict[str, jax.Array]:
    confidence, correct = metrics.top_label(logits, labels)
    return {
        "nll": metrics.nll(logits, labels),
        "refinement": metrics.refinement(logits, labels),
        "accuracy": metrics.accuracy(logits, labels),
        "f1": metrics.f1(logits, labels, average="macro"),
        "ece": metrics.ece(confidence, correct),
        "ece_mass": metrics.ece(confidence, correct, scheme="mass"),
    }
