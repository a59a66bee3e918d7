"""Compiling is most of the time that many tests take: do it once per shape, and quickly."""

import functools

import jax

quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def _compiled(metric, options):
    return quick_jit(functools.partial(metric, **dict(options)))


def run(metric, *arrays, weights=None, **options):
    """`metric(*arrays, weights=weights, **options)` under jit."""
    return _compiled(metric, tuple(options.items()))(*arrays, weights=weights)
