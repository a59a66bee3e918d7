"""Process settings that a command makes before its first computation."""

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

# What glibc's malloc.h calls M_TRIM_THRESHOLD, M_MMAP_MAX and M_ARENA_MAX.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


@contextlib.contextmanager
def interruptible_imports() -> Iterator[None]:
    """Let Ctrl-C end the process at once, in one line, while modules are imported.

    Extension modules in C turn a KeyboardInterrupt into an ImportError with a long traceback.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        os.write(2, b"\ninterrupted\n")
        os._exit(130)

    if threading.current_thread() is not threading.main_thread():  # which alone has handlers
        yield
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def keep_compiled(least_seconds: float = 0.1) -> None:
    """Keep compiled programs on disk, so that the second run of a command starts at once.

    Args:
      least_seconds: Time of compilation below which a program is not worth a file.
    """
    import jax

    default = pathlib.Path.home() / ".cache" / "calib_jax" / "compiled"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(default))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)


def keep_memory() -> None:
    """Keep freed memory in the process; to be called before jax starts its threads.

    A program on the CPU allocates its buffers anew at every step. glibc returns blocks of their size to
    the system as soon as they are free, and the system clears each page before it hands it out again:
    a tenth to a sixth of a training step. So nothing is returned, and all threads share the one heap
    that can hold blocks of any size. Other C libraries, and processes with settings of their user's
    (MALLOC_ARENA_MAX), stay as they are.
    """
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_ARENA_MAX, 1)):
            mallopt(option, value)
