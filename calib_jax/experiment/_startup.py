"""What a command does before its first computation."""

import os
import pathlib

import jax


def keep_compiled() -> None:
    """Keeps compiled programs on disk, so that the second run of a command starts at once."""
    default = pathlib.Path.home() / ".cache" / "calib_jax" / "compiled"
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(default))
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
