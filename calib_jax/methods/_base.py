"""The two protocols: a `Method` trains a network, an `Objective` is the loss it minimizes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

PyTree = Any  # a pytree of arrays
Params = PyTree
State = PyTree
Inputs = Mapping[str, jax.Array]
ModelState = Mapping[str, PyTree]


# Where the arrays come from that a method may need of an earlier training.
_RECORDED = (
    "of methods.recorded_dynamics(state.method_state) after a training with "
    "methods.dynamics_recorder(another method)"
)
_ORIGIN = {
    "labels": "the labels of the training set",
    "teacher_logits": "the logits of the training set [n, num_classes] by the teacher's network",
    "teacher_temperature": "the temperature of the teacher, fitted on the validation set (1 for none)",
}


class Info(NamedTuple):
    """Facts about a training that a method's state may depend on.

    Attributes:
      num_examples: Number of training examples.
      num_classes: Number of classes.
      artifacts: Arrays that earlier phases left, such as `methods.recorded_dynamics`.
      total_steps: Number of steps of the training; 0 when `Groups.positions` is called.
      seed: Seed of the training's initialization, order and noise.
    """

    num_examples: int
    num_classes: int
    artifacts: Mapping[str, np.ndarray] = MappingProxyType({})
    total_steps: int = 0
    seed: int = 0

    def artifact(self, name: str) -> np.ndarray:
        """Return one of `artifacts`.

        Raises:
          ValueError: If it is missing; the message says where it comes from.
        """
        if name in self.artifacts:
            return self.artifacts[name]
        known = ", ".join(self.artifacts) or "nothing"
        origin = _ORIGIN.get(name, _RECORDED)
        raise ValueError(
            f"artifacts have {known}: expected {name!r}, {origin}; pass it as "
            f"train.Trainer(..., artifacts={{{name!r}: ...}}), or use experiment.run, which trains "
            "all phases"
        )


class Batch(NamedTuple):
    """The examples of one step.

    Attributes:
      inputs: Arrays `[batch, …]`: `image` (values in [0, 1]), or `input_ids`, `mask`, ….
      labels: Integers `[batch]`.
      position: Position of each example in the training set `[batch]`.
      weights: Weights `[batch]`; 0 for a row that only fills up the last batch of an epoch.
    """

    inputs: dict[str, jax.Array]
    labels: jax.Array
    position: jax.Array
    weights: jax.Array


class Aux(NamedTuple):
    """Outputs of a loss besides its value.

    Attributes:
      logits: Logits of the batch `[batch, num_classes]`.
      model_state: Model state after the forward pass (batch statistics).
      extra: Whatever else the method's `after_step` needs.
    """

    logits: jax.Array
    model_state: ModelState
    extra: PyTree = None


class Apply(Protocol):
    """The network as a loss calls it: whole, or in three parts (embed, features, head).

    With a `key`, a call is in training mode; without, in evaluation mode.
    """

    def __call__(
        self, params: Params, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, ModelState]:
        """Return logits `[batch, num_classes]` and the model state after the call."""
        ...

    def embed(self, params: Params, inputs: Inputs, key: jax.Array | None = None) -> jax.Array:
        """Return normalized images, or embeddings of tokens."""
        ...

    def features(
        self, params: Params, embeddings: jax.Array, inputs: Inputs, key: jax.Array | None = None
    ) -> tuple[jax.Array, ModelState]:
        """Return the last layer's inputs and the model state after the call."""
        ...

    def head(self, params: Params, features: jax.Array, key: jax.Array | None = None) -> jax.Array:
        """Return the logits of features."""
        ...


Measure = Callable[[Apply, Params, Batch, PyTree], PyTree]


class Evaluator(Protocol):
    """Evaluation of the network, as it is now, on the validation set."""

    def validation(self) -> tuple[jax.Array, jax.Array]:
        """Return logits `[n, num_classes]` and labels `[n]`."""
        ...

    def per_bucket(self, measure: Measure, args: PyTree, limit: int = 0) -> PyTree:
        """Return sums over validation examples for each of many buckets.

        Args:
          measure: Function `(apply, params, batch, arg) -> pytree` of sums over a batch. It must be
            the same object in every call, or it is compiled in every call.
          args: Pytree of arrays `[buckets, …]`, traced: one program serves all buckets.
          limit: Number of validation examples; 0 for all.
        """
        ...


def _keep(state: State, *_: object) -> State:
    return state


class Method(NamedTuple):
    """A training method: pure functions around one pytree of state.

    The state (gammas, label tables, margins) is part of the train state: sharded, donated and
    checkpointed with the parameters.

    Attributes:
      init: `(info) -> state`
      loss: `(apply, params, state, batch, key) -> (scalar, Aux)`; inside jit, differentiated with
        respect to `params`.
      after_step: `(state, batch, aux) -> state`; inside jit; collects training statistics.
      after_epoch: `(state, evaluator, key) -> state`, after a validation pass.
      report: `(state, logits, labels) -> {name: array}`: values for the log, given the validation
        logits and labels of the last `after_epoch`.
    """

    init: Callable[[Info], State]
    loss: Callable[[Apply, Params, State, Batch, jax.Array], tuple[jax.Array, Aux]]
    after_step: Callable[[State, Batch, Aux], State] = _keep
    after_epoch: Callable[[State, Evaluator, jax.Array], State] = _keep
    report: Callable[[State, jax.Array, jax.Array], dict[str, jax.Array]] = lambda *_: {}


class Objective(NamedTuple):
    """The exchangeable loss of a method, with the state that steers it.

    Attributes:
      loss: `(logits, labels, state) -> [batch]`; labels are integers or soft.
      penalty: `(logits, labels, weights) -> scalar`, a term that couples the examples of a batch.
      init: `(info) -> state`
      update: `(state, logits, labels) -> state`, given validation logits and labels.
      report: `(state, logits, labels) -> {name: array}` for the log.
    """

    loss: Callable[[jax.Array, jax.Array, State], jax.Array]
    penalty: Callable[[jax.Array, jax.Array, jax.Array], jax.Array] | None = None
    init: Callable[[Info], State] = lambda info: ()
    update: Callable[[State, jax.Array, jax.Array], State] = _keep
    report: Callable[[State, jax.Array, jax.Array], dict[str, jax.Array]] = lambda *_: {}
