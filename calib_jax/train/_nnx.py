"""A Flax NNX module as pure functions of its variables, like those of a Linen module."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import traverse_util

from calib_jax.methods import PyTree

if TYPE_CHECKING:  # a run without such a module does not import NNX
    from flax import nnx

Variables = Mapping[str, PyTree]


class NNXModule:
    """`init` and `apply` of a module of Flax NNX, with the signatures that Linen has.

    What the module keeps is visible in the variables, as nested dicts of arrays: `params`, `state`
    (batch statistics and other variables) and `rngs` (keys and counts of its random streams). A call
    merges them into a new module (`nnx.merge`) and returns what it has changed; nothing is mutated.

    A call in training mode is one of `module.train()`, with every random stream seeded by the key of
    the call; in evaluation mode one of `module.eval()`, with the streams as they were initialized.

    Args:
      create: Function `(rngs) -> module` that creates the module with random parameters.

    >>> from flax import nnx
    >>> linear = NNXModule(lambda rngs: nnx.Linear(4, 3, rngs=rngs))
    >>> variables = linear.init(jax.random.key(0))
    >>> linear.apply(variables, jnp.ones((2, 4))).shape
    (2, 3)
    """

    def __init__(self, create: "Callable[[nnx.Rngs], nnx.Module]") -> None:
        from flax import nnx

        self.create = create
        module = nnx.eval_shape(lambda: create(nnx.Rngs(0)))
        self.module_type: type[nnx.Module] = type(module)
        self._shapes = _split(module)
        module.train()
        self._train_graph = nnx.graphdef(module)
        module.eval()
        self._eval_graph = nnx.graphdef(module)

    def init(self, key: jax.Array, *_: jax.Array) -> dict[str, PyTree]:
        """Return the variables of a new module; inputs after the key are ignored."""
        from flax import nnx

        states = _split(self.create(nnx.Rngs(key)))
        return {name: _to_dict(state) for name, state in states.items() if state}

    def apply(
        self,
        variables: Variables,
        *inputs: jax.Array,
        method: str = "__call__",
        train: bool = False,
        rngs: Mapping[str, jax.Array] | None = None,
        mutable: Sequence[str] | None = None,
    ) -> PyTree:
        """Call a method of the module.

        Args:
          variables: Variables of the module.
          *inputs: Inputs of the method.
          method: Name of the method.
          train: Whether the call is in training mode.
          rngs: In training mode, a key under any one name.
          mutable: Collections whose values after the call are returned, too.

        Returns:
          The output, or with `mutable` the output and a dict of collections.
        """
        from flax import nnx

        states = {
            name: _from_dict(shapes, variables.get(name, {}))
            for name, shapes in self._shapes.items()
        }
        if rngs:
            (key,) = rngs.values()
            states["rngs"] = _seed_streams(states["rngs"], key)
        graph = self._train_graph if train else self._eval_graph
        module = nnx.merge(graph, *states.values())
        output = getattr(module, method)(*inputs)
        if mutable is None:
            return output
        updated = dict(variables)
        if "state" in mutable:  # streams are seeded in every call: theirs stay as they are
            state = traverse_util.flatten_dict(_to_dict(_split(module)["state"]))
            known = _paths(self._shapes["state"])  # not what a call may have added: intermediates
            updated["state"] = traverse_util.unflatten_dict({path: state[path] for path in known})
        return output, {name: updated[name] for name in mutable}


def _split(module: "nnx.Module") -> "dict[str, nnx.State]":
    """Return parameters, keys and counts of random streams, and all else (statistics)."""
    from flax import nnx

    filters = {"params": nnx.Param, "rngs": nnx.RngState, "state": ...}
    _, *states = nnx.split(module, *filters.values())
    return dict(zip(filters, states, strict=True))


def _paths(state: "nnx.State") -> list[tuple[str, ...]]:
    """Return the path of every array, in the order of the leaves; numbers in lists as strings."""
    value = jax.tree_util.GetAttrKey("value")  # from a variable to its array
    return [
        tuple(jax.tree_util.keystr((entry,), simple=True) for entry in path if entry != value)
        for path, _ in jax.tree_util.tree_leaves_with_path(state)
    ]


def _to_dict(state: "nnx.State") -> dict[str, PyTree]:
    """Return nested dicts of arrays; keys as their data, which can be saved and compared."""
    values = [jax.random.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(state)]
    return traverse_util.unflatten_dict(dict(zip(_paths(state), values, strict=True)))


def _from_dict(shapes: "nnx.State", values: PyTree) -> "nnx.State":
    """Invert `_to_dict`, given the state that the values are of."""
    flat = traverse_util.flatten_dict(values)
    leaves = [
        jax.random.wrap_key_data(flat[path]) if _is_key(shape) else flat[path]
        for path, shape in zip(_paths(shapes), jax.tree.leaves(shapes), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def _seed_streams(rngs: "nnx.State", key: jax.Array) -> "nnx.State":
    """Return the streams with keys that follow from `key`, different for each, and counts of zero."""
    leaves, structure = jax.tree.flatten(rngs)
    seeded = []
    for i, leaf in enumerate(leaves):
        if not _is_key(leaf):
            seeded.append(jnp.zeros_like(leaf))
        elif leaf.shape:
            seeded.append(jax.random.split(jax.random.fold_in(key, i), leaf.shape))
        else:
            seeded.append(jax.random.fold_in(key, i))
    return jax.tree.unflatten(structure, seeded)


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
