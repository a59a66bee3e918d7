"""Locks on folders, released when the process that holds them ends, however it ends."""

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def lock_folder(folder: pathlib.Path, name: str = ".lock") -> Iterator[None]:
    """Hold a folder exclusively; create it if needed.

    Args:
      folder: Folder that no other process may use at the same time.
      name: File name of the lock; locks of different names are independent.

    Raises:
      ValueError: If another process holds the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a+") as file:
        if not try_lock(file):
            raise ValueError(
                f"{folder} is in use by {lock_owner(file)}; wait for it, or choose another --workdir"
            )
        write_owner(file)
        yield


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Return whether the lock on an open file could be acquired at once.

    Systems without `flock` (Windows) have no locks here: two processes in one workdir are not detected.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_owner(file: IO[str]) -> str:
    """Return the description that the last owner of the lock wrote into its file."""
    file.seek(0)
    return (file.read().splitlines() or ["another process"])[-1]


def write_owner(file: IO[str], prefix: str = "") -> None:
    """Write this process into the file of a lock that it holds, for `lock_owner` of others."""
    file.truncate(0)
    file.write(f"{prefix}process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
