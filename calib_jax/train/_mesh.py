"""Where arrays live: one axis, `data`, over all devices."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def make_mesh() -> Mesh:
    """All devices in a row."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def split(mesh: Mesh) -> NamedSharding:
    """Rows dealt out over the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def spread(tree: Any, mesh: Mesh, *, rows: int | None = None) -> Any:
    """For each array of `tree` a sharding that deals out one axis over the devices, if one can be.

    Args:
      tree: of arrays or their shapes.
      mesh: the devices.
      rows: deal out the first axis of arrays that have so many rows, and nothing else; by default the
        longest axis that their number divides.
    """

    def one(leaf: Any) -> NamedSharding:
        fits = [n % mesh.size == 0 and n > 0 for n in leaf.shape]
        if rows is not None:
            axes = [0] if leaf.shape[:1] == (rows,) and fits[0] else []
        else:
            axes = sorted((i for i, fit in enumerate(fits) if fit), key=lambda i: -leaf.shape[i])
        if not axes:
            return replicated(mesh)
        return NamedSharding(mesh, PartitionSpec(*[None] * axes[0], "data"))

    return jax.tree.map(one, tree)


def check_batch_size(key: str, batch_size: int, mesh: Mesh, parts: int = 1) -> None:
    """A batch must deal out evenly over the devices, and in `parts` parts."""
    pieces = mesh.size * parts
    if batch_size < 1 or batch_size % pieces:
        raise ValueError(
            f"{key}={batch_size}: expected a multiple of {pieces} "
            f"({mesh.size} devices x {parts} accumulated parts)"
        )


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Copies of `tree` on every device; all processes must have the same."""
    return put(tree, replicated(mesh), lambda x: x.shape)


def put(tree: Any, sharding: NamedSharding, global_shape: Any) -> Any:
    """Arrays of which every process has its part: those of `tree`, as parts of `global_shape(part)`."""
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def one(x: Any) -> Any:
        # Not device_put: it would send everything around to see that all have the same.
        x = np.asarray(x)
        return jax.make_array_from_process_local_data(sharding, x, global_shape(x))

    return jax.tree.map(one, tree)
