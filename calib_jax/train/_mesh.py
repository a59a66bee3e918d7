"""Where arrays live: one axis, `data`, over all devices."""

from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


def make_mesh() -> Mesh:
    """All devices in a row."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def split(mesh: Mesh) -> NamedSharding:
    """Rows dealt out over the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def check_batch_size(key: str, batch_size: int, mesh: Mesh, parts: int = 1) -> None:
    """A batch must deal out evenly over the devices, and in `parts` parts."""
    pieces = mesh.size * parts
    if batch_size < 1 or batch_size % pieces:
        raise ValueError(
            f"{key}={batch_size}: expected a multiple of {pieces} "
            f"({mesh.size} devices x {parts} accumulated parts)"
        )


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Copies of `tree` on every device."""
    return jax.device_put(tree, replicated(mesh))
