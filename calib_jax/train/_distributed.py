"""Devices and processes: shardings over one axis, `data`, and what processes agree on."""

import functools
import os
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from calib_jax._hints import check_choice
from calib_jax.methods import PyTree

MODES = ("none", "env", "auto")
LOST_SECONDS = 60  # without a heartbeat, after which a process counts as lost
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def make_mesh() -> Mesh:
    """Return a mesh of all devices in a row."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device has a copy of."""
    return NamedSharding(mesh, PartitionSpec())


def sharded(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array whose rows are divided between the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def fsdp_shardings(tree: PyTree, mesh: Mesh, *, rows: int | None = None) -> PyTree:
    """Return for each array a sharding along one axis, or replicated where no axis can be divided.

    Args:
      tree: Pytree of arrays or their shapes.
      mesh: Devices.
      rows: Shard only the first axis of arrays with this number of rows; by default the longest axis
        that the number of devices divides.
    """

    def one(leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
        fits = [n % mesh.size == 0 and n > 0 for n in leaf.shape]
        if rows is not None:
            axes = [0] if leaf.shape[:1] == (rows,) and fits[0] else []
        else:
            axes = sorted((i for i, fit in enumerate(fits) if fit), key=lambda i: -leaf.shape[i])
        if not axes:
            return replicated(mesh)
        return NamedSharding(mesh, PartitionSpec(*[None] * axes[0], "data"))

    return jax.tree.map(one, tree)


def check_batch_size(key: str, batch_size: int, mesh: Mesh, accumulate: int = 1) -> None:
    """Raise unless a batch can be divided evenly between devices and microbatches."""
    divisor = mesh.size * accumulate
    if batch_size < 1 or batch_size % divisor:
        raise ValueError(
            f"{key}={batch_size}: expected a multiple of {divisor} "
            f"({mesh.size} devices x {accumulate} accumulated parts)"
        )


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """Copy `tree` to every device; all processes must have the same."""
    return put(tree, replicated(mesh), lambda x: x.shape)


def put(
    tree: PyTree, sharding: NamedSharding, global_shape: Callable[[np.ndarray], tuple[int, ...]]
) -> PyTree:
    """Put arrays on the devices of which each process has its own rows.

    Args:
      tree: Pytree of this process's arrays.
      sharding: Sharding of the global arrays.
      global_shape: Function that returns the shape of the global array of a process's array.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def one(x: ArrayLike) -> jax.Array:
        # Not device_put: it would send everything around to check that all processes have the same.
        rows = np.asarray(x)
        return jax.make_array_from_process_local_data(sharding, rows, global_shape(rows))

    return jax.tree.map(one, tree)


def init_distributed(mode: str) -> str:
    """Connect to the other processes of the run; to be called before any other use of JAX.

    Args:
      mode: `'none'`: a single process; `'env'`: from JAX_COORDINATOR_ADDRESS (host:port of process 0),
        JAX_NUM_PROCESSES and JAX_PROCESS_ID; `'auto'`: from Slurm, Open MPI, a TPU pod or Kubernetes.

    Returns:
      One line about processes and devices, for the user.
    """
    check_choice("distributed", mode, MODES)
    if mode != "none":
        _initialize(mode)
    try:
        devices = jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # jax asserts that a platform has devices
        reason = (str(error).strip().splitlines() or ["there is no such device"])[0]
        raise ValueError(
            f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')!r}: {reason}; unset it, or set cpu"
        ) from error
    kinds = ", ".join(sorted({device.device_kind for device in devices}))
    description = f"process {jax.process_index()} of {jax.process_count()}, "
    description += f"{jax.local_device_count()} of {jax.device_count()} devices ({kinds})"
    if mode == "none":
        return description
    return f"{description}, coordinator {os.environ.get(_VARIABLES[0], 'found by itself')}"


def _initialize(mode: str) -> None:
    initialize = functools.partial(
        jax.distributed.initialize, heartbeat_timeout_seconds=LOST_SECONDS
    )
    if mode == "env":
        missing = [name for name in _VARIABLES if not os.environ.get(name)]
        if missing:
            raise ValueError(
                f"distributed='env': expected {', '.join(_VARIABLES)}; not set: {', '.join(missing)}"
            )
        address, count, index = (os.environ[name] for name in _VARIABLES)
        if not (count.isdecimal() and index.isdecimal() and int(index) < int(count)):
            raise ValueError(
                f"distributed='env': JAX_PROCESS_ID={index!r} of JAX_NUM_PROCESSES={count!r}: "
                "expected whole numbers, the first smaller than the second"
            )
        initialize = functools.partial(
            initialize,
            coordinator_address=address,
            num_processes=int(count),
            process_id=int(index),
            cluster_detection_method="deactivate",  # or Slurm would assign its devices
        )
    try:
        initialize()
    except (RuntimeError, ValueError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"distributed={mode!r}: {line}; 'env' takes {', '.join(_VARIABLES)}, 'none' is one process"
        ) from error


def is_primary() -> bool:
    """Return whether this process is the one that writes files and prints."""
    return jax.process_index() == 0


def any_process(*flags: bool) -> tuple[bool, ...]:
    """Return for each flag whether any process has set it: the same answer in all of them.

    What a signal or a clock decides would otherwise be decided differently in each process.
    """
    if jax.process_count() == 1:
        return flags
    return tuple(multihost_utils.process_allgather(np.array(flags)).any(axis=0).tolist())


class LateAnyProcess:
    """`any_process` for the training loop: the answer comes one call late, and no device waits.

    An immediate answer would have to wait for the step that is running.
    """

    def __init__(self) -> None:
        self._mesh = make_mesh()
        self._any = jax.jit(lambda flags: flags.any(axis=0), out_shardings=replicated(self._mesh))
        self._pending: jax.Array | None = None

    def __call__(self, *flags: bool) -> tuple[bool, ...]:
        """Return the flags set by any process in the previous call; for one process, in this one."""
        if jax.process_count() == 1:
            return flags
        rows = np.tile(np.array(flags), (jax.local_device_count(), 1))  # one for every device
        shape = jax.device_count(), len(flags)
        previous = self._pending
        self._pending = self._any(put(rows, sharded(self._mesh), lambda _: shape))
        return (False,) * len(flags) if previous is None else tuple(np.asarray(previous).tolist())

    def reset(self) -> None:
        """Drop the pending answer: what it asked for has been done since."""
        self._pending = None


def barrier(name: str) -> None:
    """Wait until all processes have called this with the same name."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def to_host(array: ArrayLike) -> np.ndarray:
    """Return all of an array on the host, however it is sharded; every process must call this."""
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        return multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)
