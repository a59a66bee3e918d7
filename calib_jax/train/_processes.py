"""Several processes as one run: how they find each other, what they agree on, and who writes."""

import os
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from calib_jax.train import _mesh

MODES = ("none", "env", "auto")
LOST_SECONDS = 60  # after so long without a sign of life a process counts as lost
_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def join(mode: str) -> str:
    """Joins the other processes of the run; to be called before anything else is asked of JAX.

    Args:
      mode: `'none'`: this process is alone; `'env'`: JAX_COORDINATOR_ADDRESS (host:port of process 0),
        JAX_NUM_PROCESSES and JAX_PROCESS_ID tell; `'auto'`: Slurm, Open MPI, a TPU pod or Kubernetes
        does.

    Returns:
      What was found, for the user.
    """
    if mode not in MODES:
        raise ValueError(f"distributed={mode!r}: expected one of {', '.join(MODES)}")
    if mode != "none":
        _initialize(mode)
    kinds = ", ".join(sorted({device.device_kind for device in jax.local_devices()}))
    found = f"process {jax.process_index()} of {jax.process_count()}, "
    found += f"{jax.local_device_count()} of {jax.device_count()} devices ({kinds})"
    where = os.environ.get(_VARIABLES[0], "found by itself")
    return found if mode == "none" else f"{found}, coordinator {where}"


def _initialize(mode: str) -> None:
    options: dict[str, Any] = {"heartbeat_timeout_seconds": LOST_SECONDS}
    if mode == "env":
        missing = [name for name in _VARIABLES if not os.environ.get(name)]
        if missing:
            raise ValueError(
                f"distributed='env': expected {', '.join(_VARIABLES)}; not set: {', '.join(missing)}"
            )
        address, number, own = (os.environ[name] for name in _VARIABLES)
        if not (number.isdecimal() and own.isdecimal() and int(own) < int(number)):
            raise ValueError(
                f"distributed='env': JAX_PROCESS_ID={own!r} of JAX_NUM_PROCESSES={number!r}: "
                "expected whole numbers, the first smaller than the second"
            )
        options |= {"coordinator_address": address, "num_processes": int(number)}
        options["process_id"] = int(own)
        options["cluster_detection_method"] = "deactivate"  # or Slurm would deal out its devices
    try:
        jax.distributed.initialize(**options)
    except (RuntimeError, ValueError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"distributed={mode!r}: {line}; 'env' takes {', '.join(_VARIABLES)}, 'none' is one process"
        ) from error


def is_first() -> bool:
    """Whether this process is the one that writes and talks."""
    return jax.process_index() == 0


def together(*flags: bool) -> tuple[bool, ...]:
    """The flags that any process has raised; all processes get the same answer at the same place.

    What a signal or a clock decides would otherwise be decided differently in each of them.
    """
    if jax.process_count() == 1:
        return flags
    return tuple(multihost_utils.process_allgather(np.array(flags)).any(axis=0).tolist())


class Agreement:
    """`together` for the training loop: the answer comes a call late, and no device waits for it.

    An answer at once would have to wait for the step that is being done.
    """

    def __init__(self) -> None:
        self._mesh = _mesh.make_mesh()
        self._any = jax.jit(
            lambda flags: flags.any(axis=0), out_shardings=_mesh.replicated(self._mesh)
        )
        self._asked: jax.Array | None = None

    def __call__(self, *flags: bool) -> tuple[bool, ...]:
        """The flags that any process raised in the call before; of a single process, in this one."""
        if jax.process_count() == 1:
            return flags
        own = np.tile(np.array(flags), (jax.local_device_count(), 1))  # a row for every device
        shape = jax.device_count(), len(flags)
        before = self._asked
        self._asked = self._any(_mesh.put(own, _mesh.split(self._mesh), lambda _: shape))
        return (False,) * len(flags) if before is None else tuple(np.asarray(before).tolist())

    def forget(self) -> None:
        """What was asked has been done since."""
        self._asked = None


def wait_for_all(place: str) -> None:
    """Returns when all processes have come to this place."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(place)


def whole(array: Any) -> np.ndarray:
    """All of an array on the host, wherever its parts are; every process must ask."""
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        return multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)
