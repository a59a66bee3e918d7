"""The compiled programs of a training, shared by all seeds of an experiment."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from calib_jax import _cpu, metrics
from calib_jax._hints import check_choice
from calib_jax.data import Dataset
from calib_jax.methods import Batch, Groups, Info, Method, Params, Phase, PyTree
from calib_jax.train import _distributed
from calib_jax.train._evaluator import BucketEvaluator, Evaluator, num_compiled
from calib_jax.train._loader import Chunk, Loader, Pace, gather, zero_example
from calib_jax.train._network import CUTS, MissingCutError, Network
from calib_jax.train._state import TrainMetrics, TrainState, init_state, zero_metrics
from calib_jax.train._step import Augment, make_train_step


class Setup(NamedTuple):
    """How to train; see `make_train_step` for what is not explained here.

    Attributes:
      batch_size: Batch size over all devices. How it is divided between groups of examples, if a
        method has several, is the phase's `groups.batch_split`.
      epochs: Number of epochs.
      eval_batch_size: Batch size of evaluation; 0 for `batch_size`.
      evaluate_every: Steps between validation passes (and the method's updates); 0 for one epoch.
      steps_per_call: Training steps in one compiled loop; 0 for what suits the backend.
      workers: Number of processes that read a streaming set.
      sharding: `'replicated'`: every device has the whole state; `'fsdp'`: parameters, optimizer state
        and what a method keeps of each example are sharded over the devices, where sizes allow.
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
    """The compiled functions of one (network, method, data) and the data on its devices.

    Attributes:
      train, val, test: Loaders of the sets; `test` may be `None`.
      advance: Compiled `(state, chunk, key) -> (state, metrics)`: take the steps of a chunk. The state
        given is donated; the metrics are returned a second time, to be read when the state is gone.
      validation_metrics: Compiled `(logits, labels) -> {name: scalar}` for the log.
      bucket_evaluator: Sums over the validation set for many buckets.
    """

    def __init__(
        self,
        network: Network,
        phase: Phase | Method,
        make_optimizer: Callable[[int, int], optax.GradientTransformation],
        train: Dataset,
        val: Dataset,
        setup: Setup,
        augment: Augment | None = None,
        artifacts: Mapping[str, np.ndarray] = MappingProxyType({}),
        test: Dataset | None = None,
    ) -> None:
        """Build the programs; nothing is compiled yet.

        Args:
          network: Network to train.
          phase: Method to train it with, or a phase of a recipe: a method with groups of examples.
          make_optimizer: Function `(steps of an epoch, steps of the run) -> optimizer`.
          train: Training examples.
          val: Examples that the method adapts to and that a checkpoint is selected by.
          setup: How to train.
          augment: Augmentation of the training inputs.
          artifacts: Arrays of earlier phases; see `methods.Info`.
          test: Examples whose metrics are logged beside those of `val`, and used for nothing else.
        """
        self.mesh = _distributed.make_mesh()
        self.eval_batch_size = setup.eval_batch_size or setup.batch_size
        _distributed.check_batch_size("batch_size", setup.batch_size, self.mesh, setup.accumulate)
        _distributed.check_batch_size("eval_batch_size", self.eval_batch_size, self.mesh)
        self.phase = Phase("train", phase) if isinstance(phase, Method) else phase
        self.network, self.method, self.setup = network, self.phase.method, setup
        self.info = Info(len(train), train.num_classes, artifacts)
        groups = self.phase.groups or Groups(lambda info: ())
        steps_per_call = setup.steps_per_call or _cpu.steps_per_call(network.module_type)
        self.train = Loader(
            train,
            setup.batch_size,
            self.mesh,
            groups=lambda seed: groups.positions(self.info._replace(seed=seed)),
            batch_split=groups.batch_split,
            epoch_of_first=groups.epoch_of_first,
            steps_per_call=steps_per_call,
            workers=setup.workers,
        )
        _check_sizes(self.train.sizes, setup)
        self.val = self.loader(val)
        self.test = None if test is None else self.loader(test)
        self.total_steps = setup.epochs * self.train.steps
        self.info = self.info._replace(total_steps=self.total_steps)
        self.evaluate_every = setup.evaluate_every or self.train.steps
        self.optimizer = make_optimizer(self.train.steps, self.total_steps)
        self._train_step = make_train_step(
            network,
            self.method,
            self.optimizer,
            augment=augment,
            accumulate=setup.accumulate,
            sum_loss=setup.sum_loss,
        )
        self.shardings = self._make_shardings()
        self._check_cuts()
        self._compile()

    def _compile(self) -> None:
        replicated = _distributed.replicated(self.mesh)
        self._init = jax.jit(
            self.network.init, out_shardings=(self.eval_params(self.shardings.params), replicated)
        )
        self._init_state = jax.jit(
            self._make_state, static_argnames="seed", out_shardings=self.shardings
        )
        self.advance = jax.jit(
            self.steps,
            donate_argnums=0,
            out_shardings=(self.shardings, replicated),
        )
        self._reshard = jax.jit(
            lambda *x: x, out_shardings=(self.shardings.method_state, replicated)
        )
        self._logits = jax.jit(self._predict, out_shardings=replicated)
        self._programs = {"train": self.advance, "predict": self._logits}
        self.validation_metrics = jax.jit(_validation_metrics)
        self.bucket_evaluator = BucketEvaluator(self.network, self.mesh)

    def pace(self) -> Pace:
        """Return the number of steps in the next calls: `steps_per_call`, or fewer on the CPU."""
        return Pace(self.train.steps_per_call, adapts=not self.setup.steps_per_call)

    def loader(self, dataset: Dataset) -> Loader:
        """Return the batches of a data set for `predict`."""
        return Loader(dataset, self.eval_batch_size, self.mesh, workers=self.setup.workers)

    def init(self, seed: int) -> TrainState:
        """Return the state before the first step."""
        count = self.phase.num_networks
        if self.network.pretrained is not None:
            made: list[tuple[Params, PyTree]] = [
                (self.network.pretrained(seed + n), {}) for n in range(count)
            ]
        else:
            key = jax.random.key(seed)
            keys = [jax.random.fold_in(key, n) if n else key for n in range(count)]
            made = [self._init(key, zero_example(self.train.dataset)) for key in keys]
        params = self._all_params([params for params, _ in made])
        return self._init_state(params, {**made[0][1], **self.network.model_state}, seed=seed)

    def eval_params(self, params: Params) -> Params:
        """Return the parameters of the network that is evaluated."""
        return params if self.phase.num_networks == 1 else params[0]

    def _all_params(self, params: Sequence[Params]) -> Params:
        return params[0] if self.phase.num_networks == 1 else tuple(params)

    def abstract_state(self) -> TrainState:
        """Return shapes and shardings of the state, to restore a checkpoint into."""
        return jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            self._shapes,
            self.shardings,
        )

    def is_compiled(self) -> bool:
        """Return whether the training step has been compiled."""
        return self.compilations()["train"] > 0

    def predict(self, state: TrainState, loader: Loader) -> jax.Array:
        """Return the logits `[n, num_classes]` of a set, in its order."""
        plan = loader.in_order()
        batches = [
            self._logits(state.params, state.model_state, chunk)
            for chunk in loader.chunks(plan, 0, len(plan.rows))
        ]
        n = len(loader.dataset)
        logits = jnp.concatenate(batches)[:n]
        if plan.lengths is None:
            return logits
        return logits[np.argsort(plan.rows.ravel()[:n], kind="stable")]

    def evaluator(self, state: TrainState) -> Evaluator:
        """Return what a method may ask about the validation set."""
        logits = self.predict(state, self.val)
        return Evaluator(state, self.val, self.bucket_evaluator, logits, self._val_labels)

    @functools.cached_property
    def _val_labels(self) -> jax.Array:
        return jax.device_put(self.val.dataset.labels)

    def shard_batch(self, tree: PyTree) -> PyTree:
        """Shard a pytree of arrays `[eval_batch_size, …]` over the devices; inside jit."""
        return jax.lax.with_sharding_constraint(tree, _distributed.sharded(self.mesh))

    def after_evaluation(self, state: TrainState, method_state: PyTree) -> TrainState:
        """Return the state with a new method state and new metrics (a failure is not forgotten)."""
        new = zero_metrics()._replace(
            failed=state.metrics.failed, loss_failed=state.metrics.loss_failed
        )
        method_state, metrics = self._reshard(method_state, new)
        return state._replace(method_state=method_state, metrics=metrics)

    def memory(self) -> tuple[int, int]:
        """Return the bytes of the state, and of what a step keeps for its gradient, over all devices.

        Nothing is compiled: the second is what the backward pass of one microbatch needs of the
        forward pass, before the compiler saves some of it.
        """
        state = self.abstract_state()
        plan = self.train.in_order()
        last = len(plan.rows) - 1  # of texts the longest
        chunk = next(self.train.chunks(plan, last, last + 1))

        def backward(state: TrainState, arrays: PyTree) -> PyTree:
            batch = gather(chunk._replace(arrays=arrays), 0, self.mesh)
            batch = jax.tree.map(lambda x: x[: -(-x.shape[0] // self.setup.accumulate)], batch)
            apply = self.network.bind(state.model_state)

            def loss(params: Params) -> jax.Array:
                key = jax.random.key(0)
                return self.method.loss(apply, params, state.method_state, batch, key)[0]

            return jax.vjp(loss, state.params)[1]

        return _num_bytes(state), _num_bytes(jax.eval_shape(backward, state, chunk.arrays))

    def compilations(self) -> dict[str, int]:
        """Return how often each function has been compiled; for texts once per length."""
        return {name: num_compiled(program) for name, program in self._programs.items()}

    def _make_state(self, params: Params, model_state: PyTree, seed: int = 0) -> TrainState:
        info = self.info._replace(seed=seed)
        return init_state(self.method, self.optimizer, info, params, model_state)

    @functools.cached_property
    def _shapes(self) -> TrainState:
        params, model_state = jax.eval_shape(
            self.network.init, jax.random.key(0), zero_example(self.train.dataset)
        )
        all_params = self._all_params([params] * self.phase.num_networks)
        return jax.eval_shape(self._make_state, all_params, model_state)

    def _make_shardings(self) -> TrainState:
        """Return the sharding of every array of the state."""
        check_choice("sharding", self.setup.sharding, ("replicated", "fsdp"))
        shapes = self._shapes
        replicated = _distributed.replicated(self.mesh)
        shardings = jax.tree.map(lambda _: replicated, shapes)
        if self.setup.sharding == "replicated":
            return shardings
        return shardings._replace(
            params=_distributed.fsdp_shardings(shapes.params, self.mesh),
            opt_state=_distributed.fsdp_shardings(shapes.opt_state, self.mesh),
            method_state=_distributed.fsdp_shardings(
                shapes.method_state, self.mesh, rows=self.info.num_examples
            ),
        )

    def _check_cuts(self) -> None:
        """Raise now, not in the first step, if the method calls a cut that the network lacks."""
        if self.network.cuts() == CUTS:
            return
        rows = self.train.batch_size
        example = zero_example(self.train.dataset)

        def step(state: TrainState) -> TrainState:
            inputs = {k: jnp.zeros((rows, *x.shape[1:]), x.dtype) for k, x in example.items()}
            zeros = jnp.zeros(rows, jnp.int32)
            batch = Batch(inputs, labels=zeros, position=zeros, weights=jnp.ones(rows))
            return self._train_step(state, batch, jax.random.key(0))

        try:
            jax.eval_shape(step, self._shapes)
        except MissingCutError as error:
            name = self.method.loss.__qualname__.partition(".")[0]
            raise ValueError(f"method {name}: {error}") from None

    def steps(
        self, state: TrainState, chunk: Chunk, key: jax.Array, shard: bool = True
    ) -> tuple[TrainState, TrainMetrics]:
        """Take the steps of a chunk: the pure function behind `advance`.

        Args:
          state: State before the steps.
          chunk: Batches of the steps.
          key: Key of the run.
          shard: Whether each batch is sharded over the devices.
        """
        mesh = self.mesh if shard else None

        def one_step(step: int | jax.Array, state: TrainState) -> TrainState:
            return self._train_step(state, gather(chunk, step, mesh), key)

        if chunk.weights.shape[0] == 1:
            state = one_step(0, state)
        else:
            state = jax.lax.fori_loop(0, chunk.num_steps, one_step, state)
        return state, state.metrics

    def _predict(self, params: Params, model_state: PyTree, chunk: Chunk) -> jax.Array:
        inputs = gather(chunk, 0, self.mesh).inputs
        return self.network.bind(model_state)(self.eval_params(params), inputs)[0]


def _check_sizes(sizes: Sequence[int], setup: Setup) -> None:
    """Raise unless every microbatch has the same share of each group."""
    if len(sizes) > 1 and any(size % setup.accumulate for size in sizes):
        raise ValueError(
            f"batch_size={setup.batch_size}: expected a multiple of {len(sizes) * setup.accumulate} "
            f"({len(sizes)} groups x {setup.accumulate} accumulated parts)"
        )


def _num_bytes(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


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
