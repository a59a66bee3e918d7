"""What tests of several rooms need to be quick, and to have several devices."""

import functools
import os

import jax

# Compiling is most of the time that many tests take.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def _compiled(metric, options):
    return quick_jit(functools.partial(metric, **dict(options)))


def run(metric, *arrays, weights=None, **options):
    """`metric(*arrays, weights=weights, **options)` under jit."""
    return _compiled(metric, tuple(options.items()))(*arrays, weights=weights)


def with_devices(number, **variables):
    """The environment of a process that has so many devices, with more variables."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={number}"
    # NPROC: threads of XLA, however few cores there are; with fewer, collectives may wait forever.
    return os.environ | {"XLA_FLAGS": flags, "NPROC": "32", "JAX_PLATFORMS": "cpu"} | variables
